"""Giving space back, and checking that all is as it should be. Functions for a connection's thread.

The statements here are about all scopes at once: they reclaim what is not live anyway, or only count.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scratch.database.connection import error_code, has_no_room, retry_while_busy
from scratch.database.files import checkpoint_turn, side_file
from scratch.database.turns import TURNS
from scratch.metrics import StoreMetrics

EXPIRED = "SELECT entry_id, size FROM scratch_entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
DELETE_IDS = "DELETE FROM scratch_entries WHERE entry_id = ?"
HAS_EXPIRED = "SELECT EXISTS (SELECT 1 FROM scratch_entries WHERE expires_at <= ?)"
COUNT_EXPIRED = "SELECT count(*), coalesce(sum(size), 0) FROM scratch_entries WHERE expires_at <= ?"
ORPHANS = (
    "SELECT DISTINCT entry_id FROM scratch_chunks WHERE entry_id NOT IN (SELECT entry_id FROM scratch_entries) LIMIT ?"
)
DELETE_ORPHAN = "DELETE FROM scratch_chunks WHERE entry_id = ?"
# A piece that is not as long as it has to be at its place counts as -1: others cannot make up for it.
INCOMPLETE = """
    SELECT count(*) FROM scratch_entries e WHERE e.size <> (
        SELECT coalesce(sum(iif(length(data) = min(65536, e.size - seq * 65536), length(data), -1)), 0)
        FROM scratch_chunks c WHERE c.entry_id = e.entry_id
    )
"""
MISCOUNTED = """
    SELECT count(*) FROM runs r
    WHERE r.bytes <> (SELECT coalesce(sum(size), 0) FROM scratch_entries e WHERE e.run_id = r.run_id)
"""
TOTALS = """
    SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM runs WHERE completed_at IS NULL),
        (SELECT count(*) FROM scratch_entries WHERE expires_at > ?1),
        (SELECT coalesce(sum(size), 0) FROM scratch_entries WHERE expires_at > ?1),
        (SELECT count(*) FROM scratch_entries WHERE expires_at <= ?1),
        (SELECT coalesce(sum(size), 0) FROM scratch_entries WHERE expires_at <= ?1)
"""
ADD_COUNT = """
    INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value
"""
COUNTS = "SELECT name, value FROM counters"

_PATIENCE_SECONDS = 0.05
"""How long a checkpoint waits for its turn, and then to commit something."""
_NEW_FRAMES = 500
"""A WAL of no more frames (4 MiB) has begun anew."""
_CUT_SECONDS = (10e-6, 2.5e-9)
"""To cut a page off takes so long, and so long for each free one: SQLite goes through their list for the page at the
end of the file. That is the worst; where it stands at the front of the list the second part is nothing."""
_CUT_PAGES = (4, 512)
"""The least and the most pages (32 KiB, 4 MiB) that are cut off in a transaction."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one short transaction deleted. ``more`` says that it stopped before the end."""

    entries: int
    bytes: int
    more: bool


def delete_expired(connection: sqlite3.Connection, now: int, *, entries: int, seconds: float) -> Batch:
    """Delete expired entries, the longest expired first, until a limit is reached; one entry at least.

    Args:
        connection: Inside a transaction.
        now: Milliseconds since the epoch.
        entries: At most so many.
        seconds: Stop after so long: other writers wait for the lock.
    """
    rows = connection.execute(EXPIRED, (now, entries)).fetchall()
    count = _delete_until(connection, [entry_id for entry_id, _ in rows], seconds)
    return Batch(count, sum(size for _, size in rows[:count]), more=count < len(rows) or len(rows) == entries)


def delete_step(connection: sqlite3.Connection, select: str, name: str, seconds: float) -> bool:
    """Delete some of the entries that ``select`` finds for ``name``, for so long; whether there were any."""
    ids = [entry_id for (entry_id,) in connection.execute(select, (name,))]
    return _delete_until(connection, ids, seconds) > 0


def _delete_until(connection: sqlite3.Connection, ids: list[int], seconds: float) -> int:
    deadline = time.monotonic() + seconds
    for count, entry_id in enumerate(ids, 1):
        connection.execute(DELETE_IDS, (entry_id,))
        if time.monotonic() >= deadline:
            return count
    return len(ids)


def has_expired(connection: sqlite3.Connection, now: int) -> bool:
    """Whether a sweep would delete anything. One look into the index, however much there is."""
    return bool(connection.execute(HAS_EXPIRED, (now,)).fetchone()[0])


