"""What a fit leaves behind: a model, scaling, and where every series stands; and how to go on from there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.following import Judgement, filter_series, join, judged_step, part_of, standing
from smc_transformer.forecaster.forecast import Forecast, mixture_of_paths
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.paths import draw_futures
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series
from smc_transformer.inference.population import Population
from smc_transformer.model import SMCTransformer
from smc_transformer.predictive import VarianceParts


class Standing(NamedTuple):
    """Where a series is.

    Attributes:
        population: its particles after its last row.
        last_time: the time of that row.
        scaler: its scaling.
        runs: of each modelled column, how many of its last values were outside what is believed (`Distrust`).
    """

    population: Population
    last_time: Any
    scaler: Scaler
    runs: tuple[int, ...]


class Ready(NamedTuple):
    """Rows of a series, checked and scaled: all that may be wrong with them has been looked for.

    Attributes:
        series: the rows.
        scaler: their scaling.
        rows: as the filter takes them (`Panel.rows`) if the series begins with them; if it goes on, the modelled values
            and the known inputs of the same time.
    """

    series: Series
    scaler: Scaler
    rows: Float[Tensor, "row n_inputs"]


class Judged(NamedTuple):
    """Rows of a series, its scaling, and how surprising the rows were."""

    series: Series
    scaler: Scaler
    judgement: Judgement


@dataclass
class Fitted:
    """A trained model and the series it follows.

    Attributes:
        settings: of the forecaster.
        model: the trained model.
        panel: scaling.
        standings: where each series is.
        trained_until: the last time of each series that the fit has seen.
        generator: source of the filter's randomness; forecasts use copies of it.
    """

    settings: Settings
    model: SMCTransformer
    panel: Panel
    standings: dict[Name, Standing]
    trained_until: dict[Name, Any]
    generator: Generator

    @property
    def some_time(self) -> Any:
        """A time that the fit has seen: its zone is that of all times."""
        return next(iter(self.trained_until.values()))

    def follow(
        self, given: Sequence[Series], generator: Generator | None, *, judging: bool = False
    ) -> tuple[dict[Name, Standing], list[Judged]]:
        """Filter series from their first complete rows; where they stand then, and how surprising their rows were."""
        return self._follow([self._beginning(series) for series in given], generator, judging=judging)

    def update(self, given: Sequence[Series], distrust: Distrust | None = None) -> list[Judged]:
        """Take filter steps from where series stand, one for each row, and begin to follow those that are new.

        It happens as a whole or, after an error, not at all.

        Args:
            given: rows after those known.
            distrust: which values are taken for missing; None: none.
        """
        new = [self._beginning(series) for series in given if series.name not in self.standings]
        going = [self._next_rows(series) for series in given if series.name in self.standings]
        generator = self.generator.clone_state()
        standings, judged = self._follow(new, generator, judging=True, distrust=distrust)
        # Those that stand at the same place take their steps together.
        alike: dict[tuple[Any, ...], list[Ready]] = {}
        for one in going:
            place = standing(self.standings[one.series.name].population)
            alike.setdefault((*place, len(one.series)), []).append(one)
        for together in alike.values():
            after, judgements = self._go_on_together(together, generator, distrust)
            standings.update(after)
            judged += judgements
        self.standings.update(standings)
        self.generator.set_state(generator.get_state())
        order = {series.name: place for place, series in enumerate(given)}
        return sorted(judged, key=lambda one: order[one.series.name])

    def _beginning(self, series: Series) -> Ready:
        begun, scaler = self.panel.beginning(series), self.panel.scaler(series)
        return Ready(begun, scaler, self.panel.rows(begun, scaler))

    def _next_rows(self, series: Series) -> Ready:
        scaler = self.standings[series.name].scaler
        columns = (self.panel.values(series, scaler), self.panel.known(series))
        return Ready(series, scaler, torch.from_numpy(np.concatenate(columns, axis=1)).float())

    def _follow(
        self, ready: list[Ready], generator: Generator | None, *, judging: bool, distrust: Distrust | None = None
    ) -> tuple[dict[Name, Standing], list[Judged]]:
        rows = [one.rows for one in ready]
        populations, judgements = filter_series(
            self.model, rows, self.settings.n_particles, generator, judging=judging, distrust=distrust
        )
        standings, judged = {}, []
        for (series, scaler, _), population, judgement in zip(ready, populations, judgements, strict=True):
            standings[series.name] = Standing(population, series.times[-1], scaler, self._last_runs(judgement))
            judged.append(Judged(series.rows(slice(1, None)), scaler, judgement))
        return standings, judged

    def _go_on_together(
        self, together: list[Ready], generator: Generator, distrust: Distrust | None
    ) -> tuple[dict[Name, Standing], list[Judged]]:
        n_modelled = len(self.settings.modelled)
        before = [self.standings[one.series.name] for one in together]
        targets, known = torch.stack([one.rows for one in together]).tensor_split([n_modelled], dim=-1)
        population, runs = join([one.population for one in before]), torch.tensor([one.runs for one in before])
        steps = []
        for row in range(targets.shape[1]):
            steps.append(judged_step(population, known[:, row], targets[:, row], runs, generator, distrust))
            runs = steps[-1].runs
        standings, judged = {}, []
        for number, (series, scaler, _) in enumerate(together):
            alone = join([part_of(population, slice(number, number + 1))])
            judgement = Judgement(
                *(torch.stack([part[number] for part in parts]) for parts in zip(*steps, strict=True))
            )
            standings[series.name] = Standing(alone, series.times[-1], scaler, self._last_runs(judgement))
            judged.append(Judged(series, scaler, judgement))
        return standings, judged

    def _last_runs(self, judgement: Judgement) -> tuple[int, ...]:
        if len(judgement.runs) == 0:
            return (0,) * len(self.settings.modelled)
        return tuple(judgement.runs[-1].tolist())

    def forecast(
        self,
        standings: Mapping[Name, Standing],
        future: Mapping[Name, Series],
        n_paths: int,
        generator: Generator | None,
    ) -> Forecast:
        """Draw the futures of series.

        Args:
            standings: where they are.
            future: the times to forecast, and what is known of them.
            n_paths: paths of each series.
            generator: source of randomness.
        """
        settings, n_targets = self.settings, len(self.settings.targets)
        known = np.stack([self.panel.known(future[name]) for name in standings])
        populations = [one.population for one in standings.values()]
        futures = draw_futures(populations, torch.from_numpy(known).float(), n_paths, generator)
        scalers = tuple(one.scaler.first(n_targets) for one in standings.values())
        scaled = futures.paths[..., :n_targets].double().numpy()
        squares = torch.from_numpy(np.stack([scaler.spread**2 for scaler in scalers]))[:, None]
        times: tuple[pd.Index, ...] = tuple(future[name].times for name in standings)
        return Forecast(
            names=tuple(standings),
            times=times,
            targets=settings.targets,
            paths=np.stack([scaler.inverse(paths) for scaler, paths in zip(scalers, scaled, strict=True)]),
            id_column=settings.id_column,
            time_column=settings.time_column,
            scalers=scalers,
            first=mixture_of_paths(self.model, futures.first),
            parts=VarianceParts(*(part[..., :n_targets].double() * squares for part in futures.parts)),
        )
