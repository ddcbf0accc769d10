"""An open store's connections and threads: opening, closing, and handing functions over to them."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from scratch.database import connection as opening
from scratch.database import maintenance
from scratch.database.connection import SecureDelete
from scratch.database.files import wait_for_checkpoint
from scratch.database.worker import CLOSED, GroupCommit, Worker, settle
from scratch.errors import StoreClosed, StoreFull, StoreMissing, StoreReadOnly, WrongLoop, WrongProcess
from scratch.metrics import Counters

logger = logging.getLogger("scratch")
T = TypeVar("T")

CHECKPOINT_AT_BYTES = 4 * 1024 * 1024
"""After so much was written, the WAL is written back in the background."""
_PAGES_A_GROUP = 64 * 1024
"""Bytes of a group's pages in the WAL beside the content, about: rows, indexes, counters."""
RESTART_AT_BYTES = 16 * 1024 * 1024
"""From a WAL file of this size on, one tries again and again to write all of it back: then it begins at its start."""
RESTART_SECONDS = 1.0
"""How long one tries."""
WAIT_AT_BYTES = 24 * 1024 * 1024
"""From this size on, writers wait meanwhile: else one that never catches up could go on for ever."""
WAIT_SECONDS = 0.04
"""How long they wait, each time."""
RESERVE_BYTES = 16 * 1024 * 1024
"""Of the disk is left to others, and to the sweep: to delete anything needs room too. A sixteenth of a small disk."""
_PLENTY_BYTES = 1024 * 1024 * 1024
"""With more than that to spare the WAL is not looked at."""
SAVE_COUNTS_SECONDS = 10.0
"""So long after the counts were last saved, they go with the next write."""
_READ_ONLY = "this store was opened for reading only"


