"""An open store's connections and threads: opening, closing, and handing functions over to them."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from scratch.database import connection as opening
from scratch.database import maintenance
from scratch.database.connection import SecureDelete
from scratch.database.worker import CLOSED, GroupCommit, Worker, settle
from scratch.errors import StoreClosed, StoreReadOnly, WrongLoop, WrongProcess

logger = logging.getLogger("scratch")
T = TypeVar("T")

CHECKPOINT_AT_BYTES = 4 * 1024 * 1024
"""After so much was written, the WAL is written back in the background."""
_PAGES_A_GROUP = 64 * 1024
"""Bytes of a group's pages in the WAL beside the content, about: rows, indexes, counters."""
RESTART_AT_BYTES = 16 * 1024 * 1024
"""From a WAL file of this size on, the next write waits until it can begin at the WAL's start again."""
RESTART_SECONDS = 0.2
"""How long it waits for readers that stand in the way."""
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
        self._unchecked = 0  # bytes written since a checkpoint was last begun, about
        self._restart_at = RESTART_AT_BYTES
        self.before_close: Callable[[sqlite3.Connection], None] | None = None
        """Run on the upkeep connection when all is written. What it raises is logged."""
        self.writer: Worker | None = None
        self.upkeep: Worker | None = None
        self.reader: Worker | None = None
        if connections is not None:
            self.writer = Worker(connections.writer, path)
            # Checkpoints and space-giving wait for the disk; on a thread of their own nobody waits with them.
            self.upkeep = Worker(connections.upkeep, path)
            self.reader = Worker(connections.reader, path)
            self._commits = GroupCommit(self.writer, path, self._after_commit)

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
                cancelled |= await _outlast(self._commits.finish())
            if self.upkeep is not None and self.before_close is not None:
                last: asyncio.Future[None] = self._loop.create_future()
                self.upkeep.submit(self.before_close, partial(settle, last))
                cancelled |= await _outlast(last)
                if error := last.exception():
                    logger.error("what was deleted from %s can still be in it; sweep it", self.path, exc_info=error)
            for worker in (self.reader, self.upkeep, self.writer):
                if worker is not None:
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

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``function`` on the reading connection. All that it reads in one statement is of one moment."""
        self._check_home()
        if self.reader is None:
            return await asyncio.to_thread(opening.read_once, self.path, function)
        return await self.reader.call(function)

    async def write(self, function: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run ``function`` in a transaction of the writing connection; see :meth:`GroupCommit.write`."""
        self._check_home()
        if self.writer is None:
            raise StoreReadOnly(_READ_ONLY)
        return await self._commits.write(function, size)

    async def maintain(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``function`` on the upkeep connection, outside a transaction."""
        self._check_home()
        if self.upkeep is None:
            raise StoreReadOnly(_READ_ONLY)
        return await self.upkeep.call(function)

    def _after_commit(self, size: int) -> None:
        """Keep the WAL small. On the loop, after each group of ``size`` bytes and before the next one.

        A checkpoint beside writers gets behind them when they never pause, and then the WAL grows on: at some size
        the writer makes one itself.
        """
        assert self.writer is not None
        assert self.upkeep is not None
        self._unchecked += size + _PAGES_A_GROUP
        wal = maintenance.wal_bytes(self.path)
        if wal <= RESTART_AT_BYTES:
            self._restart_at = RESTART_AT_BYTES
        if wal > self._restart_at:
            self._restart_at = wal + RESTART_AT_BYTES  # when a reader stands in the way, not again at once
            self.writer.submit(lambda connection: maintenance.restart_wal(connection, RESTART_SECONDS), self._restarted)
        elif self._unchecked > CHECKPOINT_AT_BYTES:
            self._unchecked = 0
            self.upkeep.submit(lambda connection: maintenance.checkpoint(connection, "PASSIVE"), self._report)

    def _restarted(self, outcome: object) -> None:
        if outcome is True:
            self._restart_at = RESTART_AT_BYTES
        self._report(outcome)

    def _report(self, outcome: object) -> None:
        if isinstance(outcome, BaseException):
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
