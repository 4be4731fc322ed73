"""Filtering many series: to the last row of each, and on from there row by row.

The steps are those of the model's filter (`inference/step.py`). The known inputs of the next time come with that time's
row, so the particles wait for them: weighted by the last row, not yet selected or moved.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.inference import engine
from smc_transformer.inference.filter import filter_numbers, filter_state
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import (
    FollowedStep,
    Prediction,
    begin,
    follow_step,
    observe_followed,
    observe_step,
    predict_step,
)
from smc_transformer.network import Network
from smc_transformer.nn.streams import JUDGEMENT, NOISE, OBSERVATION, SELECTION, Streams, in_stage, rows_of
from smc_transformer.predictive import Mixture
from smc_transformer.support.chunks import chunk_size

SERIES_AT_ONCE = 128
"""Series that are filtered together: bounds the memory."""

NUMBERS_AT_ONCE = 2**27
"""Numbers that the filter of a whole series may hold (512 MiB); longer series are filtered row by row."""


class Judgement(NamedTuple):
    """What the rows of a series meant to the model, before each was seen; NaN where nothing was observed."""

    log_density: Float[Tensor, "*row target"]  # of each target alone, in the model's units
    pit: Float[Tensor, "*row target"]  # P(X <= x) of each target: near 0 or 1 is a surprise
    runs: Int[Tensor, "*row target"]  # how many values in a row, up to this one, were outside what is believed
    predicted: Mixture | None = None  # the distribution of each row, (1, row, target), if it was asked for

    @classmethod
    def missing(cls, targets: Float[Tensor, "*row target"]) -> "Judgement":
        """That of rows that were not judged."""
        unknown = torch.full_like(targets, float("nan"))
        return cls(unknown, unknown.clone(), torch.zeros_like(targets, dtype=torch.long))


Revise: TypeAlias = Callable[[int, int, Bool[Tensor, "n_targets"]], tuple[Tensor, Tensor]]
"""The targets and known inputs of all rows of a series, anew, once some values of one of its rows are denied."""
ReviseRows: TypeAlias = Callable[[int, int, Bool[Tensor, "n_targets"]], Float[Tensor, "_ n_inputs"]]
"""The same, as rows of the model from the first on."""


class StreamKeys(NamedTuple):
    """The keys of random streams, of which a generator is made only where torch draws: that takes a while."""

    keys: Int[Tensor, "batch"]


def _as_generator(given: Generator | StreamKeys | None) -> Generator | None:
    return Streams(given.keys) if isinstance(given, StreamKeys) else given


class PredictedRow(NamedTuple):
    """What particles say about a row before it is seen."""

    log_weights: Float[Tensor, "batch particle"]
    parameters: Float[Tensor, "batch particle n_parameters"]
    judgement: Judgement | None
    step: Prediction | FollowedStep  # taken by torch, or by C in one call


class Follower(NamedTuple):
    """A network, and how its particles follow series."""

    network: Network
    settings: InferenceSettings

    def predict(
        self,
        state: ParticleState,
        known: Float[Tensor, "batch known"],
        targets: Float[Tensor, "batch n_targets"],
        generator: Generator | StreamKeys | None,
        *,
        judging: bool = True,
    ) -> PredictedRow:
        """The first half of a step, in place: `known` are inputs of this time that were known ahead."""
        meet_known(self.network, state, known)
        if isinstance(generator, Streams | StreamKeys):
            found = follow_step(self.network, self.settings, state, targets, generator.keys)
            if found is not None:
                judged = Judgement(found.log_density, found.pit, torch.zeros_like(targets, dtype=torch.long))
                return PredictedRow(state.log_weights, found.parameters, judged, found)
        generator = _as_generator(generator)
        fresh, selecting = (in_stage(generator, stage, state.position) for stage in (NOISE, SELECTION))
        noise = self.network.attention.draw_noise(len(state), state.n_particles, 1, fresh).at(0)
        prediction = predict_step(self.network, self.settings, state, selecting, noise)
        judgement = None
        if judging:
            judgement = self.judge(prediction, targets, in_stage(generator, JUDGEMENT, state.position, ahead=-1))
        return PredictedRow(prediction.log_weights, prediction.parameters, judgement, prediction)

    @torch.no_grad()
    def observe(
        self,
        state: ParticleState,
        step: Prediction | FollowedStep,
        targets: Float[Tensor, "batch n_targets"],
        generator: Generator | StreamKeys | None,
    ) -> None:
        """The second half, in place: weight by what is observed, draw what is missing (NaN)."""
        # The known inputs of the next time are not known yet: zeros hold their place.
        x = torch.nn.functional.pad(targets, (0, state.last.shape[-1] - targets.shape[1]))
        # A row that no particle can explain must not end a stream: the weights are reset to equal.
        if not isinstance(step, Prediction) and not targets.isnan().any():
            observe_followed(self.network, state, step, x, None)
            return
        # The position has gone on already.
        drawing = in_stage(_as_generator(generator), OBSERVATION, state.position, ahead=-1)
        if isinstance(step, Prediction):
            observe_step(self.network, self.settings, state, step, x, drawing, on_collapse="uniform")
        else:
            observe_followed(self.network, state, step, x, drawing)

    @torch.no_grad()
    def judge(
        self, prediction: Prediction, targets: Float[Tensor, "batch n_targets"], generator: Generator | None
    ) -> Judgement:
        """How expected each target was."""
        # Not `prediction.mixture`, which keeps a copy of the observation model.
        weights, parameters = prediction.log_weights.unsqueeze(-1), prediction.parameters.unsqueeze(2)
        mixture = Mixture(weights, parameters, self.network.observation.components)
        values = targets.unsqueeze(1)
        pit = mixture.pit(values, generator)[:, 0]
        others = ~torch.eye(targets.shape[-1], dtype=torch.bool)  # which are integrated out
        # A number in place of what is missing, as the gap of one series must not mask the values of others.
        known = values.nan_to_num(0.0)
        alone = [mixture.log_prob(known.masked_fill(other, float("nan")))[:, 0] for other in others]
        density = torch.stack(alone, dim=-1).where(~targets.isnan(), float("nan"))
        return Judgement.missing(targets)._replace(log_density=density, pit=pit)

    @torch.no_grad()
    def take_step(
        self,
        state: ParticleState,
        targets: Float[Tensor, "batch n_targets"],
        known: Float[Tensor, "batch known"],
        generator: Generator | StreamKeys | None,
        runs: Int[Tensor, "batch n_targets"] | None,
        distrust: Distrust | None,
        *,
        keeping: bool = False,
    ) -> tuple[PredictedRow, Bool[Tensor, "batch n_targets"] | None]:
        """A filter step, in place, for a row of each series, which is judged before it is seen if there are `runs`.

        Returns:
            What the particles said about the row (with `keeping`, in memory that later steps leave alone), and which
            values were denied and so treated as missing; None without `distrust`.
        """
        predicted = self.predict(state, known, targets, generator, judging=runs is not None)
        if keeping:
            copies = predicted.log_weights.clone(), predicted.parameters.clone()
            predicted = predicted._replace(log_weights=copies[0], parameters=copies[1])
        denied, judgement = None, predicted.judgement
        if runs is not None and judgement is not None and distrust is not None:
            judgement = judgement._replace(runs=distrust.runs(runs, judgement.pit))
            predicted = predicted._replace(judgement=judgement)
            denied = distrust.denies(judgement.runs) & ~targets.isnan()
            targets = targets.masked_fill(denied, float("nan"))
        self.observe(state, predicted.step, targets, generator)
        return predicted, denied

    @torch.no_grad()
    def take_steps(
        self,
        state: ParticleState,
        targets: Float[Tensor, "batch row n_targets"],
        known: Float[Tensor, "batch row known"],
        lengths: Sequence[int],
        generator: Generator | None,
        runs: Int[Tensor, "batch n_targets"] | None,
        distrust: Distrust | None,
        revise: Revise | None = None,
        *,
        keeping: bool = False,
    ) -> tuple[list[tuple[list[int], ParticleState]], list[Judgement]]:
        """`take_step` for each row of series side by side, of which the longest come first.

        `runs` are the lengths of the runs of values outside what is believed; without them no row is judged. How the
        later rows of a series are seen may depend on what was denied: `revise` tells it. With `keeping`, judgements
        hold the predicted distributions.

        Returns:
            The particles after the last rows, in parts with the numbers of their series, and the judgements.
        """
        whole, ended, kept = Judgement.missing(targets), [], []
        for row in range(lengths[0] + 1):
            n_going = sum(length > row for length in lengths)
            if n_going < len(state):
                ended.append((list(range(n_going, len(state))), state.take(slice(n_going, None))))
                state, generator = state.take(slice(0, n_going)), rows_of(generator, slice(0, n_going))
            if n_going == 0:
                break
            predicted, denied = self.take_step(
                state,
                targets[:n_going, row],
                known[:n_going, row],
                generator,
                None if runs is None else runs[:n_going],
                distrust,
                keeping=keeping,
            )
            if keeping:
                kept.append((predicted.log_weights, predicted.parameters))
            if runs is None or predicted.judgement is None:
                continue
            for all_rows, part in zip(whole[:3], predicted.judgement[:3], strict=True):
                all_rows[:n_going, row] = part
            if denied is not None:
                runs = predicted.judgement.runs
                if revise is not None:
                    for number in denied.any(dim=1).nonzero().flatten().tolist():
                        length = lengths[number]
                        targets[number, :length], known[number, :length] = revise(number, row, denied[number])
        judged = []
        for number, length in enumerate(lengths):
            density, pit, run = (part[number, :length] for part in whole[:3])
            judged.append(Judgement(density, pit, run, self._mixture(kept[:length], number)))
        return ended, judged

    def _mixture(self, kept: Sequence[tuple[Tensor, Tensor]], number: int) -> Mixture | None:
        """What was predicted of the rows of one series, from the weights and parameters of each step."""
        if not kept:
            return None
        log_weights = torch.stack([weights[number] for weights, _ in kept], dim=1)
        parameters = torch.stack([parts[number] for _, parts in kept], dim=1)
        return self.network.observation.mixture(log_weights.unsqueeze(0), parameters.unsqueeze(0))

    def filter_series(
        self,
        panel: Sequence[Float[Tensor, "_ n_inputs"]],
        generator: Generator | None,
        *,
        judging: bool = False,
        distrust: Distrust | None = None,
        revise: ReviseRows | None = None,
        keeping: bool = False,
    ) -> tuple[list[tuple[list[int], ParticleState]], list[Judgement]]:
        """Filter whole series from their first rows; the known inputs in a row are those of the next time.

        Returns:
            The particles after the last rows, in parts with the numbers of their series, and for each series the
            judgements of its rows from the second on (`Judgement.missing` without `judging`), which hold the predicted
            distributions with `keeping`. `revise` is asked for the
            rows of a series when some of a row's values are denied.
        """
        n_targets = self.network.config.n_targets

        def split(rows: Tensor) -> tuple[Tensor, Tensor]:
            return rows[..., 1:, :n_targets], rows[..., :-1, n_targets:]

        def revised(ask: ReviseRows, chosen: list[int], place: int, row: int, denied: Tensor) -> tuple[Tensor, Tensor]:
            return split(ask(chosen[place], row + 1, denied))

        parts, judgements, rest = [], {}, []
        for chosen in self._filtered_together(panel):
            x = torch.stack([panel[number] for number in chosen])
            state = None if judging or keeping else self._filter_whole(x, rows_of(generator, chosen))
            if state is None:
                rest += chosen
            else:
                judgements.update({number: Judgement.missing(panel[number][1:, :n_targets]) for number in chosen})
                parts.append((chosen, state))
        gappy = {number: bool(panel[number][:, :n_targets].isnan().any()) for number in rest}
        for has_gaps in (False, True):  # apart, as one gap costs its whole batch an encoder state for each particle
            order = sorted((number for number in rest if gappy[number] is has_gaps), key=lambda i: -len(panel[i]))
            for start in range(0, len(order), SERIES_AT_ONCE):
                chosen = order[start : start + SERIES_AT_ONCE]
                x = torch.nn.utils.rnn.pad_sequence([panel[i] for i in chosen], batch_first=True)
                targets, known = (part.clone() for part in split(x))
                lengths = [len(panel[i]) - 1 for i in chosen]
                runs = torch.zeros_like(x[:, 0, :n_targets], dtype=torch.long) if judging else None
                state = begin(self.network, x[:, 0], self.settings.n_particles)
                again = None if revise is None else partial(revised, revise, chosen)
                own = rows_of(generator, chosen)
                found, judged = self.take_steps(
                    state, targets, known, lengths, own, runs, distrust, again, keeping=keeping
                )
                parts += [([chosen[i] for i in numbers], state) for numbers, state in found]
                judgements.update(zip(chosen, judged, strict=True))
        return parts, [judgements[number] for number in range(len(panel))]

    def _filtered_together(self, panel: Sequence[Float[Tensor, "_ n_inputs"]]) -> Iterator[list[int]]:
        """The numbers of series that are equally long, and with or without gaps, in chunks of bounded memory."""
        alike: dict[tuple[int, bool], list[int]] = {}
        for number, rows in enumerate(panel):
            alike.setdefault((len(rows), bool(rows.isnan().any())), []).append(number)
        for (n_rows, _), numbers in alike.items():
            at_once = min(SERIES_AT_ONCE, chunk_size(NUMBERS_AT_ONCE // 4, filter_numbers(*self, n_rows)))
            if at_once > 1:  # a series goes to one thread, and another would wait for the last of an odd number
                at_once -= at_once % 2
            yield from (numbers[start : start + at_once] for start in range(0, len(numbers), at_once))

    @torch.no_grad()
    def _filter_whole(
        self, rows: Float[Tensor, "series _ n_inputs"], generator: Generator | None
    ) -> ParticleState | None:
        """Filter series in a single call, if there is a kernel for that and its memory is bounded.

        The particles remember as much as a stream's would.
        """
        config = self.network.config
        n_rows = rows.shape[1]
        if (
            n_rows == 1
            or config.window is None
            or filter_numbers(self.network, self.settings, n_rows) > NUMBERS_AT_ONCE
        ):
            return None
        if not engine.can_filter(self.network, self.settings, rows):
            return None
        whole = filter_state(self.network, rows, self.settings, generator, on_collapse="uniform")
        return whole.as_ring(config.window)


def meet_known(network: Network, state: ParticleState, known: Float[Tensor, "batch known"]) -> None:
    """Give the particles the known inputs of the next time."""
    targets = state.last[..., : network.config.n_targets]
    state.last = torch.cat((targets, known.unsqueeze(1).expand(-1, targets.shape[1], -1)), dim=-1)
