"""The experiments of the paper: a grid of cells (data set, split, model, configuration, seed).

`grid` says which cells there are, `profiles` how long they train, `cells` how one is trained and scored, `store`
keeps each in a file of its own, `runner` works through them in several processes.

Nothing here imports torch at the top: a worker process must set its number of threads before torch is loaded.
"""
