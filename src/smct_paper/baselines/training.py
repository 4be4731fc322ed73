"""The training loop of the neural baselines: Adam on shuffled batches, and the best epoch on validation windows."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.learning.schedule import Schedule, constant
from smc_transformer.support.progress import progress_report
from smc_transformer.support.randomness import derived_generator

# The purposes for which training draws random numbers: each has a stream of its own.
WEIGHTS, _SHUFFLE, _STEP, VALIDATION = range(4)


def train(
    network: nn.Module,
    windows: Float[Tensor, "window time_plus_1 n_inputs"],
    loss: Callable[[Tensor, Generator], Tensor],
    validation_loss: Callable[[], float],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    schedule: Schedule | None = None,
    patience: int | None = None,
    title: str = "training",
    progress: bool = False,
) -> dict[str, Any]:
    """Train a network in place, and leave it at the epoch with the lowest validation loss.

    Args:
        network: what is trained.
        windows: training windows.
        loss: the loss of a batch of them, with randomness from a generator.
        validation_loss: the number by which the best epoch is chosen.
        epochs: passes over the training windows, at most.
        batch_size: windows in a batch; the last batch of an epoch may be smaller.
        learning_rate: of Adam.
        seed: of shuffling and noise.
        schedule: factor on the learning rate at step p = 1, 2, ...; None: constant.
        patience: stop after this many epochs without a lower validation loss; None: never.
        title: of the progress bar.
        progress: show it, where there is a terminal.

    Returns:
        Epochs run, the best of them, its validation loss and all of them.
    """
    schedule = constant() if schedule is None else schedule
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    step, best_epoch, best = 0, 0, math.inf
    best_weights: dict[str, Tensor] = {}
    history: list[float] = []
    n_batches = -(-len(windows) // batch_size)
    with progress_report(title, epochs * n_batches, enabled=progress) as report:
        for epoch in range(1, epochs + 1):
            network.train()
            order = torch.randperm(len(windows), generator=derived_generator(seed, _SHUFFLE, epoch))
            for rows in order.split(batch_size):
                step += 1
                for group in optimiser.param_groups:
                    group["lr"] = learning_rate * schedule(step)
                optimiser.zero_grad(set_to_none=True)
                loss(windows[rows], derived_generator(seed, _STEP, step)).backward()
                optimiser.step()
                report.advance(1, f"validation {history[-1]:.4f}" if history else "")
            network.eval()
            with torch.no_grad():
                history.append(validation_loss())
            if history[-1] < best:
                best_epoch, best = epoch, history[-1]
                best_weights = {name: value.clone() for name, value in network.state_dict().items()}
            if patience is not None and epoch - best_epoch >= patience:
                break
    if not best_weights:
        raise ArithmeticError(f"no epoch had a finite validation loss: {history}")
    network.load_state_dict(best_weights)
    return {
        "epochs": len(history),
        "best_epoch": best_epoch,
        "validation_loss": best,
        "validation_losses": history,
    }


def observed_mse(
    prediction: Float[Tensor, "*sample batch time target"], x: Float[Tensor, "batch time_plus_1 n_inputs"]
) -> Float[Tensor, ""]:
    """Mean squared error of the predictions of X_1, ..., X_T where those were observed."""
    target = x[:, 1:, : prediction.shape[-1]]
    seen = ~target.isnan()
    error = torch.where(seen, prediction - target.nan_to_num(0.0), 0.0)
    return error.square().sum() / (seen.sum() * prediction[..., 0, 0, 0].numel())
