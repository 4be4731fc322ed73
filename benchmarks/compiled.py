"""Why C: one step of attention through the ancestor table in eager torch, with torch.compile, and in the C kernel.

python -m benchmarks.compiled
"""

from time import perf_counter

import torch

from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig, kernels
from smc_transformer.inference.mutation import mutate, mutate_in_torch
from smc_transformer.inference.step import begin

BATCH, PARTICLES, SLOTS = 256, 30, 24


def main():
    model = SMCTransformer(SMCTransformerConfig(), generator=0)
    x = torch.randn(BATCH, 1, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        embedding = model.encoder(x)
    noise = model.attention.draw_noise(BATCH, PARTICLES, 1).at(0)
    state = begin(model, x[:, 0], PARTICLES, SLOTS)
    state.keys.normal_()
    state.values.normal_()
    state.trajectories.random_(PARTICLES)
    state.trajectories_are_own = False

    @torch.no_grad()
    def step():
        state.n_slots = torch.full((BATCH,), SLOTS - 1)
        return mutate(model, state, embedding, noise).parameters

    def eager():
        with kernels.disabled():
            return step()

    attend = torch.compile(lambda: mutate_in_torch(model, state, embedding, noise))

    @torch.no_grad()
    def compiled():
        state.n_slots = torch.full((BATCH,), SLOTS - 1)
        return model.readout(attend(), embedding)

    started = perf_counter()
    with kernels.disabled():
        compiled()
    print(f"torch.compile: {perf_counter() - started:.1f} s to compile one shape of one step")
    with kernels.disabled():
        times = median_seconds({"eager": eager, "torch.compile": compiled}, 15)
    times |= median_seconds({"C": step}, 15)
    for name, seconds in times.items():
        print(f"{name}: {1000 * seconds:.2f} ms, {times['eager'] / seconds:.1f} times as fast as eager")


if __name__ == "__main__":
    main()
