"""Opening: the file and its safety, the pragmas of each connection, the schema and its migrations, the errors."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar
from urllib.parse import quote

from scratch.errors import (
    ForeignDatabase,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    UnsafePath,
)

logger = logging.getLogger("scratch")

SecureDelete = Literal["fast", "on"]
T = TypeVar("T")

SCHEMA_VERSION = 1
MIGRATIONS: Mapping[int, str] = MappingProxyType({})
"""By schema number: the SQL that makes the next number of it. Run one after the other, in one transaction."""
APPLICATION_ID = 0x52534352  # "RSCR": tells our files from other people's

BUSY_TIMEOUT_SECONDS = 5.0
SIDE_FILES = ("-wal", "-shm", "-journal")
_CHECKED_AT_MOST = 16 * 1024 * 1024
"""Bytes of file that are checked in full at opening (about 10 ms)."""
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


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """The named error for what sqlite3 reported."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    where = f"the store {path.name}"
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(f"another process kept {where} locked; try again later")
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"no room left for {where}: free disk space, or sweep")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnly(f"{where} cannot be written: check the rights of the file and of its folder")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreReadOnly(f"{where} cannot be opened: check that its folder exists and can be written")
        case sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(f"{where} is damaged; opening it again sets it aside and starts a new one")
        case sqlite3.SQLITE_NOTADB:
            return ForeignDatabase(f"{where} is not a database file; choose another path")
        case sqlite3.SQLITE_PROTOCOL | sqlite3.SQLITE_IOERR:
            return StoreError(
                f"{where} could not be read or locked ({error}); on a network file system choose a local path"
            )
        case _:
            return StoreError(f"{where} could not do it: {error}")


