"""The store's file: whether its place is safe, making it, and setting a damaged one aside."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from scratch.errors import StoreCorrupt, StoreError, StoreFull, StoreMissing, StoreReadOnly, UnsafePath

logger = logging.getLogger("scratch")

_CHECK = "-check"
SIDE_FILES = ("-wal", "-shm", "-journal", _CHECK)
MOUNTS = Path("/proc/mounts")
_SHARED_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)


@lru_cache(maxsize=64)
def side_file(path: Path, suffix: str) -> Path:
    """The file that SQLite keeps beside ``path``."""
    return path.with_name(path.name + suffix)


def unreachable(path: Path, error: OSError) -> StoreError:
    """The named error for what the system said about a place."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no room left for the store {path.name}: free disk space", path=str(path))
    if error.errno == errno.ENOENT:
        return _missing(path)
    msg = f"{path.name!r} cannot be made or reached: check the rights of its folder ({error.strerror or error})"
    return StoreReadOnly(msg, path=str(path))


class Home:
    """Where the files of an open store lie.

    Who deletes, moves or replaces one of them leaves SQLite with files that have no name any more: it goes on writing
    into them as if nothing had happened, and all of that is lost when they are closed.
    """

    def __init__(self, path: Path, opened: os.stat_result) -> None:
        self._path = path
        wal = side_file(path, "-wal")
        self._files = [(str(path), opened), (str(wal), wal.stat())]

    def check(self) -> None:
        """Look whether the files are still there. Takes a few microseconds.

        Raises:
            StoreMissing: one is not.
        """
        for name, opened in self._files:
            try:
                found = os.stat(name)  # noqa: PTH116 - half the time of Path.stat()
            except OSError:
                found = None
            if found is None or found.st_ino != opened.st_ino or found.st_dev != opened.st_dev:
                what = Path(name).name
                msg = f"{what} was deleted, moved or replaced under the open store; close it, and open it anew"
                raise StoreMissing(msg, path=str(self._path))


def prepare_folder(path: Path, *, create: bool) -> None:
    """Make the folder that ``path`` lies in (0700) where that is wanted.

    Raises:
        StoreMissing: there is none and ``create`` is false.
        OSError: it cannot be made or reached.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a NUL in the path")
    missing = [folder for folder in path.parents if not folder.exists()]
    if missing and not create:
        raise _missing(path)
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def prepare_path(path: Path, *, create: bool) -> None:
    """Check that ``path`` is a safe place, and make the file (0600) where that is wanted.

    Raises:
        UnsafePath: a link, not a regular file, or a network file system.
        StoreMissing: there is no file and ``create`` is false.
        OSError: it cannot be made or reached.
    """
    if path.is_symlink():
        msg = f"{path.name} is a symbolic link, which could lead a write anywhere; give the path that it points to"
        raise UnsafePath(msg, path=str(path))
    if not path.exists():
        if not create:
            raise _missing(path)
        make_file(path)
    if not path.is_file():
        msg = f"{path.name} is not a regular file"
        raise UnsafePath(msg, path=str(path))
    kind = file_system(path)
    if kind in _SHARED_FILE_SYSTEMS:
        msg = f"{path.name} lies on {kind}, where SQLite's WAL does not work; choose a path on a local disk"
        raise UnsafePath(msg, path=str(path), file_system=kind)
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        logger.warning("the folder of %s can be written by everyone: others can replace the store", path)
    if path.stat().st_mode & 0o077:
        logger.warning("%s can be read by others; 'chmod 600' it", path)


def _missing(path: Path) -> StoreMissing:
    return StoreMissing(f"there is no store at {path}", path=str(path))


def make_file(path: Path) -> None:
    """Make an empty file (0600), unless another process was faster."""
    # O_EXCL: closing a descriptor of a file that is there would drop the locks that this process holds on it
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return


@contextmanager
def checkpoint_turn(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Whether this caller, of all threads and processes, may make a checkpoint now; nobody else does in the block.

    The lock is on the WAL, where SQLite has none of its own: it would lose those in this process when any descriptor
    of the store's file or of ``-shm`` is closed.

    Args:
        path: The store.
        seconds: How long to wait for it.
    """
    try:
        descriptor = os.open(side_file(path, "-wal"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _locked(descriptor, fcntl.LOCK_EX, seconds)
    finally:
        os.close(descriptor)


def wait_for_checkpoint(path: Path, seconds: float) -> bool:
    """Wait for the end of a checkpoint that is under way, but not for ever; whether there was one."""
    try:
        descriptor = os.open(side_file(path, "-wal"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if _locked(descriptor, fcntl.LOCK_SH, 0):
            return False
        _locked(descriptor, fcntl.LOCK_SH, seconds)
        return True
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        else:
            return True


def ask_for_check(path: Path) -> None:
    """Damage showed while the store was in use: leave a mark, for who opens it next to check all of it."""
    with suppress(OSError):
        make_file(side_file(path, _CHECK))


def is_check_asked_for(path: Path) -> bool:
    """Whether :func:`ask_for_check` was called since the last check."""
    return side_file(path, _CHECK).exists()


def note_check(path: Path) -> None:
    """All of the store was checked, and nothing found."""
    with suppress(OSError):
        side_file(path, _CHECK).unlink()


def file_system(path: Path) -> str | None:
    """The type of the file system that ``path`` lies on, or None where that cannot be told."""
    try:
        lines = MOUNTS.read_bytes().splitlines()
    except OSError:
        return None
    target = path.resolve()
    best, kind = -1, None
    for line in lines:
        fields = line.split(b" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, mount point, type
            continue
        # a space in a mount point, say, is written as \040
        point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 0xFF]), fields[1])
        mount = Path(os.fsdecode(point))
        if (target == mount or mount in target.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), os.fsdecode(fields[2])
    return kind


@contextmanager
def folder_lock(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Wait until nobody sets a damaged store in ``folder`` aside (or, exclusive, opens one there), and keep it so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        try:
            yield
        finally:
            # said, and not left to close(): a process that was forked meanwhile has this descriptor too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def set_aside(path: Path, damaged: os.stat_result) -> Path | None:
    """Rename a damaged store together with its side files and make an empty file; return where the old one is now.

    They go together: an old WAL beside a new file would bring old rows into it.

    Args:
        path: Where it is.
        damaged: The file that was found damaged. None is returned when it is not there any more: another process
            was faster, and what is there now is the new store.

    Raises:
        StoreCorrupt: it cannot be renamed.
    """
    try:
        with folder_lock(path.parent, exclusive=True):
            if not os.path.samestat(path.stat(), damaged):
                return None
            number = 1
            while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
                number += 1
            path.rename(aside)
            for suffix in SIDE_FILES:
                if (side := side_file(path, suffix)).exists():
                    side.rename(side_file(aside, suffix))
            make_file(path)
    except OSError as error:
        msg = f"the store {path.name} is damaged and cannot be set aside ({error.strerror}); choose another path"
        raise StoreCorrupt(msg, path=str(path)) from error
    return aside
