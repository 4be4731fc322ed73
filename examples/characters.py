"""A character-level language model with the categorical observation model, on a small text (this repository's LICENSE).

    python examples/characters.py [--epochs 20] [--windows 500] [--out results.json]

Prints the perplexity on held-out text beside that of the same network without latent noise, and writes samples.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from rich.console import Console

from smc_transformer import InferenceSettings, SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import Trainer, negative_log_likelihood, warmup_cosine

TEXT = Path(__file__).parent.parent / "LICENSE"
LENGTH = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--windows", type=int, help="training windows; all of them unless given")
    parser.add_argument("--out", type=Path, help="file for the results as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()

    text = " ".join(TEXT.read_text().lower().split())
    letters = sorted(set(text))
    numbers = torch.tensor([letters.index(letter) for letter in text]).float()
    cut = int(0.9 * len(numbers))
    train = numbers[:cut].unfold(0, LENGTH + 1, 8).unsqueeze(-1)[: options.windows]
    test = numbers[cut:].unfold(0, LENGTH + 1, LENGTH).unsqueeze(-1)
    validation, test = test[::2], test[1::2]
    console.print(f"{len(text)} characters, {len(letters)} different ones, {len(train)} training windows of {LENGTH}")

    results = {}
    for name, variance in (("deterministic transformer", 0.0), ("SMC Transformer", 0.05)):
        config = SMCTransformerConfig(
            observation="categorical",
            n_classes=len(letters),
            d_model=64,
            d_ff=128,
            n_heads=4,
            encoder="transformer",
            encoder_layers=1,
            position_encoding="sinusoidal",
            initial_latent_variance=variance,
        )
        model = SMCTransformer(config, generator=0, inference=InferenceSettings(n_particles=5))
        n_steps = options.epochs * -(-len(train) // 32)
        trainer = Trainer(
            model, epochs=options.epochs, schedule=warmup_cosine(n_steps, n_steps // 10), patience=4, seed=0
        )
        history = trainer.fit(train, validation)
        nll = negative_log_likelihood(model, test, n_particles=64, generator=1)
        start = torch.tensor([[letters.index(letter)] for letter in "the license "]).float().unsqueeze(0)
        # No further than the windows of the training: positions beyond them were never seen.
        paths = model.forecast(start, LENGTH - start.shape[1], n_samples=3, n_particles=64, generator=2)[0, :, :, 0]
        results[name] = {
            "perplexity": math.exp(nll),
            "epochs": len(history),
            "samples": ["the license " + "".join(letters[int(number)] for number in path) for path in paths],
        }
        console.print(f"{name}: perplexity {math.exp(nll):.2f} after {len(history)} epochs")
        for sample in results[name]["samples"]:
            console.print(f"  {sample}", markup=False)
        if options.out:
            options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
