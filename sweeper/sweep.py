"""One sweep: delete what has expired, then give the space back. A plain coroutine; a schedule is somebody else's."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from scratch.clock import Clock, now_ms
from scratch.database import Database
from scratch.errors import InvalidArgument
from scratch.windows import check_count

BATCH_ENTRIES = 50
BATCH_SECONDS = 0.0015
"""A batch ends after so much time with the write lock, in which every other writer waits."""
PAUSE_SECONDS = 0.002
"""Between two steps, so that writers of other processes get in between."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one pass did. Sizes are bytes."""

    entries: int
    """Expired entries deleted (in a dry run: that would be)."""
    bytes: int
    """Content bytes of those."""
    batches: int
    given_back: int
    """Bytes by which the file became smaller."""
    wal_bytes: int
    """Size of the WAL afterwards; not 0 when a reader or writer was in the way."""
    seconds: float
    dry_run: bool = False


async def sweep(
    database: Database,
    clock: Clock,
    *,
    batch_entries: int = BATCH_ENTRIES,
    pause: float = PAUSE_SECONDS,
    dry_run: bool = False,
) -> SweepReport:
    """Sweep once. Any number of sweepers and writers may be at work on the same file.

    What expires during the pass waits for the next one, so that a pass always ends. Cancelled, it has deleted whole
    batches and nothing else.

    Args:
        database: An open store.
        clock: Tells what has expired.
        batch_entries: Entries deleted in one transaction, at most; 1 or more.
        pause: Seconds between two transactions.
        dry_run: Count only.

    Raises:
        InvalidArgument: ``batch_entries`` is not an integer of 1 or more, or ``pause`` is below 0.
        StoreError: a batch failed; those before it are done.
    """
    check_count(batch_entries, "batch_entries", least=1)
    if pause < 0:
        raise InvalidArgument("pause must be 0 seconds or more", argument="pause")
    started = time.monotonic()
    now = now_ms(clock)
    if dry_run:
        entries, size = await database.count_expired(now)
        stats = await database.stats(now)
        return SweepReport(entries, size, 0, 0, stats.wal_bytes, time.monotonic() - started, dry_run=True)
    entries = size = batches = 0
    more = await database.has_expired(now)  # nothing expired: no lock is taken
    if more:  # on a full disk the WAL's own room is what there is for deleting
        await database.write_back()
    while more:
        batch = await database.delete_expired(now, entries=batch_entries, seconds=BATCH_SECONDS)
        entries += batch.entries
        size += batch.bytes
        batches += batch.entries > 0
        more = batch.more
        if more:
            await asyncio.sleep(pause)
    while await database.delete_orphans(batch_entries):  # noqa: ASYNC110 - it deletes; nobody else could signal
        await asyncio.sleep(pause)
    given_back = 0
    while step := await database.give_back_step():
        given_back += step
        await asyncio.sleep(pause)
    database.counters.values["sweeps"] += 1
    if batches or given_back:  # else no lock is taken; and before the WAL is cut, or it would grow again
        await database.save_counts()
    if database.erases:
        await database.erase()
    wal = await database.truncate_wal()
    return SweepReport(entries, size, batches, given_back, wal, time.monotonic() - started)
