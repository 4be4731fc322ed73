"""Filtering many series: particles that stand after the last row of each, and go on from there row by row.

The moves are those of the model's filter (`population.py`). Between two rows a series is a population of its own
(batch 1); to take a step, series that stand at the same place are joined into one population and taken apart again.
The known inputs of the next time come with that time's row, so the particles wait for them: weighted by the last row,
not yet selected or moved.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.inference import engine
from smc_transformer.inference.filter import filter_population
from smc_transformer.inference.population import Population
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.attention import Noise

SERIES_AT_ONCE = 128
"""Series that are filtered together: bounds the memory."""

NUMBERS_AT_ONCE = 2**27
"""Numbers that the filter of a whole series may hold (512 MiB); longer series are filtered row by row."""


class Prediction(NamedTuple):
    """The distribution of the next targets: weights and parameters of the particles before the targets were seen."""

    log_weights: Float[Tensor, "batch particle"]
    parameters: Float[Tensor, "batch particle n_parameters"]


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


def begin(model: SMCTransformer, first: Float[Tensor, "batch n_inputs"], n_particles: int) -> Population:
    """The particles after the first rows, in which everything is observed."""
    state = model.encoder.start(model.observation.features(first))
    return Population(model, first.unsqueeze(1), n_particles, model.config.window or 16, state)


def meet_known(population: Population, known: Float[Tensor, "batch known"]) -> None:
    """Give the particles the known inputs of the next time."""
    n_targets = population.model.config.n_targets
    targets = population.last[..., :n_targets]
    population.last = torch.cat((targets, known.unsqueeze(1).expand(-1, targets.shape[1], -1)), dim=-1)


@torch.no_grad()
def foresee(
    population: Population,
    known: Float[Tensor, "batch known"],
    generator: Generator | None,
    noise: Noise | None = None,
) -> Prediction:
    """The first half of a step of the filter, in place: select, move, and predict.

    Args:
        population: the particles after the row before.
        known: inputs of this time that were known ahead.
        generator: source of randomness.
        noise: standard noise of the step; None draws it.

    Returns:
        The prediction of the targets of this time.
    """
    model = population.model
    meet_known(population, known)
    population.select(generator)
    if noise is None:
        noise = model.attention.draw_noise(len(known), population.n_particles, 1, generator).at(0)
    _, parameters = population.mutate(population.embed(), noise)
    return Prediction(population.log_weights, parameters)


@torch.no_grad()
def see(
    population: Population,
    prediction: Prediction,
    targets: Float[Tensor, "batch n_targets"],
    generator: Generator | None,
) -> None:
    """The second half of a step, in place: weight by what is observed, draw what is missing (NaN)."""
    observed = ~targets.isnan()
    # The known inputs of the next time are not known yet: zeros hold their place.
    n_inputs = population.last.shape[-1]
    x = torch.cat((targets, targets.new_zeros(len(targets), n_inputs - targets.shape[1])), dim=-1)
    # A row that no particle can explain must not end a stream: they go on as equals.
    population.absorb(prediction.parameters, x, None if observed.all() else observed, "uniform", generator)


def judged_step(
    population: Population,
    known: Float[Tensor, "batch known"],
    targets: Float[Tensor, "batch n_targets"],
    runs: Int[Tensor, "batch n_targets"],
    generator: Generator | None,
    distrust: Distrust | None = None,
) -> Judgement:
    """A step of the filter, in place, that judges what is observed before it is seen.

    Args:
        population: the particles after the row before.
        known: inputs of this time that were known ahead.
        targets: what is observed at this time; NaN is missing.
        runs: how many of the values before were outside what is believed, in a row.
        generator: source of randomness.
        distrust: which values are taken for missing; None: none.
    """
    prediction = foresee(population, known, generator)
    judgement = judge(population.model, prediction, targets, generator)
    if distrust is not None:
        judgement = judgement._replace(runs=distrust.runs(runs, judgement.pit))
        targets = targets.masked_fill(distrust.denies(judgement.runs), float("nan"))
    see(population, prediction, targets, generator)
    return judgement


@torch.no_grad()
def judge(
    model: SMCTransformer,
    prediction: Prediction,
    targets: Float[Tensor, "batch n_targets"],
    generator: Generator | None,
) -> Judgement:
    """How expected each target was."""
    mixture = model.observation.mixture(prediction.log_weights.unsqueeze(-1), prediction.parameters.unsqueeze(2))
    values = targets.unsqueeze(1)
    pit = mixture.pit(values, generator)[:, 0]
    alone = []
    for number in range(targets.shape[-1]):
        one = torch.full_like(values, float("nan"))  # the others are integrated out
        one[..., number] = values[..., number]
        alone.append(mixture.log_prob(one)[:, 0])
    density = torch.stack(alone, dim=-1).where(~targets.isnan(), float("nan"))
    return Judgement(density, pit, no_runs(targets))


def no_runs(like: Tensor) -> Int[Tensor, "..."]:
    """Runs of length 0, of this shape."""
    return torch.zeros_like(like, dtype=torch.long)


def filter_series(
    model: SMCTransformer,
    panel: Sequence[Float[Tensor, "_ n_inputs"]],
    n_particles: int,
    generator: Generator | None,
    *,
    judging: bool = False,
    distrust: Distrust | None = None,
) -> tuple[list[Population], list[Judgement]]:
    """Filter whole series from their first rows.

    Args:
        model: the model.
        panel: the rows of each series; the known inputs in a row are those of the next time.
        n_particles: particles of each.
        generator: source of randomness.
        judging: whether to judge the rows after the first.
        distrust: which of the values judged are taken for missing; None: none.

    Returns:
        For each series, the particles after its last row, and (if asked for) the judgements of its rows from the second
        on.
    """
    n_targets = model.config.n_targets
    gappy = [bool(rows[:, :n_targets].isnan().any()) for rows in panel]
    found: dict[int, tuple[Population, Judgement]] = {}
    rest = []
    for number, rows in enumerate(panel):
        if judging or not _can_filter_whole(model, rows, n_particles):
            rest.append(number)
        else:
            unjudged = rows.new_full((len(rows) - 1, n_targets), float("nan"))
            population = _filter_whole(model, rows, n_particles, generator)
            found[number] = (population, Judgement(unjudged, unjudged, no_runs(unjudged)))
    for has_gaps in (False, True):  # apart, as one gap costs its whole batch an encoder state for each particle
        # Longest first, so that the series that still go on are the first ones.
        order = sorted((i for i in rest if gappy[i] is has_gaps), key=lambda i: -len(panel[i]))
        for start in range(0, len(order), SERIES_AT_ONCE):
            chosen = order[start : start + SERIES_AT_ONCE]
            together = _filter_together(
                model, [panel[i] for i in chosen], n_particles, generator, judging=judging, distrust=distrust
            )
            found.update(zip(chosen, together, strict=True))
    return [found[i][0] for i in range(len(panel))], [found[i][1] for i in range(len(panel))]


@torch.no_grad()
def _can_filter_whole(model: SMCTransformer, rows: Float[Tensor, "_ n_inputs"], n_particles: int) -> bool:
    """Whether the kernel of whole sequences can be used, and its memory is bounded."""
    # Noise of four kinds, keys and values.
    held = 6 * n_particles * len(rows) * model.config.d_model
    return (
        len(rows) > 1 and model.config.window is not None and held <= NUMBERS_AT_ONCE and engine.can_filter(model, rows)
    )


def _filter_whole(
    model: SMCTransformer, rows: Float[Tensor, "_ n_inputs"], n_particles: int, generator: Generator | None
) -> Population:
    """Filter one series in a single call; its particles remember as much as a stream's would."""
    whole = filter_population(model, rows.unsqueeze(0), n_particles, generator, on_collapse="uniform")
    window = model.config.window
    assert window is not None
    # The slots that a ring of the window's length would hold, where it would hold them.
    slots = torch.arange(max(0, whole.n_slots - window), whole.n_slots)
    fields = {name: getattr(whole, name) for name in TENSORS}
    for name in ("trajectories", "keys", "values"):
        kept = fields[name]
        ring = kept.new_zeros(*kept.shape[:2], window, *kept.shape[3:])
        ring[:, :, slots % window] = kept[:, :, slots]
        fields[name] = ring
    return assemble(model, fields, whole.encoder_state, whole.position, whole.n_slots, whole.trajectories_are_own)


