"""What a store counts, how the counts get into the file, and how OpenTelemetry gets them."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Iterator
from contextlib import closing, contextmanager
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint, Sum

from scratch import (
    ContextBudget,
    HandleNotFound,
    LimitExceeded,
    NoteNotFound,
    Observation,
    RunNotFound,
    RunScratch,
    ScratchStore,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreMetrics,
    StoreStats,
    VersionConflict,
)
from scratch.cli.main import cli
from scratch.database import connection as opening
from scratch.database import engine
from scratch.telemetry import instrument
from scratch.tools import Toolset
from tests.support import Clock, add_expired, query, read_back

ROOT = Path(__file__).resolve().parent.parent
NEVER = 1e9


def saved(path: Path) -> dict[str, int]:
    """The counters in the file, but for when they began."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, value FROM counters WHERE name <> 'since'").fetchall())


def schema_of(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


# --- what is counted


async def test_a_new_store_has_counted_nothing(store: ScratchStore) -> None:
    metrics = store.metrics()
    assert metrics == StoreMetrics.of({})
    assert not any(asdict(metrics).values())
    with pytest.raises(FrozenInstanceError):
        metrics.captures = 1  # type: ignore[misc]


async def test_captures_are_spills_and_kept_ones_by_reason(store: ScratchStore, run: RunScratch) -> None:
    contents = ["ü" * 10_000, b"\xff" * 9_000, [{"id": n} for n in range(2_000)]]
    size = 0
    for content in contents:
        captured = await run.capture(query(content))
        assert captured.handle is not None
        size += len(await read_back(run, captured.handle)) - len(captured.text.encode())
    await run.capture(query("small"))
    await run.capture(query("small, too"))
    await run.capture(Observation(content="x" * 10_000, tool="write", tool_class="effect"))
    await run.capture(Observation(content="x" * 10_000, tool="run_query", tool_class="query", is_error=True))
    endless: list[object] = []
    endless.append(endless)
    await run.capture(query(endless))
    metrics = store.metrics()
    assert (metrics.captures, metrics.spills) == (8, 3)
    assert metrics.kept == {"under_threshold": 2, "tool_class": 1, "is_error": 1, "not_serializable": 1}
    assert metrics.bytes_kept_out == size
    assert metrics.failures == {}


async def test_what_could_not_be_stored_is_kept_and_is_one_failure(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScratchStore.open(path, max_run_bytes=15_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.capture(query("x" * 10_000))
        assert (await run.capture(query("x" * 10_000))).handle is None
        with pytest.raises(LimitExceeded):
            await run.write("large", "x" * 10_000)
        metrics = store.metrics()
    assert (metrics.captures, metrics.spills, metrics.kept) == (2, 1, {"store_failed": 1})
    assert metrics.failures == {"LimitExceeded": 2}
    assert metrics.note_writes == 0


async def test_failures_are_counted_by_the_errors_name_once_an_operation(
    store: ScratchStore, run: RunScratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run.write("plan", "1")
    with pytest.raises(VersionConflict):
        await run.write("plan", "2", if_version=7)
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
    with locked(store.path):
        with pytest.raises(StoreBusy):
            await run.write("plan", "3")
        with pytest.raises(StoreBusy):
            await store.run("run-43", agent_id="researcher")
        await run.capture(query("x" * 10_000))
    assert store.metrics().failures == {"VersionConflict": 1, "StoreBusy": 3}
    assert store.metrics().kept == {"store_failed": 1}


async def test_a_closed_store_still_tells_and_counts_what_comes_too_late(path: Path) -> None:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.capture(query("x" * 10_000))
    with pytest.raises(StoreClosed):
        await run.read("plan")
    await run.capture(query("x" * 10_000))
    metrics = store.metrics()
    assert (metrics.captures, metrics.spills, metrics.kept) == (2, 1, {"store_failed": 1})
    assert metrics.failures == {"StoreClosed": 2}


async def test_reads_are_counted_by_kind_with_the_bytes_that_they_gave_back(
    store: ScratchStore, run: RunScratch
) -> None:
    handle = (await run.capture(query("ü" * 10_000))).handle
    assert handle is not None
    await run.write("plan", "look ü")
    await run.write_artifact("report.md", "# done")
    await run.read_handle(handle, length=100)
    await run.read_handle(handle, offset=20_000)
    await run.read_handle("report.md")
    hits = await run.read_handle(handle, match="ü", context=10, max_windows=2)
    await run.read("plan")
    metrics = store.metrics()
    assert metrics.reads == {"window": 3, "matches": 1, "note": 1}
    assert metrics.bytes_read == 100 + 0 + 6 + sum(one.end - one.offset for one in hits.windows) + 7
    assert (metrics.note_writes, metrics.artifacts_written) == (1, 1)


async def test_an_artifact_that_is_not_replaced_is_not_written(store: ScratchStore, run: RunScratch) -> None:
    assert await run.write_artifact("report.md", "1") == 1
    assert await run.write_artifact("report.md", "2", replace=False) is None
    assert store.metrics().artifacts_written == 1


async def test_misses_are_counted_by_the_errors_name(store: ScratchStore, run: RunScratch) -> None:
    missing: list[tuple[type[Exception], Awaitable[object]]] = [
        (HandleNotFound, run.read_handle("r_222222222222")),
        (HandleNotFound, run.read_handle("r_222222222222", match="x")),
        (HandleNotFound, run.read_handle("no\nname")),
        (HandleNotFound, run.find("report.md")),
        (HandleNotFound, run.renew("r_222222222222", 60)),
        (NoteNotFound, run.read("plan")),
        (NoteNotFound, run.renew("plan", 60)),
        (RunNotFound, store.complete_run("run-43")),
        (RunNotFound, store.list_scratch_entries_for_run("run-43")),
    ]
    for kind, work in missing:
        with pytest.raises(kind):
            await work
    metrics = store.metrics()
    assert metrics.misses == {"HandleNotFound": 5, "NoteNotFound": 2, "RunNotFound": 2}
    assert (metrics.reads, metrics.failures) == ({}, {})


async def test_a_toolset_counts_the_answers_that_it_gave_and_not_what_it_tried(
    store: ScratchStore, run: RunScratch
) -> None:
    tools = Toolset(run, budget=ContextBudget(128_000), max_extraction_tokens=1_000)
    handle = (await tools.capture(query("".join(f"line {n}\n" for n in range(20_000))))).handle
    given = [
        await tools.call("read_handle", {"handle": handle, "length": 200}),
        await tools.call("read_handle", {"handle": handle, "match": "line 777"}),
        await tools.call("head", {"handle": handle, "lines": 3}),
        await tools.call("grep", {"handle": handle, "pattern": "line 19999"}),
    ]
    await tools.call("scratch_write", {"key": "plan", "value": "x" * 100_000})
    given.append(await tools.call("scratch_read", {"key": "plan", "length": 100}))
    await tools.call("write_artifact", {"filename": "plan.md", "content": "# plan"})
    given.append(await tools.call("read_artifact", {"filename": "coordinator-plan.md"}))
    assert not any(answer.is_error for answer in given)
    refused = [
        await tools.call("read_handle", {"handle": handle, "length": 32_768}),
        await tools.call("read", {"handle": handle}),
        await tools.call("head", {"handle": handle, "lines": 10_000}),
        await tools.call("head", {"handle": "r_222222222222"}),
    ]
    assert all(answer.is_error for answer in refused)
    assert json.loads(await tools.call("read_artifact", {"filename": "none.md"}))["found"] is False
    metrics = store.metrics()
    assert metrics.reads == {"window": 1, "matches": 1, "explore": 2, "note": 1, "artifact": 1}
    assert metrics.bytes_read == sum(len(answer.encode()) for answer in given)
    assert metrics.misses == {"HandleNotFound": 2}
    assert (metrics.note_writes, metrics.artifacts_written, metrics.captures) == (1, 1, 1)


async def test_sweeps_are_counted_with_what_they_did(store: ScratchStore, run: RunScratch, clock: Clock) -> None:
    await run.capture(query("x" * 1_000_000))
    await run.write("plan", "12345")
    await store.sweep(dry_run=True)
    assert store.metrics().sweeps == 0
    clock.advance(3_601)
    report = await store.sweep()
    await store.sweep()
    metrics = store.metrics()
    assert (metrics.sweeps, metrics.swept_entries, metrics.swept_bytes) == (2, 2, 1_000_005)
    assert metrics.bytes_given_back == report.given_back > 0
    assert saved(store.path)["sweeps"] == 1  # the second one had nothing to do, and took no lock
    assert report.wal_bytes == 0


async def test_a_sweep_that_fails_half_way_has_counted_what_it_deleted(
    store: ScratchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_expired(store.path, 5, size=7)
    real = store._database.delete_expired
    batches = 0

    async def once(now: int, **limits: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches > 1:
            raise StoreError("broken")
        return await real(now, **limits)

    monkeypatch.setattr(store._database, "delete_expired", once)
    with pytest.raises(StoreError, match="broken"):
        await store.sweep(batch_entries=2)
    metrics = store.metrics()
    assert (metrics.sweeps, metrics.swept_entries, metrics.swept_bytes) == (0, 2, 14)


def test_names_that_are_not_known_are_left_out() -> None:
    metrics = StoreMetrics.of({"captures": 2, "later": 1, "later.word": 1, "kept.is_error": 3, "since": 1})
    assert (metrics.captures, metrics.kept) == (2, {"is_error": 3})


# --- in the file


async def test_counts_are_saved_at_close_and_add_up(path: Path) -> None:
    for _ in range(2):
        async with ScratchStore.open(path) as store, ScratchStore.open(path) as other:
            for one in (store, other):
                run = await one.run("run-42", agent_id="researcher")
                await run.capture(query("x" * 10_000))
                await run.capture(query("small"))
                await one.delete_run("run-42")
        assert store.metrics().captures == 2
    assert saved(path)["captures"] == 8
    assert saved(path)["kept.under_threshold"] == 4
    async with ScratchStore.open(path, read_only=True) as store:
        stats = await store.stats()
    assert (stats.counters.spills, stats.counters.kept) == (4, {"under_threshold": 4})
    assert stats.runs == 0


async def test_several_processes_add_up(path: Path) -> None:
    program = """
import asyncio, sys
from scratch import Observation, ScratchStore

async def main():
    async with ScratchStore.open(sys.argv[1]) as store:
        run = await store.run("run-42", agent_id="researcher")
        for _ in range(20):
            await run.capture(Observation(content="x" * 10_000, tool="t", tool_class="query"))

asyncio.run(main())
"""
    running = [subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert saved(path)["spills"] == 60


async def test_no_write_has_the_counts_in_it_before_they_are_due(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SAVE_COUNTS_SECONDS", NEVER)
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        for number in range(20):
            await run.write(f"note-{number}", "x")
        assert saved(path) == {}
    assert saved(path) == {"note_writes": 20}


async def test_when_they_are_due_they_are_in_the_group_of_the_next_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SAVE_COUNTS_SECONDS", NEVER)
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("plan", "1")
        writer = store._database._engine.writer
        assert writer is not None
        seen: list[str] = []
        await writer.call(lambda connection: connection.set_trace_callback(seen.append))
        store._database._engine._save_at = 0.0
        await run.write("plan", "2")
        assert saved(path) == {"note_writes": 1}
        assert [one for one in seen if one.startswith(("BEGIN", "COMMIT"))] == ["BEGIN IMMEDIATE", "COMMIT"]
        await run.write("plan", "3")
        assert saved(path) == {"note_writes": 1}
    assert saved(path) == {"note_writes": 3}


async def test_counts_that_cannot_be_saved_fail_nothing_and_are_not_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "SAVE_COUNTS_SECONDS", 0.0)
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER no BEFORE INSERT ON counters BEGIN SELECT RAISE(ABORT, 'not now'); END")
            assert (await run.capture(query("x" * 10_000))).handle is not None
            assert (await run.capture(query("x" * 10_000))).handle is not None
            assert await run.write("plan", "1") == 1
            assert saved(path) == {}
            assert "counters of scratch.db were not saved" in caplog.text
            assert "not now" in caplog.text
            other.execute("DROP TRIGGER no")
        assert store.metrics().failures == {}
    assert (saved(path)["spills"], saved(path)["note_writes"]) == (2, 1)


async def test_a_lock_that_is_held_at_close_costs_the_counts_and_not_the_close(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("plan", "1")
        monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
        with locked(path):
            await store.close()
    assert "were not saved" in caplog.text
    assert saved(path) == {}


async def test_a_store_that_counted_nothing_takes_no_lock_at_close(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await (await ScratchStore.open(path)).close()
    store = await ScratchStore.open(path)
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
    with locked(path):
        await store.close()
    assert caplog.messages == []


async def test_a_store_that_is_open_for_reading_counts_and_saves_nothing(path: Path) -> None:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("plan", "1")
    before = path.read_bytes()
    async with ScratchStore.open(path, read_only=True) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.read("plan")
        with pytest.raises(StoreError):
            await run.write("plan", "2")
        assert store.metrics().reads == {"note": 1}
        assert store.metrics().failures == {"StoreReadOnly": 1}
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_killed_process_loses_counts_and_nothing_else(path: Path) -> None:
    program = """
import asyncio, sys
from scratch import Observation, ScratchStore
from scratch.database import engine

engine.SAVE_COUNTS_SECONDS = 0.0

async def main():
    async with ScratchStore.open(sys.argv[1]) as store:
        run = await store.run("run-42", agent_id="researcher")
        while True:
            captured = await run.capture(Observation(content="x" * 10_000, tool="t", tool_class="query"))
            print(captured.handle, flush=True)

asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        handles = [process.stdout.readline().strip() for _ in range(30)]
        process.send_signal(signal.SIGKILL)

    async def look() -> StoreStats:
        async with ScratchStore.open(path) as store:
            run = await store.run("run-42", agent_id="researcher")
            for handle in handles:
                assert await read_back(run, handle) == b"x" * 10_000
            assert (await store.check()).problems == ()
            return await store.stats()

    stats = asyncio.run(look())
    assert len(handles) - 1 <= stats.counters.captures <= stats.live  # a count goes with the write after it


def test_the_daemons_passes_are_counted(path: Path) -> None:
    asyncio.run(_make(path))
    add_expired(path, 3, size=7)
    command = [sys.executable, "-m", "scratch.sweeper.daemon", "--db", str(path), "--once"]
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=60)
    counters = saved(path)
    assert (counters["sweeps"], counters["swept_entries"], counters["swept_bytes"]) == (2, 3, 21)


async def _make(path: Path) -> None:
    async with ScratchStore.open(path):
        pass


# --- schema 1


@pytest.fixture
def old(path: Path) -> Path:
    """A store that the version before counters (commit 111f08e) wrote."""
    path.write_bytes(gzip.decompress((ROOT / "tests/data/schema1.db.gz").read_bytes()))
    path.chmod(0o600)
    return path


async def test_all_of_a_store_of_schema_1_is_there_after_the_migration(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    async with ScratchStore.open(old) as store:
        run = await store.run("run-42", agent_id="researcher")
        entries = await store.list_scratch_entries_for_run("run-42")
        handle, plan, artifact = entries
        content = "".join(f"row {n % 10} Zürich\n" for n in range(8_000)).encode()
        assert await read_back(run, handle.key) == content
        assert (handle.size, handle.source_tool, handle.agent_id) == (len(content), "run_query", "researcher")
        assert ((await run.read("plan")).text, plan.version) == ("look at row 701", 2)
        assert (await run.read_handle(artifact.key)).text == "# plan\n"
        assert (artifact.key, artifact.agent_id) == ("coordinator-plan.md", "writer")
        ended, others = sorted(await store.list_runs(), key=lambda info: info.run_id)
        assert ended.completed_at is not None
        assert set(others.agents) == {"researcher", "writer"}
        stats = await store.stats()
        assert (stats.counters, stats.expired) == (StoreMetrics.of({}), 1)
        assert (await store.sweep()).entries == 1
        assert (await store.check()).problems == ()
    assert saved(old)["sweeps"] == 1


async def test_a_migrated_store_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    for path in (old, new):
        await _make(path)
    with closing(sqlite3.connect(old)) as one, closing(sqlite3.connect(new)) as other:
        assert schema_of(one) == schema_of(other)
        assert one.execute("PRAGMA user_version").fetchone() == other.execute("PRAGMA user_version").fetchone()


async def test_a_store_of_schema_1_is_not_touched_by_who_only_reads(old: Path) -> None:
    before = old.read_bytes()
    with pytest.raises(StoreError, match="open it once for writing"):
        await ScratchStore.open(old, read_only=True)
    assert old.read_bytes() == before


# --- scratch stats


def test_the_command_shows_the_counters(path: Path) -> None:
    def terminal(*arguments: str, stdin: bytes | None = None) -> str:
        done = CliRunner(env={"SCRATCH_DB": str(path)}).invoke(cli, arguments, input=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    terminal("put", "--run", "run-42", stdin=b"x" * 10_000)
    terminal("note", "run-42", "plan", "1")
    lines = [line.split("\t") for line in terminal("stats").splitlines()]
    figures = {name: (int(figure), unit) for name, figure, unit in lines}
    assert len(figures) == len(lines)
    assert figures["captures"] == figures["spills"] == figures["notes written"] == (1, "")
    assert 8_000 < figures["kept out of context"][0] < 10_000
    assert figures["kept out of context"][1] == "bytes"
    told = json.loads(terminal("stats", "--json"))
    assert told["counters"]["captures"] == 1
    assert told["counters"]["kept"] == {}
    assert figures["counted since"] == (told["counted_since"], "ms")


# --- OpenTelemetry


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """By metric: the value, or the values by attribute."""
    data = reader.get_metrics_data()
    found: dict[str, Any] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics if data is not None else ():
        assert isinstance(metric.data, Sum)
        assert metric.data.is_monotonic
        for point in metric.data.data_points:
            assert isinstance(point, NumberDataPoint)
            attributes = dict(point.attributes or {})
            if not attributes:
                found[metric.name] = point.value
            else:
                ((name, word),) = attributes.items()
                found.setdefault(metric.name, {})[f"{name}={word}"] = point.value
    return found


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


async def test_every_counter_is_a_metric_with_its_unit(
    store: ScratchStore, run: RunScratch, clock: Clock, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    instrument(store, meter_provider=provider)
    await run.capture(query("x" * 10_000, tool="secret_tool"))
    await run.capture(query("small"))
    await run.write("secret key", "12345")
    await run.read("secret key")
    await run.write_artifact("secret.md", "1")
    with pytest.raises(HandleNotFound):
        await run.read_handle("r_222222222222")
    with pytest.raises(VersionConflict):
        await run.write("secret key", "2", if_version=7)
    clock.advance(3_601)
    await store.sweep()
    metrics = store.metrics()
    assert collected(reader) == {
        "scratch.captures": 2,
        "scratch.spills": 1,
        "scratch.kept": {"scratch.reason=under_threshold": 1},
        "scratch.context.kept_out": metrics.bytes_kept_out,
        "scratch.reads": {"scratch.read.kind=note": 1},
        "scratch.context.read_back": 5,
        "scratch.misses": {"error.type=HandleNotFound": 1},
        "scratch.notes.written": 1,
        "scratch.artifacts.written": 1,
        "scratch.sweeps": 1,
        "scratch.swept.entries": 3,
        "scratch.swept.content": 10_006,
        "scratch.swept.given_back": metrics.bytes_given_back,
        "scratch.failures": {"error.type=VersionConflict": 1},
    }
    data = reader.get_metrics_data()
    assert data is not None
    told = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert told["scratch.context.kept_out"].unit == "By"
    assert told["scratch.swept.entries"].unit == "{entry}"
    assert all(metric.description for metric in told.values())
    for secret in ("secret", "run-42", "researcher", "r_2222"):
        assert secret not in data.to_json()


async def test_stores_add_up_and_the_sums_never_go_back(
    tmp_path: Path, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    for number in range(1, 4):
        async with ScratchStore.open(tmp_path / f"{number}.db") as store:
            handle = instrument(store, meter_provider=provider)
            assert instrument(store, meter_provider=provider) is handle
            run = await store.run("run-42", agent_id="researcher")
            await run.capture(query("small"))
            assert collected(reader)["scratch.captures"] == number
            if number == 2:
                handle.close()
                handle.close()
                await run.capture(query("small"))
        # what a store has counted last is not lost when it is closed before the reader collects
        assert collected(reader)["scratch.captures"] == number


async def test_a_closed_store_is_not_kept(path: Path, provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    store = await ScratchStore.open(path)
    handle = instrument(store, meter_provider=provider)
    run = await store.run("run-42", agent_id="researcher")
    await run.write("plan", "1")
    await store.close()
    gone = weakref.ref(store)
    del store, run
    gc.collect()
    assert gone() is None
    assert collected(reader)["scratch.notes.written"] == 1
    totals = weakref.ref(handle._totals)
    gone_handle = weakref.ref(handle)
    del handle
    assert gone_handle() is None  # nor what stood for it
    assert totals() is not None


async def test_a_reader_may_collect_on_another_thread_while_the_store_counts(
    store: ScratchStore, run: RunScratch, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    instrument(store, meter_provider=provider)
    done = threading.Event()
    seen: list[int] = []

    def collect() -> None:
        while not done.is_set():
            seen.append(collected(reader)["scratch.captures"])

    thread = threading.Thread(target=collect)
    thread.start()
    while len(seen) < 20 and thread.is_alive():
        await run.capture(query("small"))
    done.set()
    thread.join()
    assert len(seen) >= 20
    assert seen == sorted(seen)
    assert collected(reader)["scratch.captures"] == store.metrics().captures


def test_the_global_provider_may_be_set_later(path: Path) -> None:
    # in a process of its own: it can be set only once
    program = """
import asyncio, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from scratch import ScratchStore
from scratch.telemetry import instrument

async def main():
    async with ScratchStore.open(sys.argv[1]) as first, ScratchStore.open(sys.argv[1]) as second:
        instrument(first)
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader])
        metrics.set_meter_provider(provider)
        instrument(second)
        for store in (first, second):
            await (await store.run("run-42", agent_id="a")).write("plan", "1")
        for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == "scratch.notes.written":
                print([point.value for point in metric.data.data_points])
        provider.shutdown()

asyncio.run(main())
"""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2]\n", "")
