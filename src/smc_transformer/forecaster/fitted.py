"""The result of a fit: a model, scaling, and the particles of every series; and how to follow them further."""

import logging
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.following import Follower, Judgement, Revise
from smc_transformer.forecaster.forecast import Forecast, Past
from smc_transformer.forecaster.frequency import times_until
from smc_transformer.forecaster.horizon_units import to_model, to_table
from smc_transformer.forecaster.panel import Panel, Viewed, ViewState
from smc_transformer.forecaster.paths import draw_futures, draw_scenario
from smc_transformer.forecaster.roster import Followed as Followed
from smc_transformer.forecaster.roster import Roster
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series
from smc_transformer.inference.state import ParticleState
from smc_transformer.learning.persistence import persistent
from smc_transformer.learning.step_widths import stretched
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.streams import Streams
from smc_transformer.predictive import VarianceParts
from smc_transformer.smc.weights import uniform_log_weights
from smc_transformer.support import processes
from smc_transformer.support.checks import shown
from smc_transformer.support.randomness import check_seed
from smc_transformer.support.threads import in_threads

logger = logging.getLogger(__name__)

T = TypeVar("T")

FOLLOWING, FORECASTING = "follow", "forecast"
"""What a series has random streams for."""
FEW_PATHS = 100
"""Independent paths below which a scenario comes with a warning in the log."""


HORIZONS_KEPT, MOST_KEPT = 5, 500
"""Last rows of each series that a model keeps, in horizons and in all: what pictures show before a forecast."""


def n_recent(settings: Settings) -> int:
    """How many of the last rows of each series are kept."""
    return min(HORIZONS_KEPT * settings.horizon, MOST_KEPT)


class Following(NamedTuple):
    """Series that are followed: their particles, and what else is known of them."""

    fleet: Fleet
    series: MutableMapping[Name, Followed]

    def last_time(self, name: Name) -> Any:
        """That of the last row of a series."""
        series = self.series
        return series.last_times[series.places[name]] if isinstance(series, Roster) else series[name].last_time

    def last_times(self) -> dict[Name, Any]:
        """Those of all."""
        if isinstance(self.series, Roster):
            last_times = self.series.last_times
            return {name: last_times[place] for name, place in self.series.places.items()}
        return {name: followed.last_time for name, followed in self.series.items()}

    def drop(self, names: Sequence[Name]) -> None:
        """Follow some series no longer."""
        self.fleet.drop(names)
        for name in names:
            del self.series[name]

    def add(self, others: Iterable["Following"]) -> None:
        """Follow further series, from where they are."""
        parts = list(others)
        self.fleet.add(block for one in parts for block in one.fleet.blocks())
        for one in parts:
            self.series.update(one.series)


class Ready(NamedTuple):
    """Rows of a series, checked and scaled: all that may be wrong with them has been looked for.

    A series that begins has rows as the filter takes them (`Panel.rows`); in those of a series that goes on, the
    modelled values are beside the known inputs of the same time.
    """

    viewed: Viewed
    state: ViewState  # after the rows
    rows: Float[Tensor, "row n_inputs"]

    @property
    def series(self) -> Series:
        """The series, with these rows."""
        return self.viewed.series

    def seen_as(self, viewed: Viewed, state: ViewState, rows: Float[Tensor, "row n_inputs"]) -> "Ready":
        """The same series, seen as it is when some of its values are not believed."""
        return Ready(viewed._replace(series=self.series), state, rows)

    def after(self, judgement: Judgement, n_kept: int, before: Followed | None = None) -> Followed:
        """The series after its rows, of which the first may not have been judged; so many of the last are kept."""
        runs = judgement.runs
        last = runs[-1] if len(runs) else runs.new_zeros(runs.shape[-1])
        rows = self.series.values if before is None else np.concatenate((before.recent, self.series.values))
        return Followed(self.series.times[-1], self.state, tuple(last.tolist()), rows[-n_kept:].copy())


class Judged(NamedTuple):
    """Rows of a series, its scaling, and how surprising the rows were."""

    series: Series
    scaler: Scaler
    judgement: Judgement


