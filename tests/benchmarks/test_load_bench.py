"""Many at once: captures of 64 tasks, and captures beside a sweep."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from scratch import ScratchStore
from tests.benchmarks.contents import KIB, numbered
from tests.benchmarks.harness import Row, Times, report, timed, verdict
from tests.benchmarks.subjects import Ours, RawSqlite, Subject
from tests.support import add_expired

pytestmark = pytest.mark.benchmark

TASKS = 64
EXPIRED = 10_000
IDLE = 1_000
"""Captures before the sweep, and after it."""
EVERY = 0.001
"""Seconds between two captures."""


async def test_64_concurrent_captures(ours: Ours, raw: RawSqlite) -> None:
    """Ours all at once, the raw baseline one after the other: a connection does one thing at a time."""
    rows: list[Row] = []
    keys: dict[Subject, list[str]] = {ours: [], raw: []}
    texts: list[str] = []
    numbers = itertools.count(1)

    async def renew(count: int) -> None:
        """Outside of the timing: new texts, and the last ones are deleted."""
        texts[:] = [numbered("log", count, next(numbers)) for _ in range(TASKS)]
        for subject, held in keys.items():
            for key in held:
                await subject.forget(key)
            held.clear()
            await subject.settle()

    async def concurrently() -> None:
        keys[ours] = await asyncio.gather(*(ours.put(text) for text in texts))

    async def one_by_one() -> None:
        keys[raw] = [await raw.put(text) for text in texts]

    async def compare(what: str, count: int) -> None:
        times = await timed({"ours": concurrently, "raw": one_by_one}, rounds=40, before=lambda: renew(count))
        await renew(count)
        await concurrently()
        assert [await ours.whole(key) for key in keys[ours]] == [text.encode() for text in texts]
        rates = {name: TASKS / taken.median * 1000 for name, taken in times.items()}
        ratio = verdict(rates["ours"] / rates["raw"], 1.5, at_least=True)
        rows.append({"what": what, "ours": rates["ours"], "sqlite3": rates["raw"], **ratio})

    await compare("64 of 16 KiB", 16 * KIB)
    await compare("64 of 100 KiB", 100 * KIB)
    report("64 concurrent captures against raw sqlite3 one by one (a second)", rows)


async def test_captures_beside_a_sweep(folder: Path) -> None:
    path = folder / "scratch.db"
    async with ScratchStore.open(path):
        pass
    for _ in range(10):
        add_expired(path, EXPIRED // 10, size=100 * KIB)
    before = path.stat().st_size
    numbers = itertools.count(1)
    idle, beside = Times(), Times()
    async with ScratchStore.open(path) as store:
        ours = Ours(store, await store.run("bench", agent_id="bench"))

        async def capture(times: Times) -> None:
            text = numbered("log", 16 * KIB, next(numbers))
            started = time.perf_counter()
            await ours.put(text)
            times.rounds.append((time.perf_counter() - started) * 1000)
            await asyncio.sleep(EVERY)

        for _ in range(IDLE):
            await capture(idle)
        sweep = asyncio.create_task(store.sweep())
        while not sweep.done():
            await capture(beside)
        swept = await sweep
        after = path.stat().st_size
        for _ in range(IDLE):
            await capture(idle)
    assert swept.entries == EXPIRED
    whens = (("idle", idle, None), ("during the sweep", beside, 3.0))
    report(
        "captures of 16 KiB, one each millisecond, beside a sweep of 10,000 entries of 100 KiB (ms)",
        [
            {
                "what": f"{when}, {len(times.rounds):,} captures",
                "p50": times.median,
                "p99": times.p99,
                "longest": max(times.rounds),
                **verdict(times.p99 / idle.p99, target),
            }
            for when, times, target in whens
        ],
        note="the ratio is that of the p99",
    )
    figures: Row = {
        "seconds": swept.seconds,
        "batches": swept.batches,
        "MiB given back": swept.given_back / 2**20,
        "file before": before / 2**20,
        "file after": after / 2**20,
        "WAL after": swept.wal_bytes / 2**20,
    }
    report("that sweep", [figures])
