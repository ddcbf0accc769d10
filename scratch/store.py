"""The store: one SQLite file that holds the scratch of many runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from scratch.budget import ScratchpadUsage
from scratch.cache import SizedCache
from scratch.clock import Clock, now_ms, system_clock, ttl_seconds
from scratch.database import CheckReport, Database, Limits, SecureDelete, StoreStats
from scratch.entries import EntryInfo, RunInfo, Scope, check_name
from scratch.errors import InvalidArgument, RunNotFound
from scratch.metrics import StoreMetrics
from scratch.run import RunScratch, RunSettings
from scratch.spill import SpillPolicy
from scratch.sweeper.sweep import BATCH_ENTRIES, SweepReport, sweep
from scratch.usage import UsageBook
from scratch.windows import check_count

DEFAULT_TTL = 3_600.0
"""Seconds."""
MAX_ENTRY_BYTES = 64 * 1024 * 1024
MAX_RUN_BYTES = 1024 * 1024 * 1024
_TEXTS_BYTES = 128 * 1024 * 1024
"""What the exploration tools looked at last is kept in memory up to this size, for all runs of a store together."""


@dataclass(frozen=True, slots=True)
class _Options:
    path: Path
    create: bool
    read_only: bool
    secure_delete: SecureDelete
    settings: RunSettings


class ScratchStore:
    """A store in one SQLite file; open it with :meth:`open`.

    Tasks of the event loop that opened it may share it. Threads, other loops and forked processes may not: each opens
    its own, and any number of processes may share the file. Every method raises a kind of
    :class:`~scratch.StoreError` when the store cannot do it (closed, locked for over 5 seconds, disk full, …). The last
    16 MiB of a disk (a sixteenth of a small one) are left alone, so that a sweep has room to work in.
    """

    def __init__(self, database: Database, settings: RunSettings) -> None:
        self._database = database
        self._settings = settings

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        policy: SpillPolicy | None = None,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        max_run_bytes: int = MAX_RUN_BYTES,
        secure_delete: SecureDelete = "fast",
        on_usage: Callable[[ScratchpadUsage], None] | None = None,
        clock: Clock = system_clock,
        create: bool = True,
        read_only: bool = False,
    ) -> Opening:
        """Open the store at ``path``: ``async with ScratchStore.open(…) as store``, or await it.

        Args:
            path: The file; made (0600, a new folder 0700) when it is not there. Beside it lie ``-wal`` and ``-shm``,
                and ``-check`` when it was found damaged in use: who opens it next looks through all of it. A damaged
                store is set aside together with them, and a new one begun. Whoever replaces it replaces them, too.
            ttl: How long an entry lives by default: seconds or a timedelta; 1 hour.
            policy: When to spill; the default spills query, workspace and browser results over 8,192 bytes.
            max_entry_bytes: The largest content stored; 64 MiB.
            max_run_bytes: The most that a run may hold; 1 GiB.
            secure_delete: ``"on"``: what was deleted or replaced is in none of the files any more after the next
                :meth:`sweep` whose report has ``wal_bytes`` 0, or after :meth:`close`, whoever deleted it; until then
                it can be in the file and its WAL. Both write the whole file anew for that, unless nobody has written
                since, and writers wait meanwhile: seconds for some 100 MB, and room for a second copy.
            on_usage: Called with the usage of each scope that was active when it closes: with ``run.close()``, with its
                run (completed or deleted) or with the store. What it raises is logged.
            clock: Seconds since the epoch, for tests.
            create: False: a missing store is an error.
            read_only: Only reading methods work, and nothing is written beside the file where that can be helped.

        Raises (when awaited or entered):
            InvalidArgument: a bad argument.
            StoreError: StoreMissing, StoreReadOnly, UnsafePath, ForeignDatabase, SchemaTooNew or StoreBusy.
        """
        limits = Limits(
            check_count(max_entry_bytes, "max_entry_bytes", least=1),
            check_count(max_run_bytes, "max_run_bytes", least=1),
        )
        if secure_delete not in ("fast", "on"):
            msg = 'secure_delete must be "fast" or "on"'
            raise InvalidArgument(msg, argument="secure_delete")
        settings = RunSettings(
            policy or SpillPolicy(), limits, ttl_seconds(ttl), clock, UsageBook(on_usage), SizedCache(_TEXTS_BYTES)
        )
        return Opening(_Options(Path(path).absolute(), create, read_only, secure_delete, settings))

    @property
    def path(self) -> Path:
        """The store's file."""
        return self._database.path

    def _now(self) -> int:
        return now_ms(self._settings.clock)

    async def close(self) -> None:
        """Finish what is being written and close the file. Calling it again does nothing."""
        await self._database.close()
        self._settings.usage.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        database = getattr(self, "_database", None)
        if database is not None and database.abandoned:
            warnings.warn(f"the store {database.path} was not closed", ResourceWarning, stacklevel=1, source=self)

    # --- runs

    async def run(self, run_id: str, *, agent_id: str) -> RunScratch:
        """The scratch of ``agent_id`` in ``run_id``. Makes both when new (the agent owns the run), else joins.

        Args:
            run_id: 1 to 256 bytes of printable text; compared exactly.
            agent_id: Likewise.

        Raises:
            InvalidArgument: a bad id.
            RunNotFound: the store is open for reading only, and the agent is not in that run.
        """
        scope = Scope(check_name(run_id, "run_id"), check_name(agent_id, "agent_id"))
        if not self._database.read_only:
            await self._database.register(scope, self._now())
        elif not await self._database.is_registered(scope):
            msg = f"there is no run {run_id!r} with agent {agent_id!r} in this store"
            raise self._database.counters.missed(RunNotFound(msg, run_id=run_id, agent_id=agent_id))
        return RunScratch(self._database, scope, self._settings)

    async def list_runs(self) -> list[RunInfo]:
        """All runs, the newest first."""
        return await self._database.list_runs(self._now())

    async def complete_run(self, run_id: str) -> None:
        """Note that the run has ended. Its entries live on until they expire; the first time counts.

        Raises:
            RunNotFound: there is no such run.
        """
        if not await self._database.complete_run(check_name(run_id, "run_id"), self._now()):
            msg = f"there is no run {run_id!r} in this store"
            raise self._database.counters.missed(RunNotFound(msg, run_id=run_id))
        self._settings.usage.close(run_id)

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run and everything of it, of all agents; whether it existed. The next sweep gives the space back.

        None of it is live from the first moment on; a large run then goes in small steps that let others write.
        """
        existed = await self._database.delete_run(check_name(run_id, "run_id"))
        self._settings.usage.close(run_id)
        return existed

    async def delete_agent(self, agent_id: str) -> bool:
        """Delete an agent, the runs that it owns and all that it stored; whether it existed."""
        return await self._database.delete_agent(check_name(agent_id, "agent_id"))

    async def list_scratch_entries_for_run(self, run_id: str) -> list[EntryInfo]:
        """The live entries of all agents of a run, the oldest first, without their content.

        Raises:
            RunNotFound: there is no such run.
        """
        run_id = check_name(run_id, "run_id")
        found = await self._database.list_run(run_id, self._now())
        if not found and not await self._database.run_exists(run_id):
            msg = f"there is no run {run_id!r} in this store"
            raise self._database.counters.missed(RunNotFound(msg, run_id=run_id))
        return found

    # --- upkeep

    async def sweep(self, *, dry_run: bool = False, batch_entries: int = BATCH_ENTRIES) -> SweepReport:
        """Delete what has expired and give its space back; writers get in between.

        Args:
            dry_run: Count only; the one kind that a store opened for reading can do.
            batch_entries: Entries deleted in one transaction, at most; 50. A batch also ends after 5 ms.

        Raises:
            InvalidArgument: ``batch_entries`` is not an integer of 1 or more.
        """
        return await sweep(self._database, self._settings.clock, batch_entries=batch_entries, dry_run=dry_run)

    async def check(self) -> CheckReport:
        """Look at all that can be wrong with the file; ``problems`` is empty when all is well. Reads it whole."""
        return await self._database.check(self._now())

    async def stats(self) -> StoreStats:
        """How much of everything there is."""
        return await self._database.stats(self._now())

    def metrics(self) -> StoreMetrics:
        """What was done with this store since it was opened here, counted. No I/O; from any thread, closed or not.

        :meth:`stats` has the counters of the file, to which every process that writes adds its own.
        """
        return self._database.counters.snapshot()

    async def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a consistent, compact copy (0600) to ``target``; other processes may go on writing.

        Raises:
            FileExistsError: there is something at ``target``.
        """
        await self._database.backup(Path(os.path.abspath(target)))  # noqa: ASYNC240, PTH100 - touches no file


class Opening:
    """A store about to be opened: await it, or enter it with ``async with``."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._store: ScratchStore | None = None

    async def _open(self) -> ScratchStore:
        options = self._options
        database = await Database.open(
            options.path,
            create=options.create,
            read_only=options.read_only,
            secure_delete=options.secure_delete,
        )
        return ScratchStore(database, options.settings)

    def __await__(self) -> Generator[None, None, ScratchStore]:
        return self._open().__await__()

    async def __aenter__(self) -> ScratchStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._store is not None
        await self._store.close()
