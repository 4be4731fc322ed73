"""A PostgreSQL server for tests, in a folder of its own, if the programs are on the machine."""

import getpass
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest


def _programs():
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


@contextmanager
def server():
    """URL of a server that is stopped at the end; skips the test where there can be none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    programs = _programs()
    if programs is None:
        pytest.skip("initdb of PostgreSQL is not installed")
    # The server refuses to run as root: a user who owns nothing is on every Linux.
    other = {"user": "nobody", "group": "nogroup"} if getpass.getuser() == "root" else {}
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a short path: sockets have short names
    if other:
        shutil.chown(folder, **other)
    data, quiet = folder / "data", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    os.chmod(folder, 0o755)
    try:
        initdb = [programs / "initdb", "-D", data, "-U", "tester", "--auth=trust", "-E", "UTF8", "--no-sync"]
        if subprocess.run(initdb, **quiet, **other).returncode:
            pytest.skip("initdb of PostgreSQL does not run here")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        control = [programs / "pg_ctl", "-D", data, "-w", "-t", "60"]
        if subprocess.run([*control, "-o", options, "-l", folder / "log", "start"], **quiet, **other).returncode:
            pytest.skip("PostgreSQL does not start here")
        try:
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet, **other)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