class Engine:
    """A connection that writes, one that reads and one for upkeep, each with its thread. Use :meth:`open`.

    One opened for reading has none of them: it opens the file anew for each function, and leaves no trace beside it.
    """

    def __init__(self, path: Path, connections: opening.Connections | None) -> None:
        self.path = path
        self.read_only = connections is None
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closing: asyncio.Future[None] | None = None
        self.counters = Counters()
        self._save_at = time.monotonic() + SAVE_COUNTS_SECONDS
        self._unchecked = 0  # bytes written since a checkpoint was last begun, about
        self._restart_at = RESTART_AT_BYTES
        self.before_close: Callable[[sqlite3.Connection], None] | None = None
        """Run on the upkeep connection when all is written. What it raises is logged."""
        self.writer: Worker | None = None
        self.upkeep: Worker | None = None
        self.reader: Worker | None = None
        self._home = None if connections is None else connections.home
        if connections is not None:
            self.writer = Worker(connections.writer, path)
            # Checkpoints and space-giving wait for the disk; on a thread of their own nobody waits with them.
            self.upkeep = Worker(connections.upkeep, path)
            self.reader = Worker(connections.reader, path)
            self._commits = GroupCommit(self.writer, path, self.after_commit, self.before_group, self.check_home)

    @classmethod
    async def open(cls, path: Path, *, create: bool, read_only: bool, secure_delete: SecureDelete) -> Engine:
        """Open (and, when needed, make or migrate) the store at ``path``. Cancelling leaves nothing open.

        Raises:
            StoreError: one of its kinds, saying what to do.
        """
        if read_only:
            await asyncio.to_thread(opening.look_at, path)
            return cls(path, None)
        open_store = partial(opening.open_store, path, create=create, secure_delete=secure_delete)
        future = asyncio.get_running_loop().run_in_executor(None, open_store)
        if await _outlast(future):
            if future.exception() is None:
                future.result().close()
            raise asyncio.CancelledError
        return cls(path, future.result())

    async def close(self) -> None:
        """Finish what is being written, then close. Calling it again does nothing. When cancelled, it still closes.

        Raises:
            WrongLoop, WrongProcess: called from another loop or process.
        """
        if self._closing is not None and self._closing.done():
            return
        self._check_home(closing=True)
        cancelled = False
        if self._closing is not None:
            cancelled = await _outlast(self._closing)
        else:
            self._closing = self._loop.create_future()
            if self.writer is not None:
                cancelled |= await _outlast(self.save_counts())
                cancelled |= await _outlast(self._commits.finish())
            if self.upkeep is not None and self.before_close is not None:
                last: asyncio.Future[None] = self._loop.create_future()
                self.upkeep.submit(self.before_close, partial(settle, last))
                cancelled |= await _outlast(last)
                if error := last.exception():
                    logger.error("what was deleted from %s can still be in it; sweep it", self.path, exc_info=error)
            for worker in (self.reader, self.upkeep, self.writer):
                if worker is not None:
                    if worker is self.writer:  # now alone
                        worker.submit(self._home_left, lambda _: None)
                    cancelled |= await _outlast(worker.close())
            self._closing.set_result(None)
        if cancelled:
            raise asyncio.CancelledError

    @property
    def abandoned(self) -> bool:
        """Whether it is open in this process: what a finalizer asks."""
        return self._closing is None and os.getpid() == self._pid

    def _check_home(self, *, closing: bool = False) -> None:
        if os.getpid() != self._pid:
            msg = "this store was opened by another process; open one of your own after a fork"
            raise WrongProcess(msg)
        if asyncio.get_running_loop() is not self._loop:
            msg = "this store belongs to the event loop that opened it; open one in this loop"
            raise WrongLoop(msg)
        if self._closing is not None and not closing:
            raise StoreClosed(CLOSED)

    def check_home(self) -> None:
        """Look whether the files of a store that is open for writing are where they were opened. For any thread.

        Raises:
            StoreMissing: one was deleted, moved or replaced.
        """
        if self._home is not None:
            self._home.check()

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``function`` on the reading connection. All that it reads in one statement is of one moment."""
        with self.counters:
            self._check_home()
            if self.reader is None:
                return await asyncio.to_thread(opening.read_once, self.path, function)
            return await self.reader.call(function)

    async def write(self, function: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run ``function`` in a transaction of the writing connection; see :meth:`GroupCommit.write`."""
        with self.counters:
            self._check_home()
            if self.writer is None:
                raise StoreReadOnly(_READ_ONLY)
            if size:
                self._check_room(size)
            if time.monotonic() >= self._save_at:
                # begins before this write's group does, and is in it; not awaited, for it must not fail this write
                self.save_counts()
            try:
                return await self._commits.write(function, size)
            except StoreFull:  # the WAL cannot grow; written back, it can begin anew at its start
                await self.write_back()
            return await self._commits.write(function, size)

    def _check_room(self, size: int) -> None:
        """Look whether the disk has room for a content of ``size`` bytes. Takes about 2 microseconds.

        Who fills the disk to its end can neither delete anything nor write the WAL back, and is stuck.
        """
        try:
            disk = os.statvfs(self.path)
        except OSError:  # the write itself will tell
            return
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        # it goes into the WAL, and from there, with what is there already, into the file
        spare = free - 2 * size - min(RESERVE_BYTES, total // 16)
        if spare < _PLENTY_BYTES and spare < maintenance.wal_bytes(self.path):
            msg = f"no room left for the store {self.path.name}: the disk has {free:,} bytes; free some, or sweep"
            raise StoreFull(msg, free=free)

    async def maintain(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``function`` on the upkeep connection, outside a transaction."""
        with self.counters:
            self._check_home()
            if self.upkeep is None:
                raise StoreReadOnly(_READ_ONLY)
            return await self.upkeep.call(function)

    def save_counts(self) -> asyncio.Task[None]:
        """Begin to add what was counted since the last time to the counters of the file.

        The task does not fail: it logs, and the counts go with a later write.
        """
        self._save_at = time.monotonic() + SAVE_COUNTS_SECONDS
        self._saving = asyncio.create_task(self._save_counts())  # a task that nobody refers to can vanish
        return self._saving

    async def _save_counts(self) -> None:
        if not (counts := self.counters.take_unsaved()):
            return
        try:
            await self._commits.write(lambda connection: maintenance.add_counts(connection, counts))
        except Exception:
            self.counters.put_back(counts)
            logger.warning("counters of %s were not saved; a later write tries again", self.path.name, exc_info=True)

    def _home_left(self, connection: sqlite3.Connection) -> None:
        """Before closing. SQLite leaves the WAL of a file that was moved: to another file it would bring old rows."""
        try:
            self.check_home()
        except StoreMissing:
            maintenance.checkpoint_alone(connection)

    async def write_back(self) -> None:
        """Write the WAL back, as far as nobody is in the way and the disk has room."""
        if self.upkeep is None:
            return
        with suppress(StoreFull):
            await self.upkeep.call(self._checkpoint)

    def before_group(self) -> None:
        """On the writer's thread. Let a checkpoint catch up."""
        if maintenance.wal_bytes(self.path) > WAIT_AT_BYTES:
            wait_for_checkpoint(self.path, WAIT_SECONDS)

    def after_commit(self, size: int) -> None:
        """Keep the WAL small. On the loop, when about ``size`` bytes were written."""
        assert self.upkeep is not None
        self._unchecked += size + _PAGES_A_GROUP
        wal = maintenance.wal_bytes(self.path)
        if wal <= RESTART_AT_BYTES:
            self._restart_at = RESTART_AT_BYTES
        if wal > self._restart_at:
            self._restart_at = wal + RESTART_AT_BYTES  # when a reader stands in the way, not again at once
            self._unchecked = 0
            self.upkeep.submit(
                lambda connection: maintenance.restart_wal(connection, self.path, RESTART_SECONDS), self._restarted
            )
        elif self._unchecked > CHECKPOINT_AT_BYTES:
            self._unchecked = 0
            self.upkeep.submit(self._checkpoint, self._report)

    def _checkpoint(self, connection: sqlite3.Connection) -> bool:
        return maintenance.checkpoint(connection, self.path)

    def _restarted(self, outcome: object) -> None:
        if outcome is True:
            self._restart_at = RESTART_AT_BYTES
        self._report(outcome)

    def _report(self, outcome: object) -> None:
        if isinstance(outcome, BaseException) and not isinstance(outcome, StoreClosed):  # closing makes the last one
            logger.error("a checkpoint of %s failed; a later write tries again", self.path.name, exc_info=outcome)


async def _outlast(future: asyncio.Future[T]) -> bool:
    """Wait until ``future`` is done, even when cancelled meanwhile; whether that happened. Its result is not looked at.

    For what must be finished: a cancelled open must close what it opened. Only a future that is not a task is safe
    from the end of the loop, which cancels every task.
    """
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
