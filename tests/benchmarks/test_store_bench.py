"""Storing and reading back, against raw sqlite3: one row with one BLOB, the same pragmas, a hop to a thread."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scratch import ScratchStore
from tests.benchmarks.harness import medians, report
from tests.support import query

pytestmark = pytest.mark.benchmark

SIZES = {"8 KiB": 8 * 1024 + 1, "100 KiB": 100 * 1024, "1 MiB": 1024 * 1024, "10 MiB": 10 * 1024 * 1024}


class Raw:
    """The baseline: what a careful program without run-scratch would do."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._connection = self._thread.submit(self._connect, path).result()

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.executescript(
            "PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
            "PRAGMA secure_delete=FAST; CREATE TABLE content (id INTEGER PRIMARY KEY, data BLOB)"
        )
        return connection

    async def run(self, function: object, *arguments: object) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)  # type: ignore[arg-type]

    async def put(self, number: int, data: bytes) -> None:
        def write() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM content WHERE id = ?", (number - 2,))
            self._connection.execute("INSERT INTO content VALUES (?, ?)", (number, data))
            self._connection.execute("COMMIT")

        await self.run(write)

    async def read(self, number: int, offset: int, length: int) -> bytes:
        def select() -> bytes:
            sql = "SELECT substr(data, ?, ?) FROM content WHERE id = ?"
            data: bytes = self._connection.execute(sql, (offset + 1, length, number)).fetchone()[0]
            return data

        return await self.run(select)  # type: ignore[return-value]

    def close(self) -> None:
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()


@pytest.mark.parametrize("name", SIZES)
async def test_put_and_read(name: str, tmp_path: Path) -> None:
    size = SIZES[name]
    text = ("0123456789abcdef" * (size // 16 + 1))[:size]
    data = text.encode()
    raw = Raw(tmp_path / "raw.db")
    numbers = itertools.count(1)
    async with ScratchStore.open(tmp_path / "scratch.db") as store:
        run = await store.run("bench", agent_id="bench")
        handles: list[str] = []

        async def capture() -> None:
            captured = await run.capture(query(text))
            assert captured.handle is not None
            handles.append(captured.handle)

        async def forget() -> None:  # put n, delete n - 2: a file that only grows measures first touches of memory
            if len(handles) > 2:
                await run.delete(handles.pop(0))

        async def capture_only() -> None:
            await capture()

        async def raw_put() -> None:
            await raw.put(next(numbers), data)

        puts = await medians(
            {"scratch": capture_only, "(delete)": forget, "raw": raw_put}, rounds=200 if size < 2**20 else 40
        )
        last = next(numbers) - 1
        at = size - 4096
        reads = await medians(
            {
                "scratch": lambda: run.read_handle(handles[-1], offset=at, length=4096),
                "raw": lambda: raw.read(last, at, 4096),
            },
            rounds=200,
        )
        report(
            f"capture and read 4 KiB at the end, {name} (ms)",
            [
                {"what": "put", "scratch": puts["scratch"], "raw": puts["raw"], "ratio": puts["scratch"] / puts["raw"]},
                {
                    "what": "read",
                    "scratch": reads["scratch"],
                    "raw": reads["raw"],
                    "ratio": reads["scratch"] / reads["raw"],
                },
            ],
        )
        assert (await store.check()).problems == ()
    raw.close()
