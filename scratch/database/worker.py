"""Running functions on a connection's thread: one hop an operation, commits in groups."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiosqlite

from scratch.database.connection import begin, damaged, error_code, store_error
from scratch.database.files import ask_for_check
from scratch.database.forks import GATE
from scratch.errors import ForeignDatabase, StoreClosed, StoreCorrupt

T = TypeVar("T")

CLOSED = "the store is closed; open it again"
GROUP_ENTRIES = 64
GROUP_BYTES = 4 * 1024 * 1024
"""A group is closed at so many writes or content bytes: it holds the lock that other processes wait for."""


class Worker:
    """One SQLite connection on its aiosqlite thread. Tasks of one event loop may share it.

    aiosqlite's public calls are one statement each; three hops to the thread and back cost three times the work of a
    small put. So whole functions are put into the thread's queue. They go there without one of aiosqlite's futures:
    the thread would die, with a traceback, on one whose loop is closed by then.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._closed = False
        self._aiosqlite = aiosqlite.Connection(lambda: connection, 64)
        # A script that forgets to close the store must still exit; what was acknowledged is committed.
        self._aiosqlite._thread.daemon = True  # noqa: SLF001
        self._aiosqlite._thread.start()  # noqa: SLF001

    def submit(self, function: Callable[[sqlite3.Connection], T], done: Callable[[T | BaseException], None]) -> None:
        """Run ``function`` on the thread, then call ``done`` on the loop with its result, or with what it raised.

        ``done`` is not called when the loop is closed by then. Errors of sqlite3 arrive as the named StoreError.
        """
        loop = asyncio.get_running_loop()
        if self._closed:
            loop.call_soon(done, StoreClosed(CLOSED))
            return
        connection, path = self._connection, self._path

        def job() -> None:
            nonlocal function, done
            outcome: T | BaseException
            try:
                with GATE.work():
                    outcome = function(connection)
            except BaseException as error:  # noqa: BLE001 - handed on
                outcome = named(error, path)
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_telling(done, outcome))
            # The thread keeps its last job until the next one comes: not the content in it, nor a forgotten store.
            del function, done

        self._put(job)

    def _put(self, job: Callable[[], object]) -> None:
        self._aiosqlite._tx.put_nowait((None, job))  # noqa: SLF001

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``function`` on the thread and return what it returns. Cancelling does not stop it.

        Raises:
            StoreError: the named error for what sqlite3 raised, or StoreClosed; and whatever else it raises.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(function, partial(settle, future))
        return await future

    def close(self) -> asyncio.Future[None]:
        """Do what is queued, close the connection and end the thread; the future is done when that is done."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        thread = self._aiosqlite._thread  # noqa: SLF001

        def done(outcome: BaseException | None) -> None:
            thread.join()  # it has nothing left to do
            settle(future, outcome)

        self.submit(GATE.close, done)
        self._end()
        return future

    def _end(self) -> None:
        self._closed = True
        # stop() on its own thread: there it finds no loop, and makes no future
        self._put(self._aiosqlite.stop)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._put(partial(GATE.close, self._connection))
            self._end()


def _telling(done: Callable[[Any], None], outcome: object) -> Callable[[], None]:
    """A callback without arguments: asyncio's debug mode writes those into its log, and an outcome can be content."""
    return lambda: done(outcome)


