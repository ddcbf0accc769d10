"""Running functions on a connection's thread: one hop an operation, commits in groups."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiosqlite

from scratch.database.connection import begin, store_error
from scratch.errors import StoreClosed

T = TypeVar("T")

CLOSED = "the store is closed; open it again"
GROUP_ENTRIES = 64
GROUP_BYTES = 4 * 1024 * 1024
"""A group is closed at so many writes or content bytes: it holds the lock that other processes wait for."""


class Worker:
    """One SQLite connection on its aiosqlite thread. Tasks of the opening loop may share it.

    aiosqlite's public calls are one statement each; three hops to the thread and back cost three times the work of a
    small put. So whole functions are handed to the thread, through the method that those calls are made of.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection], path: Path) -> None:
        self._connection = aiosqlite.Connection(connector, 64)
        # A script that forgets to close the store must still exit; what was acknowledged is committed.
        self._connection._thread.daemon = True  # noqa: SLF001
        self._path = path

    async def start(self) -> None:
        """Connect, on the thread."""
        try:
            await self._connection
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``function`` on the thread. When cancelled, it still waits for the function to return.

        The thread cannot be interrupted, and must not call back into a loop that is gone by then.

        Raises:
            StoreError: the named error for what sqlite3 raised, or StoreClosed.
        """
        if self.closed:
            raise StoreClosed(CLOSED)
        try:
            return await self._connection._execute(self._run, function)  # type: ignore[no-any-return, no-untyped-call]  # noqa: SLF001
        except asyncio.CancelledError:
            await self._settle()
            raise
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    @property
    def closed(self) -> bool:
        """Whether the connection is closed (or was never made)."""
        return self._connection._connection is None or not self._connection._running  # noqa: SLF001

    def _run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return function(self._connection._conn)  # noqa: SLF001

    async def _settle(self) -> None:
        """Wait until the thread has done all that it was given, whoever cancels."""
        if self.closed:
            return
        done = asyncio.ensure_future(self._connection._execute(int))  # type: ignore[no-untyped-call]  # noqa: SLF001
        while not done.done():
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:
                continue

    async def close(self) -> None:
        """Close the connection and end the thread."""
        try:
            await self._connection.close()
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error


@dataclass(slots=True)
class _Write(Generic[T]):
    function: Callable[[sqlite3.Connection], T]
    size: int
    future: asyncio.Future[T]


class GroupCommit:
    """Writes that wait for the thread are committed together, each acknowledged after that commit, each failing alone.

    A lone write does not wait for company: it is taken at once, and those that come meanwhile form the next group.
    """

    def __init__(self, worker: Worker, path: Path, after_commit: Callable[[], None]) -> None:
        self._worker = worker
        self._path = path
        self._after_commit = after_commit
        self._waiting: deque[_Write[Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def write(self, function: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run ``function`` in a transaction; return when that is committed.

        Args:
            function: What to do, synchronous, in one transaction; raising takes back what it did, and only that.
            size: Content bytes that it will write.

        Raises:
            StoreError: nothing was written.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(function, size, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), name="scratch-group-commit")
        return await future

    async def finish(self) -> None:
        """Wait until no write is waiting."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        """Commit group after group until none waits. Cancelled at a loop's end, it finishes what waits first."""
        cancelled = False
        try:
            while group := self._next_group():
                outcomes: list[object] = []
                try:
                    await self._worker.call(partial(self._commit, group, outcomes))
                except asyncio.CancelledError:
                    cancelled = True  # call() has waited for the commit all the same
                except Exception as error:  # noqa: BLE001 - handed to each waiting task
                    outcomes = [error] * len(group)
                for write, outcome in zip(group, outcomes, strict=True):
                    if write.future.done():
                        continue  # cancelled meanwhile
                    if isinstance(outcome, Exception):
                        write.future.set_exception(outcome)
                    else:
                        write.future.set_result(outcome)
                self._after_commit()
        finally:
            self._task = None
        if cancelled:
            raise asyncio.CancelledError

    def _next_group(self) -> list[_Write[Any]]:
        group: list[_Write[Any]] = []
        size = 0
        while self._waiting and len(group) < GROUP_ENTRIES and size < GROUP_BYTES:
            write = self._waiting.popleft()
            if not write.future.done():
                group.append(write)
                size += write.size
        return group

    def _commit(self, group: list[_Write[Any]], outcomes: list[object], connection: sqlite3.Connection) -> None:
        """On the thread: one transaction. Never raises; ``outcomes`` gets a result or an exception for each write."""
        try:
            begin(connection)
            outcomes.extend(self._one(connection, write) for write in group)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - each write gets it
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            outcomes[:] = [self._named(error) for _ in group]

    def _one(self, connection: sqlite3.Connection, write: _Write[Any]) -> object:
        connection.execute("SAVEPOINT one")
        try:
            result = write.function(connection)
        except Exception as error:
            if not connection.in_transaction:
                raise  # SQLite took back the whole transaction (a full disk can do that): all have failed
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            return self._named(error)
        connection.execute("RELEASE one")
        return result

    def _named(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        named = store_error(error, self._path)
        named.__cause__ = error
        return named