def retry_while_busy(attempt: Callable[[], T], timeout: float = BUSY_TIMEOUT_SECONDS) -> T:
    """Repeat ``attempt`` while another process holds the lock, for at most ``timeout`` seconds.

    Short random waits instead of SQLite's own handler, which sleeps ever longer: with four writers and a sweeper the
    longest wait was 65 to 179 ms instead of 635 to 835.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.0003, 0.002))  # noqa: S311 - spreads waiters, guards nothing


def begin(connection: sqlite3.Connection) -> None:
    """Start a transaction that may write, waiting for its turn."""
    retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"))


def prepare_path(path: Path, *, create: bool) -> None:
    """Check that ``path`` is a safe place, and make the file (0600) and its folder (0700) where wanted.

    Raises:
        UnsafePath: a link, not a regular file, or a network file system.
        StoreMissing: there is no file and ``create`` is false.
        StoreReadOnly: the folder cannot be made or written.
    """
    if path.is_symlink():
        msg = f"{path.name} is a symbolic link, which could lead a write anywhere; give the path that it points to"
        raise UnsafePath(msg, path=str(path))
    if path.exists():
        if not path.is_file():
            msg = f"{path.name} is not a regular file"
            raise UnsafePath(msg, path=str(path))
    elif not create:
        msg = f"there is no store at {path}"
        raise StoreMissing(msg, path=str(path))
    else:
        _make_file(path)
    kind = file_system(path)
    if kind in _SHARED_FILE_SYSTEMS:
        msg = f"{path.name} lies on {kind}, where SQLite's WAL does not work; choose a path on a local disk"
        raise UnsafePath(msg, path=str(path), file_system=kind)
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        logger.warning("the folder of %s can be written by everyone: others can replace the store", path)
    if path.stat().st_mode & 0o077:
        logger.warning("%s can be read by others; 'chmod 600' it", path)


def _make_file(path: Path) -> None:
    try:
        for folder in reversed([p for p in path.parents if not p.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        msg = f"{path.name} cannot be made: check the rights of its folder ({error.strerror})"
        raise StoreReadOnly(msg, path=str(path)) from error


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the file system that ``path`` lies on, or None where that cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    target = path.resolve()
    best, kind = -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, mount point, type
            continue
        mount = Path(fields[1].encode("latin-1", "replace").decode("unicode_escape"))
        if (target == mount or mount in target.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), fields[2]
    return kind


def connect_writer(path: Path, *, secure_delete: SecureDelete) -> sqlite3.Connection:
    """The connection that writes; makes or migrates the schema first when that is needed.

    A damaged file is set aside together with its side files, and a new store is made, loudly.
    """
    try:
        return _connect_writer(path, secure_delete=secure_delete)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        aside = set_aside(path)
        logger.exception("the store %s is damaged: set aside as %s, starting a new one", path, aside.name)
        prepare_path(path, create=True)
        return _connect_writer(path, secure_delete=secure_delete)


def _connect_writer(path: Path, *, secure_delete: SecureDelete) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _prepare_schema(connection, path)
        _set_pragmas(connection, secure_delete=secure_delete)
        # begin() waits in its own way; everything else on this connection happens inside its transactions
        connection.execute("PRAGMA busy_timeout=0")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that reads, beside a writer of this process."""
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _set_pragmas(connection, secure_delete="fast")
        connection.execute("PRAGMA query_only=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that leaves no trace beside the file.

    ``mode=ro`` alone makes ``-wal`` and ``-shm``. ``immutable=1`` does not, but would miss what is in a WAL; so it is
    used only where there is no WAL, that is, where nobody has the store open.
    """
    wal = path.with_name(path.name + "-wal")
    mode = "mode=ro" if wal.exists() else "mode=ro&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if (version := _check_ownership(connection, path)) != SCHEMA_VERSION:
            msg = f"{path.name} has schema {version}, this version reads {SCHEMA_VERSION}; open it once for writing"
            raise StoreError(msg, schema=version)
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA trusted_schema=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _set_pragmas(connection: sqlite3.Connection, *, secure_delete: SecureDelete) -> None:
    """What every connection needs; page_size and auto_vacuum are set where the file is made."""
    retry_while_busy(lambda: connection.execute("PRAGMA journal_mode=WAL"))
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA busy_timeout={round(BUSY_TIMEOUT_SECONDS * 1000)}")
    connection.execute(f"PRAGMA secure_delete={'ON' if secure_delete == 'on' else 'FAST'}")
    connection.execute(f"PRAGMA journal_size_limit={16 * 1024 * 1024}")
    connection.execute("PRAGMA trusted_schema=OFF")
    # A backstop only (32 MiB): checkpoints run in the background, out of the way of writes.
    connection.execute("PRAGMA wal_autocheckpoint=4096")


def _check_ownership(connection: sqlite3.Connection, path: Path) -> int:
    """The schema number of the file: 0 for an empty one. Reads only, so that opening takes no write lock.

    Raises:
        SchemaTooNew, ForeignDatabase: nothing was touched.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        msg = f"{path.name} is a database of something else; choose another path"
        raise ForeignDatabase(msg, path=str(path))
    if version > SCHEMA_VERSION:
        msg = (
            f"{path.name} has schema {version}, made by a newer run-scratch; this one knows {SCHEMA_VERSION}: "
            "install the newer version"
        )
        raise SchemaTooNew(msg, schema=version, known=SCHEMA_VERSION)
    return int(version)


def _prepare_schema(connection: sqlite3.Connection, path: Path) -> None:
    version = _check_ownership(connection, path)
    if version == 0:
        # only before the first table, and before WAL; afterwards they are ignored
        connection.execute("PRAGMA page_size=8192")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # The first switch takes the file for itself, for a moment; SQLite does not wait for it.
        retry_while_busy(lambda: connection.execute("PRAGMA journal_mode=WAL"))
    if version < SCHEMA_VERSION:
        begin(connection)
        try:
            # another process may have been faster
            version = _check_ownership(connection, path)
            if version == 0:
                _run_script(connection, schema_text())
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            else:
                for number in range(version, SCHEMA_VERSION):
                    _run_script(connection, MIGRATIONS[number])
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    elif path.stat().st_size <= _CHECKED_AT_MOST:
        _check_quickly(connection)


def _check_quickly(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def schema_text() -> str:
    """The text of schema.sql."""
    return files("scratch").joinpath("schema.sql").read_text(encoding="utf-8")


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run each statement inside the open transaction (executescript() would commit it first)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def set_aside(path: Path) -> Path:
    """Rename a damaged store together with its side files; return its new path.

    They go together: an old WAL beside a new file would bring old rows into it.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in SIDE_FILES:
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(aside.with_name(aside.name + suffix))
    return aside
