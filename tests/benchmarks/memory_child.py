"""A fresh process that does one thing to a large content, and prints by how many bytes its peak in memory went up.

The peak is VmHWM, which the kernel forgets when asked to; it is exact to about 0.25 MiB. Before it is reset there was a
small capture and a small read, so that threads, modules and statements are there already.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from scratch import Captured, RunScratch, ScratchStore
from scratch.tools import Toolset
from tests.benchmarks.contents import KIB, MIB, log, records
from tests.support import query

SIZE = 50 * MIB
CONTENTS: dict[str, Callable[[int], str | bytes]] = {
    "ASCII": log,
    "Chinese": lambda size: "".join(f"第{number:07}行:服务器已收到请求,状态正常\n" for number in range(size // 55)),
    "bytes": lambda size: log(size).encode(),
    "JSON": records,
}
TOOLS: dict[str, tuple[str, dict[str, object]]] = {
    "get_in": ("get_in", {"path": "$.results[-1].name"}),
    "iterate_over": ("iterate_over", {"path": "$.results", "fields": ["id", "geo.lat"], "offset": 150_000}),
    "schema": ("schema", {}),
    "grep": ("grep", {"pattern": '"id": 100000,'}),
}


def kib(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0])


async def measure(step: Callable[[], Awaitable[object]]) -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    await step()
    print((kib("VmHWM") - before) * 1024)


async def warm(store: ScratchStore) -> RunScratch:
    """A small capture and a small look at it, before anything is measured."""
    run = await store.run("bench", agent_id="bench")
    small = (await run.capture(query(records(9 * KIB)))).handle
    assert small is not None
    await run.read_handle(small, match="Zürich")
    await Toolset(run).call("schema", {"handle": small})
    return run


async def capture(path: str, kind: str, *, measured: bool) -> str:
    content = CONTENTS[kind](SIZE)
    for made in (log, records):
        made.cache_clear()
    async with ScratchStore.open(path) as store:
        run = await warm(store)
        captured: list[Captured] = []

        async def step() -> None:
            captured.append(await run.capture(query(content)))

        await (measure(step) if measured else step())
        assert captured[0].handle is not None
        return captured[0].handle


async def look(path: str, handle: str, what: str) -> None:
    """In a store opened anew: the capture has left nothing in its caches."""
    async with ScratchStore.open(path) as store:
        run = await warm(store)
        if what == "window":
            await measure(lambda: run.read_handle(handle, offset=SIZE // 2))
        elif what == "match":
            await measure(lambda: run.read_handle(handle, match="no such text"))
        else:
            name, arguments = TOOLS[what]
            await measure(lambda: Toolset(run).call(name, {"handle": handle, **arguments}))


async def main(what: str, kind: str, path: str) -> None:
    handle = await capture(path, kind, measured=what == "capture")
    if what != "capture":
        await look(path, handle, what)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
