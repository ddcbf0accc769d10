"""Opening: the pragmas of each connection, the schema and its migrations, the errors."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar
from urllib.parse import quote

from scratch.database.files import (
    Home,
    folder_lock,
    is_check_asked_for,
    note_check,
    prepare_folder,
    prepare_path,
    set_aside,
    side_file,
    unreachable,
    wait_for_checkpoint,
)
from scratch.database.forks import GATE
from scratch.database.turns import TURNS
from scratch.errors import (
    ForeignDatabase,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

logger = logging.getLogger("scratch")

SecureDelete = Literal["fast", "on"]
T = TypeVar("T")

SCHEMA_VERSION = 2
MIGRATIONS: Mapping[int, str] = MappingProxyType(
    {
        1: """
CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL   -- how often, or bytes; of "since": ms, when this table was made
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('since', CAST(strftime('%s', 'now') AS INTEGER) * 1000);
""",
    }
)
"""By schema number: the SQL that makes the next number of it. Run one after the other, in one transaction."""
APPLICATION_ID = 0x52534352  # "RSCR": tells our files from other people's

BUSY_TIMEOUT_SECONDS = 5.0
_DISK_SECONDS = 10.0
"""So much longer when a checkpoint is under way: nobody hangs then, the disk stands still."""
_CHECKED_AT_MOST = 16 * 1024 * 1024
"""Bytes of file that are checked in full at opening (about 10 ms)."""


def error_code(error: BaseException) -> int:
    """SQLite's primary error code; 0 when SQLite did not raise it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def has_no_room(error: sqlite3.Error) -> bool:
    """Whether the disk is full."""
    # the second: -shm cannot grow
    return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """The named error for what sqlite3 reported."""
    where = f"the store {path.name}"
    match error_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(f"another process kept {where} locked; try again later")
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR if has_no_room(error):
            return StoreFull(f"no room left for {where}: free disk space, or sweep")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnly(f"{where} cannot be written: check the rights of the file and of its folder")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreReadOnly(f"{where} cannot be opened: check that its folder exists and can be written")
        case sqlite3.SQLITE_CORRUPT:
            return damaged(path)
        case sqlite3.SQLITE_NOTADB:
            return ForeignDatabase(f"{where} is not a database file; choose another path")
        case sqlite3.SQLITE_PROTOCOL | sqlite3.SQLITE_IOERR:
            return StoreError(
                f"{where} could not be read, written or locked ({error}); on a network file system choose a local path"
            )
        case _:
            return StoreError(f"{where} could not do it: {error}")


def damaged(path: Path) -> StoreCorrupt:
    """The named error for a file that is not what it was."""
    return StoreCorrupt(f"the store {path.name} is damaged; opening it for writing sets it aside and starts a new one")


def retry_while_busy(attempt: Callable[[], T], seconds: float | None = None) -> T:
    """Repeat ``attempt`` while another connection holds the lock, for ``BUSY_TIMEOUT_SECONDS`` or ``seconds`` at most.

    Short random waits instead of SQLite's own handler, which sleeps ever longer: with four writers and a sweeper the
    longest wait was 65 to 179 ms instead of 635 to 835.
    """
    deadline = time.monotonic() + (BUSY_TIMEOUT_SECONDS if seconds is None else seconds)
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        TURNS.wait(random.uniform(0.0003, 0.002))  # noqa: S311 - spreads waiters, guards nothing


def begin(connection: sqlite3.Connection, path: Path) -> None:
    """Start a transaction that may write, waiting for its turn."""
    try:
        retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"))
    except sqlite3.OperationalError as error:
        if error_code(error) != sqlite3.SQLITE_BUSY or not wait_for_checkpoint(path, _DISK_SECONDS):
            raise
        retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"))


@dataclass(frozen=True, slots=True)
class Connections:
    """One store's connections, each for a thread of its own."""

    writer: sqlite3.Connection
    upkeep: sqlite3.Connection
    """Checkpoints, and gives space back."""
    reader: sqlite3.Connection
    home: Home

    def close(self) -> None:
        """Close all."""
        for connection in (self.reader, self.upkeep, self.writer):
            GATE.close(connection)


def open_store(path: Path, *, create: bool, secure_delete: SecureDelete) -> Connections:
    """Open the store at ``path`` for writing; make the file and the schema, or migrate it, where that is needed.

    A damaged file of ours is set aside together with its side files, and a new store is made, loudly.

    Raises:
        StoreError: one of its kinds, saying what to do.
    """
    try:
        prepare_folder(path, create=create)
        tries = 3
        while True:
            tries -= 1
            with GATE.work(), folder_lock(path.parent, exclusive=False):
                prepare_path(path, create=create)
                found = path.stat()
                try:
                    return _connect_all(path, found, secure_delete)
                except sqlite3.DatabaseError as error:
                    ours = error_code(error) == sqlite3.SQLITE_NOTADB and is_check_asked_for(path)
                    if tries == 0 or not (ours or error_code(error) == sqlite3.SQLITE_CORRUPT):
                        raise
            if aside := set_aside(path, found):
                logger.error("the store %s is damaged: set aside as %s, starting a new one", path, aside.name)
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise unreachable(path, error) from error


