"""Seconds until `import smc_transformer` and `smct --help` are done, on a warm machine."""

import subprocess
import sys

from benchmarks.rows import row
from benchmarks.timing import median_seconds

COMMANDS = {
    "import smc_transformer": (["-c", "import smc_transformer"], 2),
    "import and first use of SMCTransformer": (["-c", "from smc_transformer import SMCTransformer"], None),
    "smct --help": (["-m", "smc_transformer.cli", "--help"], 1),
}


def measure(*, tiny=False):
    runs = {
        name: lambda arguments=arguments: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        for name, (arguments, _) in COMMANDS.items()
    }
    times = median_seconds(runs, repetitions=1 if tiny else 5)
    return [row(f"seconds: {name}", "warm", times[name], at_most=most) for name, (_, most) in COMMANDS.items()]
