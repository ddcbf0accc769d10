"""The exploration tools on large contents: how long the event loop stands still, and times against a baseline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from scratch import ScratchStore
from scratch.tools import Toolset
from tests.benchmarks.contents import MIB, log, records
from tests.benchmarks.harness import Row, medians, report
from tests.support import query

pytestmark = pytest.mark.benchmark


@asynccontextmanager
async def explored(path: Path, content: str) -> AsyncIterator[tuple[Toolset, str]]:
    async with ScratchStore.open(path) as store:
        tools = Toolset(await store.run("bench", agent_id="bench"))
        captured = await tools.capture(query(content))
        assert captured.handle is not None
        yield tools, captured.handle


async def longest_stall(step: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Milliseconds that a step took, and the longest time in which the loop did nothing else meanwhile."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest = max(longest, now - last - 0.001)
            last = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.02)
    started = time.perf_counter()
    await step()
    took = time.perf_counter() - started
    await asyncio.sleep(0.005)
    ticker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticker
    return took * 1000, longest * 1000


ON_LINES: list[tuple[str, dict[str, Any]]] = [
    ("head", {}),
    ("slice", {"start": 100_000, "end": 100_020}),
    ("grep", {"pattern": "ERROR.*status: 200", "max_matches": 5}),
    ("grep", {"pattern": "no such text", "literal": True}),
    ("grep", {"pattern": "error", "ignore_case": True, "max_matches": 5}),
    ("schema", {}),
    ("read", {}),
]
ON_JSON: list[tuple[str, dict[str, Any]]] = [
    ("schema", {}),
    ("get_in", {"path": "$.results[100000].geo"}),
    ("get_in", {"path": "$.results[-1]"}),
    ("iterate_over", {"path": "$.results", "fields": ["id", "geo.lat"], "offset": 150_000, "limit": 20}),
    ("iterate_over", {"path": "$.results", "fields": ["id", "name"]}),
    ("item_schema", {"path": "$.results"}),
    ("head", {}),
    ("grep", {"pattern": '"id": 100000,', "context": 0}),
    ("read", {}),
]


@pytest.mark.parametrize(("kind", "make", "calls"), [("log", log, ON_LINES), ("JSON", records, ON_JSON)])
async def test_how_long_the_loop_stands_still(
    kind: str, make: Callable[[int], str], calls: list[tuple[str, dict[str, Any]]], folder: Path
) -> None:
    rows: list[Row] = []
    sys.setswitchinterval(0.005)
    async with explored(folder / "scratch.db", make(50 * MIB)) as (tools, handle):
        for name, arguments in calls:
            for when in ("first", "again"):
                took, stall = await longest_stall(lambda: tools.call(name, {"handle": handle, **arguments}))  # noqa: B023
                shown = json.dumps(arguments)[:60]
                rows.append({"tool": name, "arguments": shown, "call": when, "ms": took, "longest stall": stall})
    report(f"exploring 50 MiB of {kind} (ms)", rows)


@pytest.mark.parametrize("size", [1, 10, 50])
async def test_json_against_orjson(size: int, folder: Path) -> None:
    content = records(size * MIB)
    data = content.encode()
    started = time.perf_counter()
    orjson.loads(data)
    parse = (time.perf_counter() - started) * 1000
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_in", {"path": "$.results[-1].name"}),
        ("iterate_over", {"path": "$.results", "fields": ["id"], "offset": 3_000, "limit": 50}),
    ]
    rows: list[Row] = []
    for name, arguments in calls:
        async with explored(folder / f"{name}.db", content) as (tools, handle):

            async def call() -> None:
                answer = await tools.call(name, {"handle": handle, **arguments})  # noqa: B023
                assert not answer.is_error

            started = time.perf_counter()
            await call()
            first = (time.perf_counter() - started) * 1000

            async def baseline() -> None:
                orjson.loads(data)

            again = await medians({"scratch": call, "orjson": baseline}, rounds=3 if size == 50 else 10)
            rows.append(
                {
                    "tool": name,
                    "orjson.loads": min(parse, again["orjson"]),
                    "first": first,
                    "first ratio": first / again["orjson"],
                    "again": again["scratch"],
                    "again ratio": again["scratch"] / again["orjson"],
                }
            )
    report(f"{size} MiB of JSON against orjson.loads of the same bytes (ms)", rows)


async def test_grep_against_find_in_memory(folder: Path) -> None:
    content = log(50 * MIB)
    data = content.encode()
    async with explored(folder / "scratch.db", content) as (tools, handle):

        async def find() -> None:
            data.find(b"no such text")

        async def literal() -> None:
            await tools.call("grep", {"handle": handle, "pattern": "no such text", "literal": True})

        async def regex() -> None:
            await tools.call("grep", {"handle": handle, "pattern": "no +such text"})

        found = await medians({"bytes.find": find, "literal": literal, "regex": regex}, rounds=5)
    rows: list[Row] = [{"what": name, "ms": took, "ratio": took / found["bytes.find"]} for name, took in found.items()]
    report("grep over 50 MiB against bytes.find in memory", rows)
