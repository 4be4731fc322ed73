"""Each folder is tested where its library is installed: `make test-sktime`, `make test-gluonts`."""

from importlib import metadata


def _is_installed(name):
    try:
        metadata.version(name)  # not find_spec, which would find the folder of this name here
    except metadata.PackageNotFoundError:
        return False
    return True


collect_ignore = [name for name in ("sktime", "gluonts") if not _is_installed(name)]
