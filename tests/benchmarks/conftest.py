"""What the benchmarks share: one bench.json a run, the subjects, and folders that go away with each benchmark."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from scratch import ScratchStore
from tests.benchmarks.harness import machine, read_results, shown, write_results
from tests.benchmarks.subjects import Hop, Ours, RawFile, RawSqlite


@pytest.fixture(scope="session", autouse=True)
def results() -> Iterator[None]:
    facts = machine()
    write_results({"machine": facts, "tables": {}})
    print("\n" + ", ".join(f"{name}: {fact}" for name, fact in facts.items()))
    started = time.monotonic()
    yield
    kept = read_results()
    kept["machine"]["seconds"] = round(time.monotonic() - started)
    write_results(kept)
    rows = [(title, row) for title, table in kept["tables"].items() for row in table["rows"]]
    missed = [(title, row) for title, row in rows if row.get("is") == "missed"]
    met = sum(row.get("is") == "met" for _, row in rows)
    print(f"\n\ntargets met: {met}, missed: {len(missed)}; {kept['machine']['seconds']} seconds")
    for title, row in missed:
        figure = row.get("ratio", row.get("MiB"))
        print(f"  missed: {title}: {row['what']}: {shown(figure)}, target {row['target']}")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """pytest keeps the last folders of each test; a benchmark's may hold gigabytes."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.fixture
async def ours(folder: Path) -> AsyncIterator[Ours]:
    async with ScratchStore.open(folder / "scratch.db") as store:
        yield Ours(store, await store.run("bench", agent_id="bench"))
        assert (await store.check()).problems == ()


@pytest.fixture
def hop() -> Iterator[Hop]:
    hop = Hop()
    yield hop
    hop.close()


@pytest.fixture
def raw(folder: Path) -> Iterator[RawSqlite]:
    raw = RawSqlite(folder / "raw.db")
    yield raw
    raw.close()


@pytest.fixture
def file(folder: Path) -> Iterator[RawFile]:
    file = RawFile(folder / "files")
    yield file
    file.close()
