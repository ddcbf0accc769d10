"""Storing, reading back, searching and listing, against the least that any program has to do for that."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sqlite3
import statistics
from functools import partial
from pathlib import Path

import pytest

from scratch.database.statements import LIST_RUN
from tests.benchmarks.contents import KIB, KINDS, MIB, log, numbered
from tests.benchmarks.harness import Row, Step, against, report, timed, timed_puts, verdict
from tests.benchmarks.subjects import Hop, Ours, RawFile, RawSqlite, Subject
from tests.support import query

pytestmark = pytest.mark.benchmark

CAPTURES: dict[str, tuple[int, int, float]] = {  # bytes, rounds, target
    "8 KiB": (8 * KIB + 1, 400, 1.5),
    "100 KiB": (100 * KIB, 200, 1.5),
    "1 MiB": (MIB, 80, 1.0),
    "10 MiB": (10 * MIB, 20, 1.0),
    "50 MiB": (50 * MIB, 10, 1.0),
}
READS = {"100 KiB": 100 * KIB, "10 MiB": 10 * MIB, "50 MiB": 50 * MIB}
LENGTH = 4 * KIB


async def test_capture(ours: Ours, raw: RawSqlite, file: RawFile) -> None:
    subjects: dict[str, Subject] = {"ours": ours, "raw": raw, "file": file}
    against_sqlite: list[Row] = []
    against_file: list[Row] = []
    for (size, (count, rounds, target)), kind in itertools.product(CAPTURES.items(), KINDS):
        times, _ = await timed_puts(subjects, partial(numbered, kind, count), rounds=rounds)
        what = {"what": f"{size} of {kind}"}
        whole = statistics.mean(times["ours"].with_rest) / statistics.mean(times["raw"].rounds)
        compared = against("sqlite3", times["ours"], times["raw"], target)
        against_sqlite.append({**what, **compared, "with checkpoints": whole})
        against_file.append({**what, **against("file", times["ours"], times["file"], None)})
    report(
        "capture against raw sqlite3 in a thread (ms)",
        against_sqlite,
        note="sqlite3: one BLOB row, the same pragmas; its checkpoints come inside its commits, after 1,000 pages. "
        "Ours come in the background,\nwhere nothing else is timed; the last column has them in, for both: "
        "the ratio of the means",
    )
    report("capture against writing a file in a thread, no fsync (ms)", against_file)


async def test_read_handle(ours: Ours, hop: Hop, folder: Path) -> None:
    """Somewhere in the first, the middle and the last eighth, elsewhere each round: SQLite keeps 2 MB in memory."""
    draw = random.Random(1)
    reads: dict[str, Step] = {}
    preads: dict[str, Step] = {}
    files: list[int] = []

    def add(name: str, first: int, last: int, contents: str, handle: str) -> None:
        file = files[-1]

        async def read() -> None:
            offset = draw.randrange(first, last)
            assert await ours.read(handle, offset, LENGTH) == contents[offset : offset + LENGTH]

        async def pread() -> None:
            offset = draw.randrange(first, last)
            assert await hop.run(os.pread, file, LENGTH, offset) == contents[offset : offset + LENGTH].encode()

        reads[name], preads[f"pread {name}"] = read, pread

    for size, count in READS.items():
        contents = log(count)
        handle = await ours.put(contents)
        path = folder / size
        path.write_text(contents)
        files.append(os.open(path, os.O_RDONLY))
        eighth, last = count // 8, count - LENGTH
        for where, first in {"start": 0, "middle": (count - eighth) // 2, "end": last - eighth}.items():
            add(f"{where} of {size}", first, first + eighth, contents, handle)
    await ours.settle()
    times = await timed({**reads, **preads}, rounds=400)
    for file in files:
        os.close(file)
    report(
        "read_handle of 4 KiB against os.pread through a hop (ms)",
        [{"what": name, **against("pread", times[name], times[f"pread {name}"], 2.0)} for name in reads],
    )
    slowest, fastest = (choose(times[name].median for name in reads) for choose in (max, min))
    spread: Row = {"what": "the slowest place to the fastest", "slowest": slowest, "fastest": fastest}
    report("read_handle at any offset of any size (ms)", [{**spread, **verdict(slowest / fastest, 1.5)}])


async def test_match_windows(ours: Ours, hop: Hop, folder: Path) -> None:
    rows: list[Row] = []

    async def compare(what: str, contents: str, needle: str, hits: int) -> None:
        handle = await ours.put(contents)
        await ours.settle()
        path = folder / "contents"
        path.write_text(contents)

        async def search() -> None:
            found = await ours.run.read_handle(handle, match=needle)
            assert (found.total_matches, found.searched_bytes) == (hits, len(contents))

        async def find() -> None:
            at = await hop.run(lambda: path.read_bytes().find(needle.encode()))
            assert (at >= 0) == (hits > 0)

        times = await timed({"ours": search, "find": find}, rounds=15)
        rows.append({"what": what, **against("find", times["ours"], times["find"], 1.5)})

    for size, count in {"10 MiB": 10 * MIB, "50 MiB": 50 * MIB}.items():
        contents = log(count - 40) + "the one that was looked for, at the end\n"
        await compare(f"{size}, one match at the end", contents, "looked for", 1)
        await compare(f"{size}, no match", contents, "no such text", 0)
    report("match windows against reading the file and bytes.find in a thread (ms)", rows)


async def test_listing(ours: Ours, hop: Hop) -> None:
    for start in range(0, 10_000, 100):
        await asyncio.gather(*(ours.put(numbered("log", 9 * KIB, start + number)) for number in range(100)))
    await ours.settle()
    connection = sqlite3.connect(ours.store.path, check_same_thread=False)

    async def listing() -> None:
        assert len(await ours.store.list_scratch_entries_for_run("bench")) == 10_000

    async def select() -> None:
        rows = await hop.run(lambda: connection.execute(LIST_RUN, ("bench", 0)).fetchall())
        assert len(rows) == 10_000

    times = await timed({"ours": listing, "select": select}, rounds=20)
    connection.close()
    report(
        "list_scratch_entries_for_run against its bare SQL (ms)",
        [{"what": "10,000 entries", **against("fetchall", times["ours"], times["select"], 2.0)}],
    )


async def test_the_decision_to_keep(ours: Ours, hop: Hop) -> None:
    """What every result costs that is not spilled; measured against a hop to a thread, which it does not make."""
    rows: list[Row] = []

    async def compare(what: str, contents: str) -> None:
        observation = query(contents)

        async def capture() -> None:
            for _ in range(50):
                assert (await ours.run.capture(observation)).text == contents

        async def bare() -> None:
            for _ in range(50):
                await hop.run(int)

        times = await timed({"ours": capture, "hop": bare}, rounds=50)
        microseconds, hops = (times[name].median * 1000 / 50 for name in ("ours", "hop"))
        rows.append({"what": what, "ours": microseconds, "hop": hops, **verdict(microseconds / hops, None)})

    for (size, count), kind in itertools.product({"1 KiB": KIB, "8 KiB": 8 * KIB}.items(), KINDS):
        await compare(f"{size} of {kind}", numbered(kind, count, 1))
    report("capture of what stays in context against a bare hop (microseconds)", rows)
