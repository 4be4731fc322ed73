"""The filter over whole sequences: the kernel finds what torch finds, under the same noise and random numbers."""

import pytest
import torch
from helpers.agreement import (
    EXTREMES,
    MASKED,
    OPTIONS,
    POSITION_ENCODINGS,
    assert_same,
    assert_same_filter,
    both,
    largest_number,
    parts,
    random_case,
    random_model,
    run_filter,
    seeded,
)
from helpers.models import sequences
from helpers.user_modules import (
    BoundedObservation,
    DampedObservation,
    LaplaceObservation,
    MirroredObservation,
    OwnReadout,
    ShiftedTwiceObservation,
    SoftplusObservation,
    SteeperReadout,
    WiderObservation,
)

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference import compiled
from smc_transformer.inference.filter import filter_state, particle_filter
from smc_transformer.inference.step import predict_step
from smc_transformer.kernels import disabled
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.observation import GaussianObservation
from smc_transformer.nn.readout import TransformerReadout
from smc_transformer.smc import WeightCollapseError, gather_trajectories
from smc_transformer.smc.selection import select

NAN, INFINITY = float("nan"), float("inf")
CASES = [random_case(seed) for seed in range(100)]
SINGLE_CASES = [random_case(seed) for seed in range(1000, 1060)]
WHOLE = {"particle_filter": 1}


def of_filter(calls):
    """The calls without those of a GRU's embeddings, which C makes before the filter."""
    return {name: count for name, count in calls.items() if name != "encode_trees"}


SCHEMES = OPTIONS["resampling"]


def make_noise(model, batch, n_particles, n_steps, seed=1):
    return model.attention.draw_noise(batch, n_particles, n_steps, seeded(seed))


# --- the same numbers ---------------------------------------------------------------------------------------


def test_the_cases_have_every_option_and_the_extreme_sizes():
    for name, values in OPTIONS.items():
        assert {case.settings[name] for case in CASES} == set(values), name
    assert {case.settings.get("position_encoding") for case in CASES} == set(POSITION_ENCODINGS)
    for name, values in EXTREMES.items():
        assert {getattr(case, name) for case in CASES} >= set(values), name
    scaled = [case for case in CASES if case.settings["observation"] != "gaussian"]
    assert {(case.settings["observation"], case.training) for case in scaled} == {
        (distribution, training) for distribution in ("heteroscedastic", "student_t") for training in (False, True)
    }
    assert {case.settings["n_heads"] for case in CASES} >= {1, 2, 4, 5, 8, 11}
    assert any(case.settings["n_inputs"] > case.settings["n_targets"] > 1 for case in CASES)
    assert all(case.settings["d_ff"] != case.settings["d_model"] for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_filter_finds_what_torch_finds(case, calls):
    assert_same_filter(case.model(), case.sequences(), case.noise())
    assert of_filter(calls) == WHOLE


def test_the_filter_finds_what_torch_finds_in_float32(calls):
    """Compared until a uniform falls between two roundings of a boundary, and a particle gets another parent.

    After that two float32 filters may well go different ways. It should happen about once in 2 M^2 times the
    rounding of the weights (1e-6 at most), and does not happen at all to most of these cases.
    """
    epsilon = torch.finfo(torch.float32).eps
    # Rounding of a location, and what becomes of it in densities: |residual| / variance <= 50, over many steps.
    allowed = dict.fromkeys(("parameters", "attention"), 50 * epsilon)
    allowed |= dict.fromkeys(("log_increments", "log_weights", "prior_log_weights"), 2500 * epsilon)
    n_steps, n_compared = 0, 0
    for case in SINGLE_CASES:
        model, x, noise = case.model().float(), case.sequences().float(), case.noise(torch.float32)
        (result, _), (expected, _) = both(lambda: run_filter(model, x, noise))  # noqa: B023
        found, wanted = parts(result), parts(expected)
        same = (found["ancestors"] == wanted["ancestors"]).all(dim=1) & (found["resampled"] == wanted["resampled"])
        before = same.cumprod(dim=1).bool()
        n_steps, n_compared = n_steps + before.numel(), n_compared + int(before.sum())
        for name, rounding in allowed.items():
            one, other = (
                values if values.ndim == 2 else values.transpose(1, 2) for values in (found[name], wanted[name])
            )
            assert_same(one[before], other[before], rounding, f"{case}: {name}", largest_number(wanted, name))
    assert of_filter(calls) == {"particle_filter": len(SINGLE_CASES)}
    assert n_compared > 0.97 * n_steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_threads_finds_the_same_to_the_bit(dtype, calls, set_threads):
    model = random_model(d_model=8, d_ff=5, window=4, n_heads=2, ess_threshold=0.5).to(dtype)
    x = sequences(7, 15).to(dtype)
    noise = Noise(*torch.randn(4, 7, 10, 15, 8, generator=seeded(1), dtype=dtype))
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        found.append(parts(run_filter(model, x, noise)[0]))
    for name, expected in found[0].items():
        assert torch.equal(found[1][name], expected), name
        assert torch.equal(found[2][name], expected), name
    assert of_filter(calls) == {"particle_filter": 3}
    assert calls.threads == {1, 2, 3}


def test_sequences_and_noise_may_lie_in_memory_as_they_like(calls):
    model = random_model(n_inputs=3, n_targets=2, d_model=4, d_ff=5, predict_change=True)
    x, noise = sequences(3, 9, 3), make_noise(model, 3, 6, 9)
    expected = assert_same_filter(model, x, noise)
    scattered = Noise(*(eps.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0) for eps in noise))
    assert not scattered.query.is_contiguous()
    one_unlike_the_others = noise._replace(value=noise.value.mT.contiguous().mT)
    for other in (scattered, one_unlike_the_others):
        result = assert_same_filter(model, x.mT.contiguous().mT, other)
        assert_same(result.log_increments, expected.log_increments)
    assert of_filter(calls) == {"particle_filter": 3}


