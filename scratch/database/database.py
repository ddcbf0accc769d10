"""The storage engine on SQLite: what the store can do, as coroutines, each one hop to a thread."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from scratch.database import artifacts, maintenance, statements
from scratch.database import connection as opening
from scratch.database.connection import SecureDelete
from scratch.database.engine import Engine
from scratch.database.maintenance import Batch, CheckReport, StoreStats
from scratch.database.statements import Limits, NewEntry
from scratch.entries import EntryInfo, Kind, RunInfo, Scope
from scratch.errors import StoreBusy, StoreError
from scratch.windows import SLICE, MatchScan

T = TypeVar("T")

_SLICES_A_HOP = 16
_STEP_SECONDS = 0.010
"""A step of a deletion ends after so long: all other writers wait."""
_PAUSE_SECONDS = 0.002
"""Between two steps, in which writers of other processes get in."""
_ERASE_SECONDS = 1.0
"""How long to wait for readers before the WAL is cut, where nothing deleted may stay in it."""
_VACUUM_SECONDS = 0.01
"""A transaction that cuts pages off takes so long at most, and a step with many of them,"""
_VACUUM_SECONDS_BESIDE = 0.0015
"""and so long while others write: they wait."""


class Database:
    """One open store. Tasks of the loop that opened it may share it.

    Threads, other loops and other processes may not (each opens its own, the file is shared). Use :meth:`open`.
    """

    def __init__(self, engine: Engine, *, erases: bool) -> None:
        self._engine = engine
        self.path = engine.path
        self.counters = engine.counters
        self.read_only = engine.read_only
        self.erases = erases
        """Whether nothing that was deleted may stay in the file and its WAL (``secure_delete="on"``)."""
        self._erased: int | None = None
        self._vacuum_version = 0  # of the data, after the last step
        if erases:
            engine.before_close = self._erase_at_last

    @classmethod
    async def open(cls, path: Path, *, create: bool, read_only: bool, secure_delete: SecureDelete) -> Database:
        """Open (and, when needed, make or migrate) the store at ``path``. Cancelling leaves nothing open.

        Raises:
            StoreError: one of its kinds, saying what to do.
        """
        engine = await Engine.open(path, create=create, read_only=read_only, secure_delete=secure_delete)
        return cls(engine, erases=secure_delete == "on")

    async def close(self) -> None:
        """Finish what is being written, then close. Calling it again does nothing. When cancelled, it still closes.

        Raises:
            WrongLoop, WrongProcess: called from another loop or process.
        """
        await self._engine.close()

    @property
    def abandoned(self) -> bool:
        """Whether it is open in this process: what a finalizer asks."""
        return self._engine.abandoned

    # --- runs and agents

    async def register(self, scope: Scope, now: int) -> None:
        """Make the run, or join it. Takes no lock when there is nothing to do."""
        if not await self._engine.read(lambda connection: statements.is_registered(connection, scope)):
            await self._engine.write(lambda connection: statements.register(connection, scope, now))

    async def is_registered(self, scope: Scope) -> bool:
        """Whether the agent takes part in the run."""
        return await self._engine.read(lambda connection: statements.is_registered(connection, scope))

    async def complete_run(self, run_id: str, now: int) -> bool:
        """Set the run's completed_at; whether the run exists."""
        return await self._engine.write(lambda connection: statements.complete_run(connection, run_id, now))

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run and all of it, in short steps; whether it existed."""
        return await self._delete_all(run_id, statements.EXPIRE_RUN, statements.STEP_OF_RUN, statements.DELETE_RUN)

    async def delete_agent(self, agent_id: str) -> bool:
        """Delete an agent, its runs and its entries, in short steps; whether it existed."""
        return await self._delete_all(
            agent_id, statements.EXPIRE_AGENT, statements.STEP_OF_AGENT, statements.DELETE_AGENT
        )

    async def _delete_all(self, name: str, expire: str, step: str, delete: str) -> bool:
        await self._engine.write(lambda connection: connection.execute(expire, (name,)).rowcount)
        while await self._engine.write(  # noqa: ASYNC110 - it deletes; nobody else could signal
            lambda connection: maintenance.delete_step(connection, step, name, _STEP_SECONDS)
        ):
            await asyncio.sleep(_PAUSE_SECONDS)
        return await self._engine.write(lambda connection: connection.execute(delete, (name,)).rowcount) > 0

    async def list_runs(self, now: int) -> list[RunInfo]:
        """All runs, the newest first."""
        return await self._engine.read(lambda connection: statements.list_runs(connection, now))

    async def run_exists(self, run_id: str) -> bool:
        """Whether the run is registered."""
        return await self._engine.read(lambda connection: statements.run_exists(connection, run_id))

    # --- entries

    async def insert_entry(self, new: NewEntry, limits: Limits) -> None:
        """Store a new entry. Returns after the commit.

        Raises:
            RunNotFound, LimitExceeded, StoreError: nothing was stored.
        """
        await self._engine.write(lambda connection: statements.insert_entry(connection, new, limits), new.content.size)

    async def write_note(
        self,
        new: NewEntry,
        limits: Limits,
        *,
        if_version: int | None,
        append_to: Callable[[EntryInfo, bytes], NewEntry] | None,
    ) -> int:
        """Write a note; return its version. See :func:`scratch.database.statements.write_note`."""
        write = partial(statements.write_note, new=new, limits=limits, if_version=if_version, append_to=append_to)
        return await self._engine.write(write, new.content.size)

    async def write_artifact(self, new: NewEntry, limits: Limits, *, replace: bool) -> int | None:
        """Write an artifact; return its version. See :func:`scratch.database.artifacts.write_artifact`."""
        write = partial(artifacts.write_artifact, new=new, limits=limits, replace=replace)
        return await self._engine.write(write, new.content.size)

    async def renew(self, scope: Scope, key: str, now: int, expires_at: int) -> int | None:
        """Prolong a live handle or note; return when it expires now, None when there is none."""
        return await self._engine.write(lambda connection: statements.renew(connection, scope, key, now, expires_at))

    async def delete_entry(self, scope: Scope, key: str, now: int) -> bool:
        """Delete a live handle or note; whether there was one."""
        return await self._engine.write(lambda connection: statements.delete_entry(connection, scope, key, now))

    # In what follows ``scope`` is the reader's: with Kind.ARTIFACT it reads what any agent of the run wrote.

    async def _read_entry(
        self, scope: Scope, kind: Kind, key: str, now: int, function: Callable[[sqlite3.Connection, Scope], T | None]
    ) -> T | None:
        """What ``function`` reads, in one snapshot, in the scope where a live entry stands; None when there is none."""

        def read(connection: sqlite3.Connection) -> T | None:
            owner = artifacts.find_owner(connection, scope, key, now) if kind is Kind.ARTIFACT else scope
            return None if owner is None else function(connection, owner)

        return await self._read_snapshot(read)

    async def _read_snapshot(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """What ``function`` reads with several statements, all of one moment."""

        def read(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return function(connection)
            finally:
                if connection.in_transaction:  # a full disk or damage can have ended it
                    connection.execute("COMMIT")

        return await self._engine.read(read)

    async def get_info(self, scope: Scope, kind: Kind, key: str, now: int) -> EntryInfo | None:
        """A live entry's metadata."""
        return await self._read_entry(
            scope, kind, key, now, lambda connection, owner: statements.get_info(connection, owner, kind, key, now)
        )

    async def get_entry(self, scope: Scope, kind: Kind, key: str, now: int) -> tuple[EntryInfo, bytes] | None:
        """A live entry's metadata and its whole content, of one moment."""

        def read(connection: sqlite3.Connection, owner: Scope) -> tuple[EntryInfo, bytes] | None:
            info = statements.get_info(connection, owner, kind, key, now)
            found = info and statements.read_range(connection, owner, kind, key, now, 0, info.size)
            return None if info is None or not found else (info, found[2])

        return await self._read_entry(scope, kind, key, now, read)

    async def list_scope(
        self, scope: Scope, kind: Kind, now: int, *, prefix: str, after: str, limit: int
    ) -> list[EntryInfo]:
        """Live entries of a scope (or the artifacts of its run) by key."""

        def read(connection: sqlite3.Connection) -> list[EntryInfo]:
            if kind is Kind.ARTIFACT:
                return artifacts.list_artifacts(connection, scope, now, prefix=prefix, after=after, limit=limit)
            return statements.list_scope(connection, scope, kind, now, prefix=prefix, after=after, limit=limit)

        return await self._read_snapshot(read)

    async def list_run(self, run_id: str, now: int) -> list[EntryInfo]:
        """Live entries of all agents of a run, the oldest first."""
        return await self._engine.read(lambda connection: statements.list_run(connection, run_id, now))

    async def read_range(
        self, scope: Scope, kind: Kind, key: str, now: int, start: int, stop: int
    ) -> tuple[int, str, bytes] | None:
        """Size, media type and the bytes ``[start, stop)`` of a live entry; None when it is not live."""
        return await self._read_entry(
            scope,
            kind,
            key,
            now,
            lambda connection, owner: statements.read_range(connection, owner, kind, key, now, start, stop),
        )

    async def read_ranges(
        self, scope: Scope, kind: Kind, key: str, now: int, ranges: list[tuple[int, int]]
    ) -> list[bytes] | None:
        """The bytes of several ranges in one hop; None when the entry is not live (any more)."""

        def read(connection: sqlite3.Connection, owner: Scope) -> list[bytes] | None:
            found = [statements.read_range(connection, owner, kind, key, now, *one) for one in ranges]
            return [one[2] for one in found if one] if all(found) else None

        return await self._read_entry(scope, kind, key, now, read)

    async def scan(self, scope: Scope, kind: Kind, key: str, now: int, search: MatchScan) -> bool:
        """Feed a live entry to ``search`` to its end, a few MiB a hop; False when it is not live (any more)."""

        def feed(connection: sqlite3.Connection, owner: Scope) -> bool:
            for _ in range(_SLICES_A_HOP):
                start = search.next_start
                if start is None:
                    return True
                found = statements.read_range(connection, owner, kind, key, now, start, start + SLICE)
                if not found or not found[2]:
                    return False
                search.feed(found[2])
            return True

        while search.next_start is not None:
            if not await self._read_entry(scope, kind, key, now, feed):
                return False
        return True

    # --- upkeep

    async def delete_expired(self, now: int, *, entries: int, seconds: float) -> Batch:
        """Delete some expired entries in one short transaction."""
        batch = await self._engine.write(
            lambda connection: maintenance.delete_expired(connection, now, entries=entries, seconds=seconds)
        )
        self.counters.values["swept_entries"] += batch.entries
        self.counters.values["swept_bytes"] += batch.bytes
        return batch

    async def has_expired(self, now: int) -> bool:
        """Whether a sweep would delete anything."""
        return await self._engine.read(lambda connection: maintenance.has_expired(connection, now))

    async def count_expired(self, now: int) -> tuple[int, int]:
        """Entries and bytes that a sweep would delete."""
        return await self._engine.read(lambda connection: maintenance.count_expired(connection, now))

    async def delete_orphans(self, limit: int) -> int:
        """Delete the content of up to ``limit`` entries that are gone; return of how many."""
        # looked for first: in a sound store there is none, and no lock is taken. All pieces are gone through for that
        # (a million take 0.6 s), so not on the reader, which others wait for.
        if not await self._engine.maintain(lambda connection: maintenance.find_orphans(connection, 1)):
            return 0
        return await self._engine.write(lambda connection: maintenance.delete_orphans(connection, limit))

    async def give_back_step(self) -> int:
        """Cut free pages off the file for some milliseconds; return the bytes given back, 0 when there is nothing more.

        Also 0 while another process keeps the lock, or the disk has no room for the WAL: the next sweep goes on.
        """

        def step(connection: sqlite3.Connection) -> int:
            self._engine.check_home()
            self._engine.before_group()
            free, page_size = maintenance.free_pages(connection)
            if free == 0:
                return 0
            before = maintenance.all_pages(connection)
            version = maintenance.data_version(connection)
            seconds = _VACUUM_SECONDS if version == self._vacuum_version else _VACUUM_SECONDS_BESIDE
            self._vacuum_version = version
            pages = maintenance.vacuum_pages(free, seconds)
            deadline = time.monotonic() + seconds
            try:
                while free and time.monotonic() < deadline:
                    opening.retry_while_busy(lambda: maintenance.vacuum_step(connection, pages))
                    free, _ = maintenance.free_pages(connection)
            except sqlite3.OperationalError as error:
                if opening.error_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):
                    raise
            return max(0, before - maintenance.all_pages(connection)) * page_size

        given_back = await self._engine.maintain(step)
        self._engine.after_commit(given_back)
        self.counters.values["bytes_given_back"] += given_back
        return given_back

    async def write_back(self) -> None:
        """Write the WAL back, as far as nobody is in the way and the disk has room."""
        await self._engine.write_back()

    async def erase(self) -> None:
        """Leave no trace of what was deleted, by whomever, in the file. The WAL has to be cut after that.

        Everybody who writes waits while the file is written anew. Nothing happens when nobody has written since the
        last time.
        """
        await self._engine.maintain(self._erase)

    def _erase(self, connection: sqlite3.Connection) -> None:
        version = maintenance.data_version(connection)
        if version != self._erased:
            opening.retry_while_busy(lambda: maintenance.rewrite(connection))
            self._erased = version
        maintenance.cut_wal(connection, self.path, _ERASE_SECONDS)

    def _erase_at_last(self, connection: sqlite3.Connection) -> None:
        self._erase(connection)
        if maintenance.wal_bytes(self.path):
            msg = f"somebody who reads the store {self.path.name} stands in the way of cutting its WAL"
            raise StoreBusy(msg)

    async def truncate_wal(self) -> int:
        """Write the WAL back and cut it to nothing when nobody is in the way; return its bytes afterwards."""

        def truncate(connection: sqlite3.Connection) -> int:
            if maintenance.wal_bytes(self.path):  # else no lock is taken
                maintenance.checkpoint(connection, self.path, truncate=True)
            return maintenance.wal_bytes(self.path)

        return await self._engine.maintain(truncate)

    async def save_counts(self) -> None:
        """Add what was counted to the counters of the file. A failure is logged, and it is tried again later."""
        await asyncio.shield(self._engine.save_counts())  # cancelled half way, they would be lost

    async def stats(self, now: int) -> StoreStats:
        """Figures of the store."""

        def read(connection: sqlite3.Connection) -> StoreStats:
            self._engine.check_home()
            return maintenance.read_stats(connection, self.path, now)

        return await self._engine.read(read)

    async def check(self, now: int) -> CheckReport:
        """Look at everything that can be wrong."""

        def check(connection: sqlite3.Connection) -> CheckReport:
            self._engine.check_home()
            return maintenance.check(connection, self.path, now)

        return await self._engine.read(check)

    async def backup(self, target: Path) -> None:
        """Write a consistent, compact copy to ``target`` (0600), which must not exist.

        Raises:
            FileExistsError: it exists.
        """
        made = False

        def copy(connection: sqlite3.Connection) -> None:
            nonlocal made
            if self.read_only:  # the file is open with mode=ro; query_only refuses to write the copy as well
                connection.execute("PRAGMA query_only=OFF")
            maintenance.backup(connection, target)
            made = True

        try:
            await (self._engine.read(copy) if self.read_only else self._engine.maintain(copy))
        except StoreError:
            if made:  # out of a file that changed meanwhile
                await asyncio.to_thread(target.unlink)
            raise