def _filter_together(
    model: SMCTransformer,
    panel: list[Float[Tensor, "_ n_inputs"]],
    n_particles: int,
    generator: Generator | None,
    *,
    judging: bool,
    distrust: Distrust | None,
) -> list[tuple[Population, Judgement]]:
    """Filter series, the longest first, side by side from their first rows."""
    n_targets = model.config.n_targets
    lengths = [len(rows) for rows in panel]
    x = torch.nn.utils.rnn.pad_sequence(panel, batch_first=True)
    unjudged = x.new_full((len(panel), lengths[0] - 1, n_targets), float("nan"))
    judgements = Judgement(unjudged, unjudged.clone(), no_runs(unjudged))
    runs = no_runs(x[:, 0, :n_targets])
    population = begin(model, x[:, 0], n_particles)
    ends: dict[int, Population] = {}
    for n_seen in range(1, lengths[0] + 1):
        n_going = sum(length >= n_seen for length in lengths)
        if n_going < len(population.last):
            population = part_of(population, slice(0, n_going))
        if n_seen > 1:
            targets = x[:n_going, n_seen - 1, :n_targets]
            known = x[:n_going, n_seen - 2, n_targets:]
            if judging:
                judgement = judged_step(population, known, targets, runs[:n_going], generator, distrust)
                runs = judgement.runs
                for whole, part in zip(judgements, judgement, strict=True):
                    whole[:n_going, n_seen - 2] = part
            else:
                see(population, foresee(population, known, generator), targets, generator)
        for number in range(n_going):
            if lengths[number] == n_seen:
                ends[number] = join([part_of(population, slice(number, number + 1))])
    return [
        (ends[number], Judgement(*(whole[number, : length - 1] for whole in judgements)))
        for number, length in enumerate(lengths)
    ]