def settle(future: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Give a waiting task its result, or what was raised; nothing when it was cancelled meanwhile."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
        future.exception()  # counts as seen: a task that is cancelled just now will not look at it
    else:
        future.set_result(outcome)


def named(error: BaseException, path: Path) -> BaseException:
    """The StoreError for an error of sqlite3; any other error as it is."""
    if isinstance(error, sqlite3.Error):
        store = store_error(error, path)
        if isinstance(store, StoreCorrupt | ForeignDatabase):  # it was ours when it was opened
            ask_for_check(path)
            store = damaged(path)
        store.__cause__ = error
        return store
    if isinstance(error, StopIteration):  # a future does not take it
        return RuntimeError(f"a function on the store's thread raised {error!r}")
    return error


@dataclass(slots=True)
class _Write(Generic[T]):
    function: Callable[[sqlite3.Connection], T]
    size: int
    future: asyncio.Future[T]


class GroupCommit:
    """Writes that wait for the thread are committed together, each acknowledged after that commit, each failing alone.

    A lone write does not wait for company: it is taken at once, and those that come meanwhile form the next group.
    All of it is callbacks. A task could be cancelled by a loop that ends, and every waiting write with it.
    """

    def __init__(
        self,
        worker: Worker,
        path: Path,
        after_commit: Callable[[int], None],
        before_group: Callable[[], None] = lambda: None,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._path = path
        self._after_commit = after_commit
        self._before_group = before_group  # on the thread, as the next one
        self._before_commit = before_commit  # what it raises fails the group
        self._waiting: deque[_Write[Any]] = deque()
        self._running = False
        self._idle: list[asyncio.Future[None]] = []

    async def write(self, function: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run ``function`` in a transaction; return when that is committed.

        Cancelled, it is not run when it was still waiting; else it is committed all the same.

        Args:
            function: What to do, synchronous, in one transaction; raising takes back what it did, and only that.
            size: Content bytes that it will write.

        Raises:
            StoreError: nothing was written.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Write(function, size, future))
        if not self._running:
            self._running = True
            loop.call_soon(self._start_group)  # with all that come in this turn of the loop
        return await future

    def finish(self) -> asyncio.Future[None]:
        """A future that is done when no write is waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._running:
            self._idle.append(future)
        else:
            future.set_result(None)
        return future

    def _start_group(self) -> None:
        group = self._next_group()
        if group:
            self._worker.submit(partial(self._commit, group), partial(self._end_group, group))
            return
        self._running = False
        for future in self._idle:
            settle(future, None)
        self._idle.clear()

    def _commit(self, group: Sequence[_Write[Any]], connection: sqlite3.Connection) -> list[object]:
        self._before_group()
        return _commit(group, self._path, self._before_commit, connection)

    def _next_group(self) -> list[_Write[Any]]:
        group: list[_Write[Any]] = []
        size = 0
        while self._waiting and len(group) < GROUP_ENTRIES and size < GROUP_BYTES:
            write = self._waiting.popleft()
            if not write.future.done():
                group.append(write)
                size += write.size
        return group

    def _end_group(self, group: Sequence[_Write[Any]], outcomes: Sequence[object] | BaseException) -> None:
        if isinstance(outcomes, BaseException):
            outcomes = [outcomes] * len(group)
        for write, outcome in zip(group, outcomes, strict=True):
            settle(write.future, outcome)
        try:
            self._after_commit(sum(write.size for write in group))
        finally:
            self._start_group()


def _commit(
    group: Sequence[_Write[Any]], path: Path, before_commit: Callable[[], None], connection: sqlite3.Connection
) -> list[object]:
    """On the thread: one transaction. Returns for each write its result, or the exception that it raised.

    Savepoints cost as much as a small write. So the group runs without them first, and with them only when one of it
    has failed: then the others are done again.
    """
    try:
        return _in_transaction(connection, path, [write.function for write in group], before_commit)
    except BaseException as error:
        if len(group) == 1 or error_code(error) == sqlite3.SQLITE_BUSY:
            raise
    functions = [partial(_one, write=write, path=path) for write in group]
    return _in_transaction(connection, path, functions, before_commit)


def _in_transaction(
    connection: sqlite3.Connection,
    path: Path,
    functions: Sequence[Callable[[sqlite3.Connection], object]],
    before_commit: Callable[[], None],
) -> list[object]:
    begin(connection, path)
    try:
        outcomes = [function(connection) for function in functions]
        before_commit()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return outcomes


def _one(connection: sqlite3.Connection, write: _Write[Any], path: Path) -> object:
    connection.execute("SAVEPOINT one")
    try:
        result = write.function(connection)
    except BaseException as error:
        if not connection.in_transaction:
            raise  # SQLite took back the whole transaction (a full disk can do that): all have failed
        connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return named(error, path)
    connection.execute("RELEASE one")
    return result
