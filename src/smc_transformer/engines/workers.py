"""What a worker does once, before its first bucket."""

import torch


def one_thread() -> None:
    """One thread for each task: the engine runs as many tasks as there are cores."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
