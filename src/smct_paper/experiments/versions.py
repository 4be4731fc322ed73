"""What a result was made with."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from smc_transformer._version import __version__


def versions() -> dict[str, str]:
    """Versions of Python, torch and this package, and its commit if it lies in a git repository."""
    found = {"python": platform.python_version(), "torch": version("torch"), "smc_transformer": __version__}
    commit = package_commit(Path(__file__).parents[1])
    return found | ({"commit": commit} if commit else {})


def package_commit(package: Path) -> str | None:
    """The commit that holds a package, with "-changed" if its files differ from it; None outside a repository."""
    # An installed package may lie in an environment inside some other repository, which says nothing about it.
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None
    commit = _git(package, "rev-parse", "HEAD") if tracked else None
    return f"{commit}-changed" if commit and _git(package, "status", "--porcelain", "--", ".") else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
