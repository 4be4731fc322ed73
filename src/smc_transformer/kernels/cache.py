"""Where files that can be made again are kept, and which of them may be executed."""

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import platformdirs

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
NOBODY = 65534
"""Whom the files of a machine's root belong to, as a container of an ordinary user sees them."""


class UnsafeCacheError(OSError):
    """Something in the cache that another user could have put there."""


def cache_folder() -> Path:
    """SMC_TRANSFORMER_CACHE if it is set, else a folder of ours where the system keeps its caches."""
    chosen = os.environ.get("SMC_TRANSFORMER_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("smc-transformer")


def private_folder(folder: Path) -> Path:
    """A folder, made if need be, into which only this user can write: what lies there may be executed.

    Raises:
        OSError: there can be none; an `UnsafeCacheError` if it is another user's.
    """
    made = [above for above in folder.parents if not above.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    for above in made:  # under a loose umask, all users could write there
        above.chmod(stat.S_IMODE(above.stat().st_mode) & ~WRITABLE_BY_OTHERS)
    _check_way(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_own(folder.lstat(), folder, stat.S_ISDIR)
    if folder.stat().st_mode & WRITABLE_BY_OTHERS:  # of an older version, or made under a loose umask
        folder.chmod(0o700)
    return folder


def verified(path: Path, digest: str) -> int:
    """An open file of the cache, which is the user's own and has this SHA-256.

    The file is to be used by the number that is returned, not by its name: by then, that may lead somewhere else.

    Raises:
        OSError: it cannot be opened; an `UnsafeCacheError` if it is not what was written there.
    """
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        found = os.fstat(file)
        _check_own(found, path, stat.S_ISREG)
        if found.st_mode & WRITABLE_BY_OTHERS:
            raise UnsafeCacheError(f"{path} can be written by other users")
        contents = hashlib.sha256()
        while part := os.read(file, 2**20):
            contents.update(part)
        if contents.hexdigest() != digest:
            raise UnsafeCacheError(f"{path} is not as it was written: truncated, damaged or replaced")
    except BaseException:
        os.close(file)
        raise
    return file


def _check_way(folder: Path) -> None:
    """That nobody else can put another folder in the place of this one, while a library is made in it."""
    if not hasattr(os, "geteuid"):
        return
    for above in dict.fromkeys((*folder.absolute().parents, *folder.resolve().parents)):
        found = above.stat()
        if found.st_uid not in (0, NOBODY, os.geteuid()):
            raise UnsafeCacheError(f"{above} belongs to another user")
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise UnsafeCacheError(f"{above} can be written by all users")


def _check_own(found: os.stat_result, path: Path, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(found.st_mode):
        raise UnsafeCacheError(f"{path} is something else than expected, such as a link")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise UnsafeCacheError(f"{path} belongs to another user")