class Stepped(NamedTuple):
    """Rows of series over which their particles have gone, but which nobody has taken yet."""

    judged: list[Judged]
    parts: list[tuple[list[Name], ParticleState]]  # of series that were followed before
    begun: Fleet  # of those that were not
    followed: dict[Name, Followed]  # what is known of both


def _without(series: Series, row: int, denied: Bool[Tensor, "modelled"]) -> Series:
    """A series in which some values of a row are missing."""
    values = series.values.copy()
    values[row, denied.numpy()] = np.nan
    return replace(series, values=values)


def _union(parts: Iterable[Mapping[Name, T]]) -> dict[Name, T]:
    return {name: value for part in parts for name, value in part.items()}


@dataclass
class Fitted:
    """A trained model and the series it follows."""

    settings: Settings
    model: SMCTransformer
    panel: Panel
    following: Following
    trained_until: dict[Name, Any]  # the last time of each series that the fit has seen
    chosen: dict[str, str] = field(default_factory=dict)  # settings that the table has told, in words

    @property
    def some_time(self) -> Any:
        """A time that the fit has seen, or of a series that is followed: its zone is that of all times; None: any."""
        followed = (self.following.last_time(name) for name in self.following.series)
        return next(chain(self.trained_until.values(), followed), None)

    @property
    def follower(self) -> Follower:
        """The model, and how it follows series."""
        return Follower(self.model, self.model.settings(self.settings.n_particles))

    def gather(self) -> bool:
        """In the first process of a group the series of all processes; returns whether this is it."""
        own = (self.following.fleet.blocks(), self.following.series, self.trained_until, self.panel.scalers)
        parts = processes.gather_to_first(own)
        if parts is not None and len(parts) > 1:
            blocks, followed, until, scalers = zip(*parts, strict=True)
            self.following = Following(Fleet(block for part in blocks for block in part), _union(followed))
            self.trained_until, self.panel.scalers = _union(until), _union(scalers)
        return parts is not None

    def streams(self, names: Sequence[Name], purpose: str, seed: int | None = None) -> Streams:
        """The random streams of series, for following or forecasting them; without a seed, that of the settings."""
        return Streams.named(names, self.settings.seed if seed is None else check_seed(seed), purpose)

    def follow(
        self,
        given: list[Series],
        seed: int | None = None,
        *,
        judging: bool = False,
        distrust: Distrust | None = None,
        keeping: bool = False,
    ) -> tuple[Following, list[Judged]]:
        """Filter series from their first complete rows; their particles then, and how surprising the rows were.

        With `keeping`, the judgements hold what was predicted of each row.
        """
        viewed, states, _ = self.panel.begin([self.panel.beginning(series) for series in given])
        return self.follow_viewed(viewed, states, seed, judging=judging, distrust=distrust, keeping=keeping)

    def follow_viewed(
        self,
        viewed: Sequence[Viewed],
        states: Sequence[ViewState],
        seed: int | None = None,
        *,
        judging: bool = False,
        distrust: Distrust | None = None,
        keeping: bool = False,
    ) -> tuple[Following, list[Judged]]:
        """The same for rows that have been looked at already, with the views after them."""
        ready = [Ready(one, state, self.panel.rows(one)) for one, state in zip(viewed, states, strict=True)]
        believed = [one.series for one in ready]

        def revise(number: int, row: int, denied: Tensor) -> Tensor:
            believed[number] = _without(believed[number], row, denied)
            (seen,), (state,), _ = self.panel.begin([believed[number]])
            ready[number] = ready[number].seen_as(seen, state, self.panel.rows(seen))
            return ready[number].rows

        parts, judgements = self.follower.filter_series(
            [one.rows for one in ready],
            self.streams([one.series.name for one in ready], FOLLOWING, seed),
            judging=judging,
            distrust=distrust,
            revise=None if self.panel.view is None else revise,
            keeping=keeping,
        )
        fleet = Fleet(([ready[number].series.name for number in numbers], state) for numbers, state in parts)
        both = list(zip(ready, judgements, strict=True))
        followed = {one.series.name: one.after(judgement, n_recent(self.settings)) for one, judgement in both}
        after_first = ((one.viewed.rows(slice(1, None)), judgement) for one, judgement in both)
        judged = [Judged(one.series, one.scaler, judgement) for one, judgement in after_first]
        return Following(fleet, followed), judged

    def update(self, given: Sequence[Series], distrust: Distrust | None = None) -> list[Judged]:
        """Follow series further, by a filter step for each row, and begin to follow those that are new.

        It happens as a whole or, after an error, not at all. Values that `distrust` denies are treated as missing.
        """
        stepped = self.step(given, distrust)
        self.put(stepped)
        return stepped.judged

    def step(self, given: Sequence[Series], distrust: Distrust | None = None) -> Stepped:
        """What `update` would make of the rows, without taking them yet."""
        fleet, known = self.following
        new = [series for series in given if series.name not in known]
        later = [series for series in given if series.name in known]
        before = {series.name: known[series.name] for series in later}
        viewed, views = self.panel.go_on(later, [before[series.name].view for series in later])
        going = [Ready(one, view, self.panel.rows(one, ahead=False)) for one, view in zip(viewed, views, strict=True)]
        begun, judged = self.follow(new, judging=True, distrust=distrust)
        stepped, followed = [], dict(begun.series)
        going.sort(key=lambda one: -len(one.series))
        # Apart: one gap costs its whole batch an encoder state for each particle, one full memory a larger memory.
        grows = self.model.config.window is None
        apart = [
            (bool(one.rows.isnan().any()), grows and fleet.room(one.series.name) < len(one.series)) for one in going
        ]
        for numbers in fleet.groups([one.series.name for one in going], apart):
            together = [going[number] for number in numbers]
            names = [one.series.name for one in together]
            rows = pad_sequence([one.rows for one in together], batch_first=True)
            targets, inputs = rows.tensor_split([len(self.settings.modelled)], dim=-1)
            runs = torch.tensor([before[name].runs for name in names])
            revise = (
                None if self.panel.view is None else self._revising(together, [before[name].view for name in names])
            )
            parts, judgements = self.follower.take_steps(
                fleet.take(names),
                targets.clone(),
                inputs.clone(),
                [len(one.rows) for one in together],
                self.streams(names, FOLLOWING),
                runs,
                distrust,
                revise,
            )
            stepped += [([names[place] for place in places], state) for places, state in parts]
            for one, judgement in zip(together, judgements, strict=True):
                judged.append(Judged(one.series, one.viewed.scaler, judgement))
                name = one.series.name
                followed[name] = one.after(judgement, n_recent(self.settings), before[name])
        order = {series.name: place for place, series in enumerate(given)}
        judged.sort(key=lambda one: order[one.series.name])
        return Stepped(judged, stepped, begun.fleet, followed)

    def put(self, stepped: Stepped) -> None:
        """Take rows over which series have been stepped."""
        fleet, known = self.following
        for names, state in stepped.parts:
            fleet.put(names, state)
        fleet.add(stepped.begun.blocks())
        known.update(stepped.followed)

    def _revising(self, together: list[Ready], before: list[ViewState]) -> Revise:
        """How rows of series that go on are seen once some of their values are denied; `together` follows that."""
        believed = [one.series for one in together]

        def revise(number: int, row: int, denied: Tensor) -> tuple[Tensor, Tensor]:
            believed[number] = _without(believed[number], row, denied)
            (seen,), (state,) = self.panel.go_on([believed[number]], [before[number]])
            together[number] = together[number].seen_as(seen, state, self.panel.rows(seen, ahead=False))
            targets, inputs = together[number].rows.tensor_split([len(self.settings.modelled)], dim=-1)
            return targets, inputs

        return revise

    def forecast(
        self, following: Following, future: Mapping[Name, Series], n_paths: int, seed: int | None = None
    ) -> Forecast:
        """Draw paths of series from where they are; `future` holds the times ahead and what is known of them."""
        settings, n_targets, names = self.settings, len(self.settings.targets), tuple(future)
        viewed, known = self._ahead(following, future)
        streams = self.streams(names, FORECASTING, seed)
        futures = draw_futures(self.follower, following.fleet, names, known, n_paths, streams)
        scalers = tuple(one.scaler.first(n_targets) for one in viewed)
        widths = self.panel.widths_of(known.shape[1])
        spreads = np.stack([np.atleast_2d(scaler.spread) for scaler in scalers]) * widths[:, None]
        with np.errstate(over="ignore"):  # a variance may be infinite where its values are not
            squares = torch.from_numpy(spreads**2)
        drawn = futures.paths[..., :n_targets].numpy()
        paths = np.empty(drawn.shape)

        def finish(chosen: slice) -> None:
            for number in range(len(names))[chosen]:  # one by one, as each fits into a processor's cache
                own = drawn[number, None].astype(float)
                own = persistent(stretched(own, widths), self.panel.persistence)[0]
                if np.isnan(own).any():
                    raise ValueError(
                        f"the forecast of series {shown(names[number])} is not a number: its state or the weights of "
                        f"the model are beyond what can be computed; fit the model again"
                    )
                paths[number] = to_table(own, scalers[number], self.panel.positive)

        in_threads(finish, len(names))
        equal = uniform_log_weights(futures.first[..., 0])
        return Forecast(
            names=names,
            times=tuple(series.times for series in future.values()),
            targets=settings.targets,
            paths=paths,
            id_column=settings.id_column,
            time_column=settings.time_column,
            freq=settings.freq,
            past=self._past(following, names),
            scalers=scalers,
            first=self.model.observation.mixture(equal.unsqueeze(-1), futures.first.unsqueeze(2)),
            parts=VarianceParts(
                *(part[..., :n_targets].double() * squares for part in (futures.between, futures.within))
            ),
        )

    def scenario(
        self,
        following: Following,
        future: Mapping[Name, Series],
        given: Mapping[Name, Float[np.ndarray, "horizon modelled"]],
        n_paths: int,
        seed: int | None = None,
    ) -> Forecast:
        """The same, with values that are `given` at the times ahead, in the table's units; NaN where none is."""
        settings, n_targets, names = self.settings, len(self.settings.targets), tuple(future)
        viewed, known = self._ahead(following, future)
        ahead = [replace(series, values=given[name]) for name, series in future.items()]
        fixed = [to_model(series, settings, one.scaler) for series, one in zip(ahead, viewed, strict=True)]
        scaled = torch.from_numpy(np.stack(fixed)).float()
        streams = self.streams(names, FORECASTING, seed)
        drawn = draw_scenario(self.follower, following.fleet, names, known, scaled, n_paths, streams)
        scalers = tuple(one.scaler.first(n_targets) for one in viewed)
        paths = []
        for own, series, scaler in zip(drawn.targets[..., :n_targets].double().numpy(), ahead, scalers, strict=True):
            exact = series.values[:, :n_targets]
            # What was given, to the last bit: the model's numbers are rounded.
            paths.append(np.where(np.isnan(exact), to_table(own, scaler, self.panel.positive), exact))
        for name, worth in zip(names, drawn.effective.tolist(), strict=True):
            if worth < min(FEW_PATHS, n_paths / 2):
                logger.warning(
                    "the %d paths of series %r in the scenario are worth %.0f independent ones only, as few go through "
                    "the values given: these are far from what the model expects (a larger n_paths helps)",
                    *(n_paths, name, worth),
                )
        return Forecast(
            names=names,
            times=tuple(series.times for series in ahead),
            targets=settings.targets,
            paths=np.stack(paths),
            id_column=settings.id_column,
            time_column=settings.time_column,
            freq=settings.freq,
            past=self._past(following, names),
            scalers=scalers,
            first=None,
            parts=None,
            worth=drawn.effective.numpy(),
        )

    def _past(self, following: Following, names: Sequence[Name]) -> tuple[Past, ...]:
        """The last rows of series."""
        n_targets, freq, found = len(self.settings.targets), self.settings.freq, []
        for name in names:
            one = following.series[name]
            found.append(Past(times_until(one.last_time, len(one.recent), freq), one.recent[:, :n_targets]))
        return tuple(found)

    def _ahead(
        self, following: Following, future: Mapping[Name, Series]
    ) -> tuple[list[Viewed], Float[Tensor, "series horizon known"]]:
        """How the times ahead are seen from where the series are, and what is known of them."""
        viewed = self.panel.ahead(list(future.values()), [following.series[name].view for name in future])
        return viewed, torch.from_numpy(np.stack([one.known for one in viewed])).float()
