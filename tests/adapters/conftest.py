"""Each folder is tested where its library is installed: `make test-sktime`, `make test-gluonts`."""

from importlib.util import find_spec

collect_ignore = [name for name in ("sktime", "gluonts") if find_spec(name) is None]
