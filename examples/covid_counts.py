"""Daily covid deaths of US counties as counts: the negative binomial observation model beside Gaussian ones.

    python examples/covid_counts.py --data path/to/covid_deaths_US.csv [--epochs 15] [--out results.json]

60 daily counts of each county; 70 / 15 / 15 % of the counties for training, validation and test. Days on which
figures were corrected downwards are missing values. Scores are of one-step forecasts on the scale of counts.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import Trainer, negative_log_likelihood, warmup_cosine
from smct_paper.datasets.covid import daily_counts, read_covid_deaths

MODELS = {
    "negative binomial": {"observation": "negative_binomial"},
    "negative binomial, no latent noise": {"observation": "negative_binomial", "initial_latent_variance": 0.0},
    "heteroscedastic Gaussian": {"observation": "heteroscedastic"},
    "Student-t": {"observation": "student_t"},
    "Gaussian (paper)": {"observation": "gaussian"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("SMC_TRANSFORMER_DATA", ".")) / "covid_deaths_US.csv"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--out", type=Path, help="file for the scores as JSON")
    options = parser.parse_args()
    if not options.data.exists():
        parser.error(
            f"{options.data} not found: give JHU's deaths in US counties as --data, "
            "or the folder that holds covid_deaths_US.csv as SMC_TRANSFORMER_DATA"
        )
    torch.set_num_threads(1)

    daily = torch.from_numpy(daily_counts(read_covid_deaths(options.data).cumulative)).float().unsqueeze(-1)
    daily = daily[~daily[:, 0, 0].isnan()]
    order = torch.randperm(len(daily), generator=torch.Generator().manual_seed(0))
    first, second = int(0.70 * len(daily)), int(0.85 * len(daily))
    train, validation, test = (daily[part] for part in order.tensor_split((first, second)))
    rows = {}
    for name, settings in MODELS.items():
        rows[name] = run(settings, train, validation, test, options.epochs)
        if options.out:
            options.out.write_text(json.dumps(rows, indent=2) + "\n")
    table = Table(
        "distribution",
        "CRPS",
        "PICP 95 %",
        "MPIW",
        "below 0 (95 % interval)",
        "NLL (nats)",
        title="covid, one step ahead",
    )
    for name, row in rows.items():
        keys = ("crps", "picp", "mpiw", "below_zero", "nll")
        table.add_row(name, *("-" if row[key] is None else f"{row[key]:.3f}" for key in keys))
    Console(width=120).print(table)


def run(settings, train, validation, test, epochs):
    counts = settings["observation"] == "negative_binomial"
    # Gaussian observation models work on scaled log(1 + count); their forecasts are transformed back exactly.
    scale = 1.0 if counts else torch.log1p(train[~train.isnan()]).std()
    to_model = (lambda x: x) if counts else (lambda x: torch.log1p(x) / scale)
    to_counts = (lambda x: x) if counts else (lambda x: torch.expm1(x * scale))
    model = SMCTransformer(SMCTransformerConfig(window=14, predict_change=True, **settings), generator=0)
    n_steps = epochs * -(-len(train) // 32)
    trainer = Trainer(model, epochs=epochs, schedule=warmup_cosine(n_steps, n_steps // 10), patience=5, seed=0)
    trainer.fit(to_model(train), to_model(validation))
    result = model.filter(to_model(test), 100, generator=1)
    observed = test[:, 1:]
    seen = ~observed.isnan()
    lower, upper = (to_counts(end) for end in result.predictive.interval(0.95))
    samples = to_counts(result.predictive.sample(500, generator=2)).squeeze(-1)
    # At zero, where most counts are, a density can be arbitrarily high: only probabilities of counts are comparable.
    nll = negative_log_likelihood(model, test, n_particles=100, generator=3) if counts else None
    return {
        "crps": sample_crps(samples, observed.squeeze(-1))[seen.squeeze(-1)].mean().item(),
        "picp": ((lower <= observed) & (observed <= upper))[seen].float().mean().item(),
        "mpiw": (upper - lower)[seen].mean().item(),
        "below_zero": (lower < 0)[seen].float().mean().item(),
        "nll": nll,
    }


def sample_crps(samples, observed):
    """CRPS of samples (batch, sample, time), fair in their number."""
    error = (samples - observed.unsqueeze(1)).abs().mean(dim=1)
    ordered, n = samples.sort(dim=1).values, samples.shape[1]
    ranks = 2 * torch.arange(1, n + 1).view(1, -1, 1) - n - 1
    return error - (ranks * ordered).sum(dim=1) / (n * (n - 1))


if __name__ == "__main__":
    main()
