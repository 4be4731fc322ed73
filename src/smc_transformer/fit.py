"""`smct fit` in several processes, on one machine or several, which torchrun starts.

    torchrun --nproc-per-node 4 -m smc_transformer.fit sales.parquet --horizon 12 --out model

The options are those of `smct fit`. DATA is Parquet, a file or a folder of files, in which the rows of a series follow
each other; each process reads its own series. One model is trained on all of them; the first process writes it, with
every series (docs/scale.md). Without torchrun it is `smct fit`.
"""

import os
import sys
from collections.abc import Sequence

from smc_transformer.cli.app import main as run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Train in the processes that torchrun has started; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return run_command(["fit", *given])
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        return run_command(["fit", *given])
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
