"""Data sets: the synthetic ones, whose true conditional laws are known."""

from smc_transformer.datasets.synthetic import SYNTHETIC, MixtureAutoregression, Split, split_sequences

__all__ = ["SYNTHETIC", "MixtureAutoregression", "Split", "split_sequences"]
