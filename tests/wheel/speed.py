"""Processor seconds of the demo, and of a filter, of paths and of a training step: what the kernels are there for.

    speed.py demo FOLDER    the command, which writes to a folder
    speed.py kernels        each the least of some runs, one thread

Lines of a name and a number. Seconds of the processor, as the machine may have other work.
"""

import resource
import subprocess
import sys
import time

RUNS = 7


def main():
    if sys.argv[1] == "demo":
        tell("demo", demo(sys.argv[2]))
    else:
        kernels()


def demo(folder):
    command = [sys.executable, "-m", "smc_transformer.cli", "demo", "--out", folder]
    subprocess.run(command, check=True, stdout=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kernels():
    import torch

    from smc_transformer import SMCTransformer, SMCTransformerConfig, Trainer
    from smc_transformer.kernels import library

    torch.set_num_threads(1)
    loaded = library(torch.empty(0))
    if loaded is None:
        sys.exit("there are no kernels")
    sys.stderr.write(f"{loaded._name}\n")
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1, window=16, encoder="gru"), generator=0)
    x = torch.randn(32, 64, 1, generator=torch.Generator().manual_seed(0))
    work = {
        "filter": lambda: model.filter(x, 64, generator=0),
        "paths": lambda: model.forecast(x, 24, 100, generator=0),
        "training": lambda: Trainer(model, epochs=1, batch_size=32, n_particles=64, progress=False).fit(x),
    }
    for name, run in work.items():
        run()
        tell(name, min(seconds(run) for _ in range(RUNS)))


def seconds(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def tell(name, value):
    sys.stdout.write(f"{name} {value}\n")


main()