def test_attention_is_left_out_unless_it_is_asked_for(calls):
    model = random_model(d_model=4, d_ff=5)
    x, noise = sequences(3, 9), make_noise(model, 3, 6, 9)
    result = particle_filter(model, x, model.settings(6), seeded(2), noise=noise)
    assert result.attention is None
    expected, _ = run_filter(model, x, noise)
    assert torch.equal(result.log_weights, expected.log_weights)
    assert of_filter(calls) == {"particle_filter": 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_and_densities_far_from_zero_neither_overflow_nor_vanish(dtype, calls):
    """Softmax and weights are those of differences: exponentials of scores or densities alone would overflow."""
    model = random_model(d_model=5, d_ff=4, n_heads=5, initial_observation_variance=1e-4).to(dtype)
    with torch.no_grad():
        model.attention.key.weight.mul_(1000)
    x, noise = sequences(3, 20).to(dtype), Noise(*torch.randn(4, 3, 12, 20, 5, generator=seeded(1)).to(dtype))
    result = assert_same_filter(model, x, noise, rounding=1e-10 if dtype == torch.float64 else 1e-3)
    latents = model.attention.latents(model.encoder(x[:, :-1]).unsqueeze(1), noise)
    assert (latents.query * latents.key).max() > 2000  # exp of it is infinite in both types
    assert (result.log_increments < -1000).any()  # exp of it is zero in both types
    assert result.log_increments.isfinite().all()
    assert of_filter(calls) == WHOLE


def assert_parents_are_drawn_as_torch_draws_them(model, result, seed):
    """Given the kernel's own weights, torch's selection draws the same parents: whatever rounding did before."""
    generator = seeded(seed)
    scheme, ess_threshold = model.inference.resample, model.inference.ess_threshold
    for step in range(1, result.ancestors.shape[-1]):
        weights = result.log_weights[:, :, step - 1]
        with disabled():
            selection = select(weights, scheme, ess_threshold=ess_threshold, generator=generator)
        assert torch.equal(result.resampled[:, step], selection.resampled)
        assert torch.equal(result.ancestors[:, :, step], selection.ancestors)
        assert_same(result.predictive.log_weights[:, :, step], selection.log_weights, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("resampling", SCHEMES)
@pytest.mark.parametrize("ess_threshold", [0.4, 1.0])
def test_parents_are_drawn_as_torch_draws_them(resampling, dtype, ess_threshold, calls):
    model = random_model(d_model=4, d_ff=5, resampling=resampling, ess_threshold=ess_threshold).to(dtype)
    for n_particles in (1, 2, 13, 40):
        x, noise = sequences(4, 20).to(dtype), Noise(*torch.randn(4, 4, n_particles, 20, 4, generator=seeded(1)))
        result, _ = run_filter(model, x, Noise(*(eps.to(dtype) for eps in noise)), seed=3)
        assert_parents_are_drawn_as_torch_draws_them(model, result, seed=3)
    assert of_filter(calls) == {"particle_filter": 4}


@pytest.mark.parametrize("resampling", SCHEMES)
@pytest.mark.parametrize("n_particles", [1, 2, 13, 49])
def test_particles_that_are_all_alike_have_equal_weights_and_chances(resampling, n_particles, calls):
    """Without latent noise n W is a whole number for all of them, where rounding could add or lose a copy.

    Torch's own filter is no reference here: its products of matrices round equal rows differently.
    """
    model = random_model(d_model=3, d_ff=4, resampling=resampling, initial_latent_variance=0.0)
    result, _ = run_filter(model, sequences(4, 12), make_noise(model, 4, n_particles, 12), seed=3)
    assert (result.log_weights == result.log_weights[:, :1]).all()
    assert (result.log_weights.exp() * n_particles - 1).abs().max() < 1e-9
    assert_parents_are_drawn_as_torch_draws_them(model, result, seed=3)
    assert of_filter(calls) == WHOLE


@pytest.mark.parametrize("ess_threshold", [0.1, 0.3, 0.6, 0.9])
def test_sequences_are_resampled_when_torch_would(ess_threshold, calls):
    model = random_model(d_model=4, d_ff=5, ess_threshold=ess_threshold, initial_observation_variance=1.0)
    result = assert_same_filter(model, sequences(6, 25), make_noise(model, 6, 20, 25))
    assert result.resampled[:, 1:].any()
    assert not result.resampled[:, 1:].all()
    assert of_filter(calls) == WHOLE


# --- what the kernel leaves to torch ------------------------------------------------------------------------


def assert_goes_step_by_step(model, x, calls, n_particles=7):
    """The whole-sequence kernel is not asked, the kernel of one step does every step, and torch agrees."""
    n_steps = x.shape[1] - 1
    result = assert_same_filter(model, x, make_noise(model, len(x), n_particles, n_steps))
    assert of_filter(calls) == {"mutate_particles": n_steps, "inherit_trajectories": n_steps - 1}
    return result


def gappy(encoder, observation, window, **settings):
    model = random_model(
        n_inputs=3,
        n_targets=2,
        d_model=6,
        d_ff=5,
        n_heads=2,
        encoder=encoder,
        observation=observation,
        window=window,
        predict_change=True,
        ess_threshold=0.7,
        **settings,
    )
    x = sequences(3, 14, 3)
    x[:, 4, :2] = NAN
    x[1, 7:10, 0] = NAN
    return model, x


@pytest.mark.parametrize("encoder", ["transformer", "lstm", "convolution"])
@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic", "student_t"])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_gaps_of_other_encoders(encoder, observation, window, calls):
    result = assert_goes_step_by_step(*gappy(encoder, observation, window), calls)
    assert result.completed is not None
    assert result.resampled[:, 5:].any()


@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic", "student_t"])
@pytest.mark.parametrize(("encoder", "changes"), [("linear", False), ("linear", True), ("gru", False), ("gru", True)])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_gaps(encoder, changes, observation, window, calls):
    model, x = gappy(encoder, observation, window, input_changes=changes)
    noise = make_noise(model, 3, 11, 14)
    result = assert_same_filter(model, x, noise, rounding=MASKED)
    assert result.resampled[:, 5:].any()
    assert of_filter(calls) == WHOLE
    state, expected = both(lambda: filter_state(model, x, model.settings(11), seeded(2), noise=noise))
    assert_same(state.last, expected.last, MASKED)
    assert len(state.encoder_state) == len(expected.encoder_state)
    for one, other in zip(state.encoder_state, expected.encoder_state, strict=True):
        assert_same(one, other, MASKED)
    predictions = (predict_step(model, model.settings(11), one, seeded(3)) for one in (state, expected))
    assert_same(*(prediction.parameters for prediction in predictions), MASKED)


GAPPY = [random_case(seed) for seed in range(2000, 2040)]


@pytest.mark.parametrize("case", GAPPY, ids=str)
def test_gaps_anywhere_but_in_the_first_row(case, calls):
    """Whole rows and single targets of all shares, up to sequences that are never observed again."""
    case.settings["encoder"] = ("linear", "gru")[case.seed % 2]
    if case.settings["encoder"] == "gru":
        case.settings.pop("position_encoding", None)
    model, x = case.model().eval(), case.sequences()  # scales are bounded then, and draws do not explode
    targets = x[:, 1:, : case.settings["n_targets"]]
    share = (0.1, 0.5, 1.0)[case.seed % 3]
    targets[torch.rand(targets.shape, generator=seeded(case.seed)) < share] = NAN
    assert_same_filter(model, x, case.noise(), rounding=MASKED)
    assert of_filter(calls) == WHOLE


def test_a_gap_leaves_the_other_sequences_alone(calls):
    model, x = gappy("gru", "student_t", 3)
    noise = make_noise(model, 3, 9, 14)
    whole = torch.where(x.isnan(), 0.5, x)
    alone = whole.clone()
    alone[1, 5, :2] = NAN
    result, expected = run_filter(model, alone, noise)[0], run_filter(model, whole, noise)[0]
    assert torch.equal(result.log_increments[1, :4], expected.log_increments[1, :4])
    assert result.log_increments[1, 4] == 0
    assert not torch.equal(result.log_increments[1, 5:], expected.log_increments[1, 5:])
    assert of_filter(calls) == {"particle_filter": 2}


def drawn(model, x, n_particles):
    """What a filter of these sequences draws for its selection and for gaps."""
    form, size = model.observation.kernel_form(), (x.shape[1] - 1, len(x), n_particles)
    gaps = compiled.room_for_gaps(model, form, x, n_particles)
    return gaps, compiled.draw_numbers(model.settings(n_particles), form, size, gaps, seeded(3))


def test_numbers_are_drawn_for_gaps_alone_and_from_their_own_distributions():
    """The gammas have mean and variance (degrees + observed targets) / 2: 2 or 2.5."""
    model, x = gappy("gru", "student_t", 3)
    model.observation.set_degrees_(4.0)
    gaps, uniforms = drawn(model, x, 4000)
    missing = ~gaps.observed.all(dim=2)
    gammas, normals = gaps.gamma.transpose(1, 2), gaps.normal.transpose(1, 2)
    assert missing.sum() == 3 + 3
    assert not gammas[~missing].any()
    assert not normals[~missing].any()
    shapes = (4 + gaps.observed.sum(dim=2)[missing]) / 2
    assert sorted(shapes.unique().tolist()) == [2.0, 2.5]
    torch.testing.assert_close(gammas[missing].mean(dim=1), shapes.double(), atol=0.1, rtol=0)
    torch.testing.assert_close(gammas[missing].var(dim=1), shapes.double(), atol=0.25, rtol=0)
    assert normals[missing].mean(dim=1).abs().max() < 0.1
    assert (normals[missing].var(dim=1) - 1).abs().max() < 0.1
    again, _ = drawn(model, x, 4000)
    assert torch.equal(again.gamma, gaps.gamma)
    assert torch.equal(again.normal, gaps.normal)
    assert torch.equal(uniforms, drawn(model, x.nan_to_num(0.0), 4000)[1])  # those of complete sequences


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("resampling", SCHEMES)
def test_counts(covariance, resampling, calls):
    model = random_model(
        d_model=9,
        d_ff=4,
        n_heads=3,
        observation="negative_binomial",
        covariance=covariance,
        resampling=resampling,
        predict_change=True,
    )
    assert_same_filter(model, sequences(3, 12).abs().mul(3).round(), make_noise(model, 3, 7, 12))
    assert of_filter(calls) == WHOLE


def test_counts_with_gaps_go_step_by_step(calls):
    model, x = random_model(d_model=4, d_ff=5, observation="negative_binomial"), sequences(3, 12).abs().mul(3).round()
    x[1, 4] = NAN
    assert_goes_step_by_step(model, x, calls)


@pytest.mark.parametrize("readout", ["transformer", "linear"])
def test_classes(readout, calls):
    model = random_model(d_model=9, d_ff=4, observation="categorical", n_classes=4, readout=readout, window=5)
    assert_same_filter(model, sequences(3, 12).abs().mul(2).floor().clamp(max=3), make_noise(model, 3, 7, 12))
    assert of_filter(calls) == WHOLE


@pytest.mark.parametrize("readout", [OwnReadout, SteeperReadout])
def test_a_read_out_of_ones_own(readout, calls):
    """Its attention vectors come from C, and torch reads them out: also where it only bends a known read-out."""
    model = random_model(d_model=5, d_ff=4, predict_change=True)
    x = sequences(3, 12)
    before = particle_filter(model, x, model.settings(7), seeded(2), noise=make_noise(model, 3, 7, 12))
    calls.clear()
    known, model.readout = model.readout, readout(5, 4, 1).double()
    if isinstance(model.readout, TransformerReadout):
        model.readout.load_state_dict(known.state_dict())
    result = assert_goes_step_by_step(model, x, calls)
    assert not torch.allclose(result.log_increments, before.log_increments)


def with_distribution(distribution, **settings):
    """A model with an observation model of one's own, and one that differs in its class alone."""
    config = SMCTransformerConfig(d_model=5, d_ff=4, n_inputs=2, n_targets=2, **settings)
    own, known = (
        distribution(2),
        next(base for base in distribution.__mro__ if base.__module__.startswith("smc_transformer"))(2),
    )
    return tuple(SMCTransformer(config, generator=0, observation=one).double() for one in (own, known))


@pytest.mark.parametrize(
    ("distribution", "settings"),
    [
        (LaplaceObservation, {}),
        (WiderObservation, {}),
        (ShiftedTwiceObservation, {"predict_change": True}),
        (SoftplusObservation, {}),
    ],
)
def test_a_distribution_that_changes_the_density_of_a_known_one_is_not_taken_for_it(distribution, settings, calls):
    own, known = with_distribution(distribution, **settings)
    x = sequences(3, 12, 2)
    result = assert_goes_step_by_step(own, x, calls)
    calls.clear()
    other = assert_same_filter(known, x, make_noise(known, 3, 7, 12))
    assert of_filter(calls) == WHOLE
    # Else nothing would have been noticed if the one had been run as the other.
    assert (result.log_increments - other.log_increments).abs().max() > 0.01


@pytest.mark.parametrize("distribution", [MirroredObservation, BoundedObservation])
def test_a_distribution_that_says_how_the_kernel_should_see_it_is_run_by_the_kernel(distribution, calls):
    own, known = with_distribution(distribution)
    x = sequences(3, 12, 2)
    result = assert_same_filter(own, x, make_noise(own, 3, 7, 12))
    other = assert_same_filter(known, x, make_noise(known, 3, 7, 12))
    assert of_filter(calls) == {"particle_filter": 2}
    assert (result.log_increments - other.log_increments).abs().max() > 0.01


def test_a_shift_of_ones_own_is_not_overlooked_where_the_kernel_knows_the_density(calls):
    """The kernel of whole sequences adds the last targets itself: it must not where `shift` does something else."""

    class MovedObservation(DampedObservation):
        def kernel_form(self):
            return GaussianObservation.kernel_form(self)

    own, known = with_distribution(MovedObservation, predict_change=True)
    x = sequences(3, 12, 2)
    result = assert_goes_step_by_step(own, x, calls)
    other = assert_same_filter(known, x, make_noise(known, 3, 7, 12))
    assert (result.log_increments - other.log_increments).abs().max() > 0.01


def test_a_distribution_that_does_not_say_how_the_kernel_should_see_it_goes_step_by_step(calls):
    """Even if it changes nothing: what it may have changed cannot be known."""

    class RenamedObservation(GaussianObservation):
        pass

    own, _ = with_distribution(RenamedObservation)
    assert_goes_step_by_step(own, sequences(3, 12, 2), calls)


# --- parts that were changed after the model was made -------------------------------------------------------


def test_another_activation_in_the_read_out_is_not_overlooked(calls):
    model = random_model(d_model=5, d_ff=4)
    model.readout.feed_forward[1] = torch.nn.GELU()
    assert_same_filter(model, sequences(3, 12), make_noise(model, 3, 7, 12))


def test_noise_of_another_type_is_not_misread(calls):
    """Torch promotes it. It has room behind it, so that a kernel that takes it for float64 reads no foreign memory."""
    model = random_model(d_model=5, d_ff=4)
    noise = Noise(*torch.randn(8, 3, 7, 12, 5, generator=seeded(1), dtype=torch.float32)[:4])
    assert_same_filter(model, sequences(3, 12), noise, rounding=1e-5)


def test_weights_may_lie_in_memory_as_they_like(calls):
    model = random_model(d_model=5, d_ff=4)
    x, noise = sequences(3, 12), make_noise(model, 3, 7, 12)
    expected, _ = run_filter(model, x, noise)
    for part in model.modules():
        if isinstance(part, torch.nn.Linear):
            part.weight = torch.nn.Parameter(part.weight.detach().T.contiguous().T)
    assert not model.attention.output.weight.is_contiguous()
    result = assert_same_filter(model, x, noise)
    assert_same(result.log_increments, expected.log_increments)


# --- the state at the end ------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 1, 2, 5, 12, 13, 50])
@pytest.mark.parametrize("ess_threshold", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("encoder", ["linear", "gru"])
def test_the_particles_at_the_end_is_that_of_torch(window, ess_threshold, encoder, calls):
    model = random_model(
        n_inputs=3,
        n_targets=2,
        d_model=6,
        d_ff=5,
        window=window,
        ess_threshold=ess_threshold,
        encoder=encoder,
        initial_observation_variance=0.2,
    )
    x, noise = sequences(3, 12, 3), make_noise(model, 3, 9, 12)
    state, expected = both(lambda: filter_state(model, x, model.settings(9), seeded(2), noise=noise))
    assert of_filter(calls) == WHOLE
    assert state.layout == expected.layout
    for name in ("log_weights", "informed", "last", "keys", "values", "position", "n_slots"):
        assert_same(getattr(state, name), getattr(expected, name), name=name)
    assert len(state.encoder_state) == len(expected.encoder_state)
    for one, other in zip(state.encoder_state, expected.encoder_state, strict=True):
        assert_same(one, other, name="encoder_state")
    # What the next step sees: trajectories are inherited as far back as the window reaches.
    seen = slice(model.attention.first_slot(12), 12)
    assert_same(state.trajectories[:, :, seen], expected.trajectories[:, :, seen], name="trajectories")
    for name in ("keys", "values"):
        one, other = (
            gather_trajectories(getattr(end, name)[:, :, seen], end.trajectories[:, :, seen])
            for end in (state, expected)
        )
        assert_same(one, other, name=f"{name} through trajectories")
    moved = state.trajectories[:, :, seen] != torch.arange(9).view(1, -1, 1)
    assert moved.any().item() == (ess_threshold > 0 and window not in (1, 2))


@pytest.mark.parametrize("window", [None, 3])
def test_a_state_goes_on_where_the_kernel_left_it(window, calls):
    """One more step by the kernel of one step, and by torch, from where the kernel of whole sequences stopped."""
    model = random_model(d_model=6, d_ff=5, window=window)
    x, noise = sequences(3, 12), make_noise(model, 3, 9, 13)
    first = Noise(*(eps[:, :, :12] for eps in noise))

    @torch.no_grad()
    def one_more():
        state = filter_state(model, x, model.settings(9), seeded(2), noise=first)
        return predict_step(model, model.inference, state, seeded(3), noise.at(12)).moved

    moved, expected = both(one_more)
    assert_same(moved.z, expected.z)
    assert_same(moved.parameters, expected.parameters)
    assert of_filter(calls) == {"particle_filter": 1, "inherit_trajectories": 1, "mutate_particles": 1}


# --- weights that collapse ----------------------------------------------------------------------------------


def collapse(model, x, noise, seed=2):
    with pytest.raises(WeightCollapseError) as caught:
        run_filter(model, x, noise, seed)
    return caught.value.sequence, caught.value.step


@pytest.mark.parametrize(
    "outliers",
    [
        {(2, 7): 1e200},
        {(3, 9): 1e200, (1, 4): -1e200},
        {(3, 4): 1e200, (1, 4): 1e200, (0, 11): 1e200},
        {(0, 1): 1e200},
        {(3, 12): 1e200},
    ],
)
@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic"])
def test_a_collapse_is_reported_at_the_same_sequence_and_step(outliers, observation, calls):
    model = random_model(d_model=4, d_ff=5, observation=observation)
    x, noise = sequences(4, 12), make_noise(model, 4, 6, 12)
    for (sequence, step), value in outliers.items():
        x[sequence, step] = value
    place, expected = both(lambda: collapse(model, x, noise))
    first = min(outliers, key=lambda place: (place[1], place[0]))
    assert place == expected == first
    assert of_filter(calls) == WHOLE


@pytest.mark.parametrize("ess_threshold", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("resampling", SCHEMES)
def test_a_collapse_may_be_passed_over_with_equal_weights(ess_threshold, resampling, calls):
    """The read-out is linear in what was seen, so that the outlier also collapses the steps that remember it."""
    model = random_model(
        d_model=4, d_ff=5, window=2, resampling=resampling, ess_threshold=ess_threshold, readout="linear"
    )
    x, noise = sequences(4, 12), make_noise(model, 4, 6, 12)
    x[2, 5], x[1, 9] = 1e200, 1e200
    result = assert_same_filter(model, x, noise, on_collapse="uniform")
    assert of_filter(calls) == WHOLE
    assert (result.log_increments == -INFINITY).sum() >= 2
    assert (result.log_increments[[2, 1], [4, 8]] == -INFINITY).all()
    torch.testing.assert_close(result.log_weights[2, :, 4].exp(), torch.full((6,), 1 / 6).double())
    assert result.log_increments[0].isfinite().all()


def parameters_to_break(model):
    """The name of one parameter of each kind that the kernels read."""
    return [name for name, _ in model.named_parameters() if not name.startswith(("encoder", "observation"))]


PARAMETERS = parameters_to_break(random_model(d_model=3, d_ff=4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [NAN, INFINITY])
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_are_not_finite_are_not_lost(name, value, dtype, calls):
    """An infinite bias may be cut off by the ReLU, as in torch: what matters is that both say the same."""
    model = random_model(d_model=3, d_ff=4).to(dtype)
    with torch.no_grad():
        model.get_parameter(name).flatten()[0] = value
    x, noise = sequences(2, 5).to(dtype), Noise(*torch.randn(4, 2, 9, 5, 3, generator=seeded(1)).to(dtype))

    def outcome():
        try:
            return run_filter(model, x, noise)[0].log_increments
        except WeightCollapseError as error:
            return error.sequence, error.step

    result, expected = both(outcome)
    if isinstance(expected, tuple):
        assert result == expected
    else:
        assert_same(result, expected, 1e-3 if dtype == torch.float32 else 1e-10)
    assert isinstance(expected, tuple) or value == INFINITY
    assert of_filter(calls) == WHOLE


def test_a_particle_without_density_loses_its_weight_and_no_other_does(calls):
    """NaN in the noise of one particle: its density is NaN, which counts as zero."""
    model = random_model(d_model=3, d_ff=4, ess_threshold=0.0)
    x, noise = sequences(2, 5), make_noise(model, 2, 9, 5)
    noise.attention[1, 4, 2] = NAN
    result = assert_same_filter(model, x, noise)
    assert (result.log_weights[1, 4, 2:] == -INFINITY).all()
    assert result.log_weights[1, :4].isfinite().all()
    assert of_filter(calls) == WHOLE


def test_scales_that_overflow_mean_no_density(calls):
    model = random_model(d_model=3, d_ff=4, observation="heteroscedastic", training=True)
    with torch.no_grad():
        model.readout.projection.bias[1] = 800.0  # exp(800) is infinite
    x, noise = sequences(2, 5), make_noise(model, 2, 9, 5)
    assert_same_filter(model, x, noise, on_collapse="uniform")
    assert of_filter(calls) == WHOLE


def test_disabled_kernels_are_not_called(calls):
    model = random_model(d_model=3, d_ff=4)
    with disabled():
        run_filter(model, sequences(2, 5), make_noise(model, 2, 9, 5))
        with disabled():
            pass
        model.filter(sequences(2, 5), generator=0)  # the inner block must not switch them on again
    assert of_filter(calls) == {}
    model.filter(sequences(2, 5), generator=0)
    assert of_filter(calls) == WHOLE