def count_expired(connection: sqlite3.Connection, now: int) -> tuple[int, int]:
    """Entries and bytes that a sweep would delete."""
    entries, size = connection.execute(COUNT_EXPIRED, (now,)).fetchone()
    return entries, size


def find_orphans(connection: sqlite3.Connection, limit: int) -> list[int]:
    """Entry ids of chunks whose entry is gone: a tool without foreign keys was here."""
    return [entry_id for (entry_id,) in connection.execute(ORPHANS, (limit,))]


def delete_orphans(connection: sqlite3.Connection, limit: int) -> int:
    """Delete the chunks of up to ``limit`` orphans, as they are at this moment; return how many."""
    orphans = find_orphans(connection, limit)
    connection.executemany(DELETE_ORPHAN, [(entry_id,) for entry_id in orphans])
    return len(orphans)


def free_pages(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many pages of the file hold nothing, and the bytes of a page."""
    (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return pages, size


def all_pages(connection: sqlite3.Connection) -> int:
    """How many pages the file has."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    return int(pages)


def vacuum_pages(free: int, seconds: float) -> int:
    """How many pages can be taken off the end of the file in so long at worst, when so many are free."""
    base, each = _CUT_SECONDS
    least, most = _CUT_PAGES
    return max(least, min(most, int(seconds / (base + each * free))))


def vacuum_step(connection: sqlite3.Connection, pages: int) -> None:
    """Take up to ``pages`` free pages off the end of the file. Outside a transaction."""
    # execute() would free one page: it stops at the statement's first row
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")
    TURNS.give_way()


def checkpoint(connection: sqlite3.Connection, path: Path, *, truncate: bool = False) -> bool:
    """Write the WAL back into the file; whether all of it is. Neither waits for others nor keeps them away for long.

    Up to SQLite 3.51.2 a checkpoint that finds nothing to write back, just when a writer begins the WAL anew, takes
    what is then written for written back: pages are lost, and the file is damaged (its "WAL-reset bug"; seen here with
    eight writers). So of all processes only one makes a checkpoint at a time, and after a commit of its own: then there
    is something to write back, and until that is done no writer begins anew. For the same reason SQLite makes none by
    itself, and RESTART is not used: it goes on without the write lock when it does not get it.

    Args:
        connection: One for writing, outside a transaction, with no or little patience.
        path: The store.
        truncate: Cut the WAL to nothing, too. Does nothing while others write: it would wait for the disk with the lock
            held, and that was seen to take 5 seconds.
    """
    with checkpoint_turn(path) as mine:
        if not mine:
            return False
        version = data_version(connection)
        if _write_back(connection) is None:
            return False
        if not truncate:
            _commit_something(connection)  # begins the WAL anew, which waits for the disk: here, not in a put
            return True
        idle = data_version(connection) == version
        return idle and _commit_something(connection) and _checkpoint(connection, "TRUNCATE") is not None


def restart_wal(connection: sqlite3.Connection, path: Path, seconds: float) -> bool:
    """Write all of the WAL back and begin it anew, trying for so long; whether that was done.

    Writers who see that the WAL is large wait meanwhile (:func:`wait_for_checkpoint`), without keeping anybody away.
    """
    deadline = time.monotonic() + seconds
    with checkpoint_turn(path, _PATIENCE_SECONDS) as mine:
        if not mine:
            return False
        # What is committed after all was written back begins anew, but where a reader still needs what was there.
        while (frames := _write_back(connection)) is None or frames > _NEW_FRAMES:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True


def _write_back(connection: sqlite3.Connection) -> int | None:
    """Commit something, and write all back; the frames in the WAL, or None when others were in the way."""
    return _checkpoint(connection, "PASSIVE") if _commit_something(connection) else None


def _commit_something(connection: sqlite3.Connection) -> bool:
    """Write the schema number where it stands; whether that could be done soon."""
    try:
        retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), _PATIENCE_SECONDS)
    except sqlite3.OperationalError as error:
        if error_code(error) == sqlite3.SQLITE_BUSY:
            return False
        raise
    try:
        (number,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version={number}")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not has_no_room(error):  # else nobody can begin the WAL anew
            raise
    finally:
        TURNS.give_way()
    return True


def _checkpoint(connection: sqlite3.Connection, mode: str) -> int | None:
    """The frames in the WAL when all of them are written back, else None."""
    busy, frames, written_back = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return frames if not busy and frames == written_back else None


def checkpoint_alone(connection: sqlite3.Connection) -> None:
    """Write the WAL back and cut it, where no other process can have the file open."""
    _checkpoint(connection, "TRUNCATE")


def cut_wal(connection: sqlite3.Connection, path: Path, seconds: float) -> None:
    """Write the WAL back and cut it to nothing, trying for so long."""
    deadline = time.monotonic() + seconds
    while wal_bytes(path) and not checkpoint(connection, path, truncate=True) and time.monotonic() < deadline:
        time.sleep(0.001)


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes with every commit of another connection."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def rewrite(connection: sqlite3.Connection) -> None:
    """Write the whole file anew, with what is there and nothing else. Outside a transaction.

    ``secure_delete`` overwrites a row where it stands. But whenever SQLite moves rows between pages, copies of them
    stay in the unused middle of the old ones, and a row that is deleted later is not looked for there.
    """
    connection.execute("VACUUM")


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Figures of a store. Sizes are bytes; ``live`` and ``expired`` count entries (expired: not swept yet)."""

    runs: int
    open_runs: int
    live: int
    live_bytes: int
    expired: int
    expired_bytes: int
    file_bytes: int
    wal_bytes: int
    free_bytes: int
    """Inside the file, for the next sweep to give back."""
    disk_free_bytes: int
    """On the file system that the store lies on."""
    counters: StoreMetrics
    """What all processes have done with it. What a store that is open has counted last is not in it yet."""
    counted_since: int
    """Milliseconds since the epoch: when the first of that was counted, or the file was migrated to schema 2."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found. ``problems`` is empty when all is as it should be; ``notes`` need no action."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    stats: StoreStats


def read_stats(connection: sqlite3.Connection, path: Path, now: int) -> StoreStats:
    """Count everything once."""
    pages, page_size = free_pages(connection)
    disk = os.statvfs(path.parent)
    counts: dict[str, int] = dict(connection.execute(COUNTS).fetchall())
    runs, open_runs, live, live_bytes, expired, expired_bytes = connection.execute(TOTALS, (now,)).fetchone()
    return StoreStats(
        runs=runs,
        open_runs=open_runs,
        live=live,
        live_bytes=live_bytes,
        expired=expired,
        expired_bytes=expired_bytes,
        file_bytes=path.stat().st_size,
        wal_bytes=wal_bytes(path),
        free_bytes=pages * page_size,
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
        counters=StoreMetrics.of(counts),
        counted_since=counts.get("since", 0),
    )


def add_counts(connection: sqlite3.Connection, counts: Mapping[str, int]) -> None:
    """Add to the counters of the file. Inside a transaction."""
    connection.executemany(ADD_COUNT, counts.items())


def check(connection: sqlite3.Connection, path: Path, now: int) -> CheckReport:
    """Look at everything that can be wrong with a store. Reads the whole file."""
    problems: list[str] = []
    notes: list[str] = []
    damage = [text for (text,) in connection.execute("PRAGMA integrity_check(20)") if text != "ok"]
    problems += [f"damaged: {text}" for text in damage]
    if not damage:
        lost = len(connection.execute("PRAGMA foreign_key_check").fetchall())
        if lost:
            problems.append(f"{lost:,} rows point to a row that is gone; a sweep deletes orphaned content")
        for sql, what in (
            (INCOMPLETE, "entries have content that does not add up to their size"),
            (MISCOUNTED, "runs have a byte count that is not the sum of their entries"),
        ):
            (count,) = connection.execute(sql).fetchone()
            if count:
                problems.append(f"{count:,} {what}")
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (2,):
        problems.append("auto_vacuum is not incremental: sweeping cannot make the file smaller")
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        problems.append(f"others can read the file (mode {mode:o}): chmod 600 it")
    stats = read_stats(connection, path, now)
    if stats.expired:
        notes.append(f"{stats.expired:,} expired entries ({stats.expired_bytes:,} bytes) wait for a sweep")
    return CheckReport(tuple(problems), tuple(notes), stats)


def wal_bytes(path: Path) -> int:
    """The size of the WAL, 0 when there is none to be seen."""
    try:
        return side_file(path, "-wal").stat().st_size
    except OSError:
        return 0


def backup(connection: sqlite3.Connection, target: Path) -> None:
    """Write a consistent, compact copy to ``target``, which must not exist. Other processes may go on writing."""
    # made by us first, because SQLite would make it with the umask's rights
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    try:
        # as bytes: a name need not be UTF-8
        connection.execute("VACUUM INTO CAST(? AS TEXT)", (os.fsencode(target),))
    except BaseException:
        target.unlink()  # a part of a copy must not be taken for one
        raise
