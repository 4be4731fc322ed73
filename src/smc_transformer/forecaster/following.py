"""Filtering many series: particles that stand after the last row of each, and go on from there row by row.

The steps are those of the model's filter (`inference/step.py`). The known inputs of the next time come with that time's
row, so the particles wait for them: weighted by the last row, not yet selected or moved.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.inference import engine
from smc_transformer.inference.filter import filter_state
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import Prediction, begin, observe_step, predict_step
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise

SERIES_AT_ONCE = 128
"""Series that are filtered together: bounds the memory."""

NUMBERS_AT_ONCE = 2**27
"""Numbers that the filter of a whole series may hold (512 MiB); longer series are filtered row by row."""


class Judgement(NamedTuple):
    """What the rows of a series meant to the model, before each was seen; NaN where nothing was observed.

    Attributes:
        log_density: of each target alone, in the model's units.
        pit: P(X <= x) of each target: near 0 or 1 is a surprise.
        runs: how many values in a row, up to this one, were outside what is believed (`Distrust`).
    """

    log_density: Float[Tensor, "*row target"]
    pit: Float[Tensor, "*row target"]
    runs: Int[Tensor, "*row target"]


class Follower(NamedTuple):
    """A network, and how its particles follow series."""

    network: Network
    settings: InferenceSettings

    def begin(self, first: Float[Tensor, "batch n_inputs"]) -> ParticleState:
        """The particles after the first rows, in which everything is observed."""
        return begin(self.network, first, self.settings.n_particles)

    @torch.no_grad()
    def predict(
        self,
        state: ParticleState,
        known: Float[Tensor, "batch known"],
        generator: Generator | None,
        noise: Noise | None = None,
    ) -> Prediction:
        """The first half of a step, in place: `known` are inputs of this time that were known ahead."""
        meet_known(self.network, state, known)
        return predict_step(self.network, self.settings, state, generator, noise)

    @torch.no_grad()
    def observe(
        self,
        state: ParticleState,
        prediction: Prediction,
        targets: Float[Tensor, "batch n_targets"],
        generator: Generator | None,
    ) -> None:
        """The second half, in place: weight by what is observed, draw what is missing (NaN)."""
        # The known inputs of the next time are not known yet: zeros hold their place.
        n_inputs = state.last.shape[-1]
        x = torch.cat((targets, targets.new_zeros(len(targets), n_inputs - targets.shape[1])), dim=-1)
        # A row that no particle can explain must not end a stream: the weights are reset to equal.
        observe_step(self.network, self.settings, state, prediction, x, generator, on_collapse="uniform")

    def judged_step(
        self,
        state: ParticleState,
        known: Float[Tensor, "batch known"],
        targets: Float[Tensor, "batch n_targets"],
        runs: Int[Tensor, "batch n_targets"],
        generator: Generator | None,
        distrust: Distrust | None = None,
    ) -> Judgement:
        """A step of the filter, in place, that judges what is observed before it is seen.

        Args:
            state: the particles after the row before.
            known: inputs of this time that were known ahead.
            targets: what is observed at this time; NaN is missing.
            runs: how many of the values before were outside what is believed, in a row.
            generator: source of randomness.
            distrust: which values are taken for missing; None: none.
        """
        prediction = self.predict(state, known, generator)
        judgement = self.judge(prediction, targets, generator)
        if distrust is not None:
            judgement = judgement._replace(runs=distrust.runs(runs, judgement.pit))
            targets = targets.masked_fill(distrust.denies(judgement.runs), float("nan"))
        self.observe(state, prediction, targets, generator)
        return judgement

    @torch.no_grad()
    def judge(
        self, prediction: Prediction, targets: Float[Tensor, "batch n_targets"], generator: Generator | None
    ) -> Judgement:
        """How expected each target was."""
        mixture = self.network.observation.mixture(
            prediction.log_weights.unsqueeze(-1), prediction.parameters.unsqueeze(2)
        )
        values = targets.unsqueeze(1)
        pit = mixture.pit(values, generator)[:, 0]
        alone = []
        for number in range(targets.shape[-1]):
            one = torch.full_like(values, float("nan"))  # the others are integrated out
            one[..., number] = values[..., number]
            alone.append(mixture.log_prob(one)[:, 0])
        density = torch.stack(alone, dim=-1).where(~targets.isnan(), float("nan"))
        return Judgement(density, pit, no_runs(targets))

    def filter_series(
        self,
        panel: Sequence[Float[Tensor, "_ n_inputs"]],
        generator: Generator | None,
        *,
        judging: bool = False,
        distrust: Distrust | None = None,
    ) -> tuple[list[tuple[list[int], ParticleState]], list[Judgement]]:
        """Filter whole series from their first rows.

        Args:
            panel: the rows of each series; the known inputs in a row are those of the next time.
            generator: source of randomness.
            judging: whether to judge the rows after the first.
            distrust: which of the values judged are taken for missing; None: none.

        Returns:
            The particles after the last rows, in parts with the numbers of their series, and for each series the
            judgements of its rows from the second on (NaN if they were not asked for).
        """
        n_targets = self.network.config.n_targets
        parts, judgements, rest = [], {}, []
        for number, rows in enumerate(panel):
            if judging or not self._can_filter_whole(rows):
                rest.append(number)
                continue
            unjudged = rows.new_full((len(rows) - 1, n_targets), float("nan"))
            judgements[number] = Judgement(unjudged, unjudged, no_runs(unjudged))
            parts.append(([number], self._filter_whole(rows, generator)))
        gappy = {number: bool(panel[number][:, :n_targets].isnan().any()) for number in rest}
        for has_gaps in (False, True):  # apart, as one gap costs its whole batch an encoder state for each particle
            # Longest first, so that the series that still go on are the first ones.
            order = sorted((number for number in rest if gappy[number] is has_gaps), key=lambda i: -len(panel[i]))
            for start in range(0, len(order), SERIES_AT_ONCE):
                chosen = order[start : start + SERIES_AT_ONCE]
                found, judged = self._filter_together([panel[i] for i in chosen], generator, judging, distrust)
                parts += [([chosen[i] for i in numbers], state) for numbers, state in found]
                judgements.update(zip(chosen, judged, strict=True))
        return parts, [judgements[number] for number in range(len(panel))]

    @torch.no_grad()
    def _can_filter_whole(self, rows: Float[Tensor, "_ n_inputs"]) -> bool:
        """Whether the kernel of whole sequences can be used, and its memory is bounded."""
        config = self.network.config
        held = 6 * self.settings.n_particles * len(rows) * config.d_model  # noise of four kinds, keys and values
        return (
            len(rows) > 1
            and config.window is not None
            and held <= NUMBERS_AT_ONCE
            and engine.can_filter(self.network, self.settings, rows)
        )

    def _filter_whole(self, rows: Float[Tensor, "_ n_inputs"], generator: Generator | None) -> ParticleState:
        """Filter one series in a single call; its particles remember as much as a stream's would."""
        whole = filter_state(self.network, rows.unsqueeze(0), self.settings, generator, on_collapse="uniform")
        assert self.network.config.window is not None
        return whole.as_ring(self.network.config.window)

    def _filter_together(
        self,
        panel: list[Float[Tensor, "_ n_inputs"]],
        generator: Generator | None,
        judging: bool,
        distrust: Distrust | None,
    ) -> tuple[list[tuple[list[int], ParticleState]], list[Judgement]]:
        """Filter series, the longest first, side by side from their first rows."""
        n_targets = self.network.config.n_targets
        lengths = [len(rows) for rows in panel]
        x = torch.nn.utils.rnn.pad_sequence(panel, batch_first=True)
        unjudged = x.new_full((len(panel), lengths[0] - 1, n_targets), float("nan"))
        judgements = Judgement(unjudged, unjudged.clone(), no_runs(unjudged))
        runs = no_runs(x[:, 0, :n_targets])
        state, ended = self.begin(x[:, 0]), []
        for n_seen in range(1, lengths[0] + 1):
            n_going = len(state)
            if n_seen > 1:
                targets = x[:n_going, n_seen - 1, :n_targets]
                known = x[:n_going, n_seen - 2, n_targets:]
                if judging:
                    judgement = self.judged_step(state, known, targets, runs[:n_going], generator, distrust)
                    runs = judgement.runs
                    for whole, part in zip(judgements, judgement, strict=True):
                        whole[:n_going, n_seen - 2] = part
                else:
                    self.observe(state, self.predict(state, known, generator), targets, generator)
            n_after = sum(length > n_seen for length in lengths)
            if n_after < n_going:
                ended.append((list(range(n_after, n_going)), state.take(torch.arange(n_after, n_going))))
                state = state.take(slice(0, n_after))
        judged = [
            Judgement(*(whole[number, : length - 1] for whole in judgements)) for number, length in enumerate(lengths)
        ]
        return ended, judged


def meet_known(network: Network, state: ParticleState, known: Float[Tensor, "batch known"]) -> None:
    """Give the particles the known inputs of the next time."""
    targets = state.last[..., : network.config.n_targets]
    state.last = torch.cat((targets, known.unsqueeze(1).expand(-1, targets.shape[1], -1)), dim=-1)


def no_runs(like: Tensor) -> Int[Tensor, "..."]:
    """Runs of length 0, of this shape."""
    return torch.zeros_like(like, dtype=torch.long)