def standing(population: Population) -> tuple[int, int, int, bool]:
    """What must agree for a join: position, slots used, room, and whether each particle has inputs of its own."""
    return population.position, population.n_slots, population.capacity, population.last.shape[1] > 1


def part_of(population: Population, chosen: slice) -> Population:
    """Some series of a population, in shared memory."""
    batch = len(population.last)
    fields = {name: getattr(population, name)[chosen] for name in TENSORS}
    state = tuple(tensor.unflatten(0, (batch, -1))[chosen].flatten(0, 1) for tensor in population.encoder_state)
    return assemble(
        population.model, fields, state, population.position, population.n_slots, population.trajectories_are_own
    )


def join(populations: Sequence[Population]) -> Population:
    """Populations that stand at the same place as one, in memory of its own."""
    first = populations[0]
    fields = {name: torch.cat([getattr(one, name) for one in populations]) for name in TENSORS}
    state = tuple(torch.cat(tensors) for tensors in zip(*(one.encoder_state for one in populations), strict=True))
    own = all(one.trajectories_are_own for one in populations)
    return assemble(first.model, fields, state, first.position, first.n_slots, own)


TENSORS = ("last", "log_weights", "informed", "trajectories", "keys", "values")
"""What a population holds for each of its series, beside the encoder's state."""


def assemble(
    model: SMCTransformer,
    tensors: dict[str, Tensor],
    encoder_state: tuple[Tensor, ...],
    position: int,
    n_slots: int,
    trajectories_are_own: bool,
) -> Population:
    """A population from its parts."""
    n_particles = tensors["log_weights"].shape[1]
    population = Population(model, tensors["last"], n_particles, 0, encoder_state)
    for name, tensor in tensors.items():
        setattr(population, name, tensor)
    population.position, population.n_slots, population.trajectories_are_own = position, n_slots, trajectories_are_own
    return population
