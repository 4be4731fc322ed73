"""The reproduction of "The Monte Carlo Transformer" on top of the library `smc_transformer`.

datasets/      eight data sets: where their files are, readers, windows, splits
baselines/     the methods that the SMC Transformer is compared with, behind one interface
evaluation.py  one evaluator for all of them
experiments/   the grid of the paper's experiments, resumable, and its report
demo/          a model beside the best possible one, and a small panel from table to report
commands/      `smct data`, `smct experiment`, `smct demo`: found by the command line through entry points
"""