def _connect_all(path: Path, found: os.stat_result, secure_delete: SecureDelete) -> Connections:
    opened: list[sqlite3.Connection] = []
    try:
        for _ in range(3):
            connection = _connect(path, "mode=rw")
            opened.append(connection)
            if len(opened) == 1:
                _prepare_schema(connection, path)
            _set_pragmas(connection, secure_delete)
        writer, upkeep, reader = opened
        for connection in (writer, upkeep):
            # begin() waits in its own way, and a checkpoint shall not wait at all
            connection.execute("PRAGMA busy_timeout=0")
        reader.execute("PRAGMA query_only=ON")
        # What a savepoint keeps of the pages for taking them back would go to a file: half of a small put's time.
        writer.execute("PRAGMA temp_store=MEMORY")
        return Connections(writer, upkeep, reader, Home(path, found))
    except BaseException:
        for connection in opened:
            GATE.close(connection)
        raise


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection for any one thread at a time. It never makes the file, which would get the umask's rights."""
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    GATE.watch(connection)
    connection.execute("PRAGMA wal_autocheckpoint=0")  # see maintenance.checkpoint
    return connection


def look_at(path: Path) -> None:
    """Check that there is a store of ours at ``path`` that can be read.

    Raises:
        StoreError: one of its kinds, saying what to do.
    """
    try:
        prepare_folder(path, create=False)
        prepare_path(path, create=False)
        read_once(path, lambda _: None)
    except OSError as error:
        raise unreachable(path, error) from error


def read_once(path: Path, function: Callable[[sqlite3.Connection], T]) -> T:
    """Run ``function`` on a connection that leaves no trace beside the file.

    ``mode=ro`` alone makes ``-wal`` and ``-shm``. ``immutable=1`` does not, but would miss what is in a WAL; so it is
    used only where there is no WAL, that is, where nobody has the store open. It takes no locks either: what was read
    while somebody began to write is thrown away.

    Raises:
        StoreBusy: that happened.
        StoreError: another of its kinds; what ``function`` raises.
    """
    try:
        with GATE.work():
            return _read_once(path, function)
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def _read_once(path: Path, function: Callable[[sqlite3.Connection], T]) -> T:
    wal = side_file(path, "-wal")
    alone = not wal.exists()
    before = _look(path)
    connection = _connect(path, "mode=ro&immutable=1" if alone else "mode=ro")
    try:
        if (version := _in_snapshot(connection, path)) != SCHEMA_VERSION:
            msg = f"{path.name} has schema {version}, this version reads {SCHEMA_VERSION}; open it once for writing"
            raise StoreError(msg, schema=version)
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA trusted_schema=OFF")
        return function(connection)
    finally:
        GATE.close(connection)
        after = _look(path)
        if alone and (wal.exists() or (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns)):
            msg = f"another process began to write the store {path.name} while it was read; try again"
            raise StoreBusy(msg)


def _look(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise unreachable(path, error) from error


def _set_pragmas(connection: sqlite3.Connection, secure_delete: SecureDelete) -> None:
    """What every connection needs; page_size and auto_vacuum are set where the file is made."""
    retry_while_busy(lambda: connection.execute("PRAGMA journal_mode=WAL"))
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA busy_timeout={round(BUSY_TIMEOUT_SECONDS * 1000)}")
    connection.execute(f"PRAGMA secure_delete={'ON' if secure_delete == 'on' else 'FAST'}")
    connection.execute(f"PRAGMA journal_size_limit={16 * 1024 * 1024}")
    connection.execute("PRAGMA trusted_schema=OFF")
    # 2 MB, as the default says; but that is counted in pages before the size of a page is known, and would be 4.
    connection.execute("PRAGMA cache_size=-2000")


def _schema_number(connection: sqlite3.Connection, path: Path) -> int:
    """The schema number of the file: 0 for an empty one. Inside a transaction: the answers must be of one moment.

    Raises:
        SchemaTooNew, ForeignDatabase: nothing was touched.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            msg = (
                f"{path.name} has schema {version}, made by a newer run-scratch; this one knows {SCHEMA_VERSION}: "
                "install the newer version"
            )
            raise SchemaTooNew(msg, schema=version, known=SCHEMA_VERSION)
        return int(version)
    try:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.DatabaseError as error:
        if error_code(error) != sqlite3.SQLITE_CORRUPT:
            raise
        tables = 1  # damaged or not, it is not ours to set aside
    if application or version or tables:
        msg = f"{path.name} is a database of something else; choose another path"
        raise ForeignDatabase(msg, path=str(path))
    return 0


def _in_snapshot(connection: sqlite3.Connection, path: Path) -> int:
    """The schema number, without a write lock."""
    connection.execute("BEGIN")
    try:
        return _schema_number(connection, path)
    finally:
        if connection.in_transaction:  # a full disk can have ended it
            connection.execute("COMMIT")


def _prepare_schema(connection: sqlite3.Connection, path: Path) -> None:
    version = _in_snapshot(connection, path)
    if version == SCHEMA_VERSION:
        if is_check_asked_for(path):
            _check(connection, "integrity_check")
            note_check(path)
        elif path.stat().st_size <= _CHECKED_AT_MOST:
            _check(connection, "quick_check")
        return
    if version == 0:
        if is_check_asked_for(path):
            raise _corrupt("somebody has emptied it")
        # only before the first table, and before WAL; afterwards they are ignored
        connection.execute("PRAGMA page_size=8192")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # The first switch takes the file for itself, for a moment; SQLite does not wait for it.
        retry_while_busy(lambda: connection.execute("PRAGMA journal_mode=WAL"))
    begin(connection, path)
    try:
        # another process may have been faster
        version = _schema_number(connection, path)
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


def _check(connection: sqlite3.Connection, pragma: str) -> None:
    (found,) = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    if found != "ok":
        raise _corrupt(found)


def _corrupt(what: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def schema_text() -> str:
    """The text of schema.sql."""
    from importlib.resources import files  # noqa: PLC0415 - brings archives and compression; only a new store needs it

    return files("scratch").joinpath("schema.sql").read_text(encoding="utf-8")


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run each statement inside the open transaction (executescript() would commit it first)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(statement)  # comments, or a last statement without its semicolon
