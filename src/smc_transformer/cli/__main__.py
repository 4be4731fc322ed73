"""`python -m smc_transformer.cli`: the command `smct`."""

import sys

from smc_transformer.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
