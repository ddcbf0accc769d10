"""What is measured, each behind the same four methods: this store, and what a careful program without it would do."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from scratch import RunScratch, ScratchStore
from tests.support import query, read_back

T = TypeVar("T")


class Subject(Protocol):
    """Something that keeps texts. Only ``put`` and ``read`` are timed."""

    async def put(self, text: str) -> str: ...

    async def read(self, key: str, offset: int, length: int) -> object: ...

    async def whole(self, key: str) -> bytes:
        """All of what was put."""
        ...

    async def forget(self, key: str) -> None: ...

    async def settle(self) -> float:
        """Wait for what goes on in the background; return the seconds of work that a put has left to it."""
        ...


class Ours:
    """This store, as it comes."""

    def __init__(self, store: ScratchStore, run: RunScratch) -> None:
        self.store = store
        self.run = run

    async def put(self, text: str) -> str:
        captured = await self.run.capture(query(text))
        assert captured.handle is not None
        return captured.handle

    async def read(self, key: str, offset: int, length: int) -> str:
        return (await self.run.read_handle(key, offset=offset, length=length)).text

    async def whole(self, key: str) -> bytes:
        return await read_back(self.run, key)

    async def forget(self, key: str) -> None:
        await self.run.delete(key)

    async def settle(self) -> float:
        # Checkpoints run on the upkeep thread; what is handed to it now comes after them. The second time there is
        # nothing before it: that is the price of asking.
        took: list[float] = []
        for _ in range(2):
            started = time.perf_counter()
            await self.store._database._engine.maintain(lambda _: None)
            took.append(time.perf_counter() - started)
        return took[0] - took[1]


class Hop:
    """A thread of one's own, as a program has it that keeps blocking calls off its event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def settle(self) -> float:
        return 0.0

    def close(self) -> None:
        self._thread.shutdown()


class RawSqlite(Hop):
    """One row with one BLOB in an immediate transaction, our pragmas, one hop. Checkpoints as SQLite makes them by
    itself: inside the commit that brings the WAL over 1,000 pages.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._keys = itertools.count(1)
        self._connection = self._thread.submit(self._connect, path).result()

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.executescript(
            """
            PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
            PRAGMA foreign_keys=ON; PRAGMA busy_timeout=5000; PRAGMA secure_delete=FAST;
            PRAGMA journal_size_limit=16777216; PRAGMA trusted_schema=OFF;
            CREATE TABLE content (id INTEGER PRIMARY KEY, data BLOB);
            """
        )
        return connection

    async def put(self, text: str) -> str:
        number = next(self._keys)

        def write() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT INTO content VALUES (?, ?)", (number, text.encode()))
            self._connection.execute("COMMIT")

        await self.run(write)
        return str(number)

    async def read(self, key: str, offset: int, length: int) -> bytes:
        return await self.run(
            self._select, "SELECT substr(data, ?, ?) FROM content WHERE id = ?", offset + 1, length, key
        )

    async def whole(self, key: str) -> bytes:
        return await self.run(self._select, "SELECT data FROM content WHERE id = ?", key)

    def _select(self, sql: str, *arguments: object) -> bytes:
        data: bytes = self._connection.execute(sql, arguments).fetchone()[0]
        return data

    async def forget(self, key: str) -> None:
        await self.run(lambda: self._connection.execute("DELETE FROM content WHERE id = ?", (int(key),)))

    def close(self) -> None:
        self._thread.submit(self._connection.close).result()
        super().close()


class RawFile(Hop):
    """One file a text: opened, written and closed in one hop, no fsync."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._keys = itertools.count(1)
        folder.mkdir()

    async def put(self, text: str) -> str:
        path = f"{self._folder}/{next(self._keys)}"

        def write() -> None:
            with open(path, "xb", buffering=0) as file:  # noqa: PTH123
                file.write(text.encode())

        await self.run(write)
        return path

    async def read(self, key: str, offset: int, length: int) -> bytes:
        def pread() -> bytes:
            with open(key, "rb", buffering=0) as file:  # noqa: PTH123
                return os.pread(file.fileno(), length, offset)

        return await self.run(pread)

    async def whole(self, key: str) -> bytes:
        return await self.run(Path(key).read_bytes)

    async def forget(self, key: str) -> None:
        await self.run(os.unlink, key)
