"""Storing and reading back, against what others keep large tool results in: ahead of each, but of a bare file."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks.contents import KIB, MIB, numbered
from tests.benchmarks.harness import Row, Step, Times, report, timed, timed_puts, verdict
from tests.benchmarks.peers import DURABILITY, FILES, open_peers
from tests.benchmarks.subjects import Ours, Subject

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore")]  # their warnings are theirs

SIZES = {"100 KiB": (100 * KIB, 60), "10 MiB": (10 * MIB, 12)}  # bytes, rounds
LENGTH = 4 * KIB
TASKS = 64


def compared(what: str, times: Mapping[str, Times]) -> list[Row]:
    ours = times["ours"]
    return [
        {
            "what": f"{name}: {what}",
            "kept in": DURABILITY[name],
            "ours": ours.median,
            "p99": ours.p99,
            "theirs": theirs.median,
            "their p99": theirs.p99,
            **verdict(ours.median / theirs.median, None if name in FILES else 1.0),
        }
        for name, theirs in times.items()
        if name != "ours"
    ]


async def test_against_peers(ours: Ours, folder: Path) -> None:
    rows: list[Row] = []
    async with open_peers(folder) as peers:
        subjects: dict[str, Subject] = {"ours": ours, **peers}
        if not peers:
            return
        for size, (count, rounds) in SIZES.items():
            puts, keys = await timed_puts(subjects, partial(numbered, "log", count), rounds=rounds)
            rows += compared(f"put {size}", puts)
            reads: dict[str, Step] = {
                name: partial(subject.read, keys[name], count - LENGTH, LENGTH) for name, subject in subjects.items()
            }
            rows += compared(f"last 4 KiB of {size}", await timed(reads, rounds=rounds))
        rows += compared(f"{TASKS} tasks put 16 KiB", await many_tasks(subjects))
    report(
        "against peers (ms)",
        rows,
        note="ours is kept in rows, no fsync; diskcache and this store read ranges, FilesystemBackend lines, "
        "the others all of it",
    )


async def many_tasks(subjects: Mapping[str, Subject]) -> dict[str, Times]:
    numbers = itertools.count(1)
    texts: list[str] = []
    keys: dict[str, list[str]] = {name: [] for name in subjects}

    async def renew() -> None:
        """Outside of the timing: new texts, and the last ones are deleted."""
        texts[:] = [numbered("log", 16 * KIB, next(numbers)) for _ in range(TASKS)]
        for name, held in keys.items():
            for key in held:
                await subjects[name].forget(key)
            held.clear()
            await subjects[name].settle()

    async def put(name: str) -> None:
        keys[name] = await asyncio.gather(*(subjects[name].put(text) for text in texts))

    times = await timed({name: partial(put, name) for name in subjects}, rounds=15, before=renew)
    for name, subject in subjects.items():
        await renew()
        await put(name)
        assert [await subject.whole(key) for key in keys[name]] == [text.encode() for text in texts], name
    return times
