"""What others keep large tool results in, as their documentation shows it. Those that are not installed are skipped."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.subjects import Subject

DURABILITY = {
    "diskcache": "no fsync: a file, a row",
    "AsyncSqliteStore": "fsync each commit",
    "AsyncSqliteStore, WAL": "no fsync: a row",
    "FileStorage": "no fsync: a file",
    "FilesystemBackend": "no fsync: a file",
}
"""What a put is kept in, and whether it waits for the disk. Ours: rows, no fsync."""
FILES = ("FileStorage", "FilesystemBackend")
"""Only these may be ahead of us: they promise nothing but a file."""


class Peer:
    """A peer that does nothing in the background."""

    def __init__(self) -> None:
        self.keys = itertools.count(1)

    async def settle(self) -> float:
        return 0.0


class DiskCache(Peer):
    """diskcache.Cache: blocking, thread-safe; the default executor, as its documentation does it."""

    def __init__(self, module: Any, folder: Path) -> None:
        super().__init__()
        self._cache = module.Cache(folder)

    async def put(self, text: str) -> str:
        key = str(next(self.keys))
        await asyncio.to_thread(lambda: self._cache.set(key, text.encode()))
        return key

    async def read(self, key: str, offset: int, length: int) -> bytes:
        def read() -> bytes:
            with self._cache.get(key, read=True) as file:
                file.seek(offset)
                data: bytes = file.read(length)
                return data

        return await asyncio.to_thread(read)

    async def whole(self, key: str) -> bytes:
        data: bytes = await asyncio.to_thread(self._cache.get, key)
        return data

    async def forget(self, key: str) -> None:
        await asyncio.to_thread(self._cache.delete, key)

    def close(self) -> None:
        self._cache.close()


class LangGraph(Peer):
    """AsyncSqliteStore: values are JSON objects; it has no ranges."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store

    async def put(self, text: str) -> str:
        key = str(next(self.keys))
        await self._store.aput(("bench",), key, {"content": text})
        return key

    async def _text(self, key: str) -> str:
        text: str = (await self._store.aget(("bench",), key)).value["content"]
        return text

    async def read(self, key: str, offset: int, length: int) -> str:
        return (await self._text(key))[offset : offset + length]  # the contents here are ASCII

    async def whole(self, key: str) -> bytes:
        return (await self._text(key)).encode()

    async def forget(self, key: str) -> None:
        await self._store.adelete(("bench",), key)


class Strands(Peer):
    """FileStorage: writes on the event loop, keeps an index file beside; no ranges, and nothing deletes."""

    def __init__(self, module: Any, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._storage = module.FileStorage(str(folder))

    async def put(self, text: str) -> str:
        key: str = await self._storage.store(str(next(self.keys)), text.encode())
        return key

    async def whole(self, key: str) -> bytes:
        data: bytes = (await self._storage.retrieve(key))[0]
        return data

    async def read(self, key: str, offset: int, length: int) -> bytes:
        return (await self.whole(key))[offset : offset + length]

    async def forget(self, key: str) -> None:
        (self._folder / key).unlink()
        del self._storage._content_types[key]  # else the index grows with each put, which is not what is measured


class DeepAgents(Peer):
    """FilesystemBackend: a thread a call; ranges are lines."""

    def __init__(self, module: Any, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._backend = module.FilesystemBackend(root_dir=folder)
        self._lines: dict[str, int] = {}

    async def put(self, text: str) -> str:
        key = f"/{next(self.keys)}.txt"
        assert (await self._backend.awrite(key, text)).error is None
        return key

    async def read(self, key: str, offset: int, length: int) -> str:
        lines = length // 130 + 1  # a line of the log has about so many bytes
        if key not in self._lines:  # outside of the timing, by the warm-up
            self._lines[key] = (await self.whole(key)).count(b"\n")
        first = self._lines[key] - lines
        text: str = (await self._backend.aread(key, first, lines + 1)).file_data["content"]
        return text[-length:]

    async def whole(self, key: str) -> bytes:
        return await asyncio.to_thread((self._folder / key[1:]).read_bytes)

    async def forget(self, key: str) -> None:
        await asyncio.to_thread(os.unlink, self._folder / key[1:])


@asynccontextmanager
async def open_peers(folder: Path) -> AsyncIterator[dict[str, Subject]]:
    """Those that are installed, by name."""
    peers: dict[str, Subject] = {}
    async with AsyncExitStack() as stack:

        async def langgraph(module: Any, path: Path) -> LangGraph:
            store = await stack.enter_async_context(module.AsyncSqliteStore.from_conn_string(str(path)))
            if path.name.endswith("WAL"):  # the pragmas that we set, too
                await store.conn.execute("PRAGMA journal_mode=WAL")
                await store.conn.execute("PRAGMA synchronous=NORMAL")
            await store.setup()
            stack.callback(lambda: store._task and store._task.cancel())
            return LangGraph(store)

        async def diskcache(module: Any, path: Path) -> DiskCache:
            cache = DiskCache(module, path)
            stack.callback(cache.close)
            return cache

        async def strands(module: Any, path: Path) -> Strands:
            return Strands(module, path)

        async def deepagents(module: Any, path: Path) -> DeepAgents:
            path.mkdir()
            return DeepAgents(module, path)

        known: dict[str, tuple[str, Callable[[Any, Path], Any]]] = {
            "diskcache": ("diskcache", diskcache),
            "AsyncSqliteStore": ("langgraph.store.sqlite.aio", langgraph),
            "AsyncSqliteStore, WAL": ("langgraph.store.sqlite.aio", langgraph),
            "FileStorage": ("strands.vended_plugins.context_offloader.storage", strands),
            "FilesystemBackend": ("deepagents.backends.filesystem", deepagents),
        }
        for name, (module, opened) in known.items():
            try:
                with warnings.catch_warnings(action="ignore"):
                    imported = importlib.import_module(module)
            except ImportError as error:
                print(f"\nskipped: {name} is not installed ({error}): pip install -e '.[peers]'")
                continue
            peers[name] = await opened(imported, folder / name)
        yield peers
