"""What the local view of windows is worth without any network: x is Gaussian noise with one covariance.

    python -m benchmarks.view_alone --dataset air_quality weather --out docs/results/view_alone.json

The same view, windows and scores as those of the configuration `paper+view`: the difference is what the network adds.
The covariance is that of x in training windows, followed for one task, forecast for the other.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from smc_transformer.empirical import Samples
from smc_transformer.support.randomness import as_generator
from smct_paper.baselines.base import Method
from smct_paper.datasets import DATASETS, SYNTHETIC, Windows, load_windows
from smct_paper.evaluation import evaluate
from smct_paper.experiments.profiles import QUICK
from smct_paper.experiments.window_view import WindowView

DRAWS = 1000


class ViewAlone(Method):
    """The anchors and units of the view, with Gaussian noise."""

    def fit(self, data: Windows, *, seed: int, progress: bool = False) -> dict[str, Any]:
        """The view's constants, and a covariance for each task."""
        self.n_modelled = data.n_modelled
        self.view = WindowView.fit(data.train, data.validation, data.history)
        followed = self.view.rows(data.train)[:, 1:]
        forecast = self.view.rows(data.train, data.history)[:, data.history + 1 :]
        self.roots = [self._root(rows[..., : data.n_modelled].flatten(0, 1)) for rows in (followed, forecast)]
        return {}

    def _root(self, x: Tensor) -> Tensor:
        covariance = torch.cov(x[~x.isnan().any(dim=-1)].T.double()).reshape(x.shape[-1], x.shape[-1])
        return torch.linalg.cholesky(covariance + 1e-6 * torch.eye(len(covariance)).double()).to(x.dtype)

    def one_step(self, x: Tensor, generator: Generator | int | None = None) -> Samples:
        """Draws of each step."""
        seen = self.view.look(x, 0)
        shape = (len(x), DRAWS, x.shape[1] - 1, self.n_modelled)
        noise = torch.randn(shape, generator=as_generator(generator)) @ self.roots[0].T
        anchor, unit = (part[..., : self.n_modelled].unsqueeze(1) for part in (seen.anchor, seen.unit))
        return Samples(anchor + unit * self.view.from_normal(noise))

    def paths(
        self,
        history: Tensor,
        horizon: int,
        n_samples: int,
        future_inputs: Tensor | None = None,
        generator: Generator | int | None = None,
    ) -> Tensor:
        """Paths of independent noise; deviations persist as the view says."""
        shape = (len(history), n_samples, horizon, self.n_modelled)
        noise = torch.randn(shape, generator=as_generator(generator)) @ self.roots[1].T
        return self.view.paths_back(noise, self.view.look(history, horizon))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", nargs="+", default=[name for name in DATASETS if name not in SYNTHETIC])
    parser.add_argument("--out", type=Path, default=Path("docs/results/view_alone.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.dataset:
        if name not in found:
            data, method = load_windows(name), ViewAlone()
            method.fit(data, seed=0)
            tasks = evaluate(method, data, n_windows=QUICK.n_windows, n_samples=QUICK.n_samples)
            found[name] = {task: asdict(scores)["metrics"] for task, scores in tasks.items()}
            options.out.write_text(json.dumps(found, indent=1) + "\n")
        for task, scores in found[name].items():
            print(name, task, {metric: round(value, 4) for metric, value in scores.items() if value is not None})


if __name__ == "__main__":
    main()
