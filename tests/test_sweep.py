"""One pass of the sweeper: what it deletes, what it leaves alone, and what it gives back."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scratch import InvalidArgument, Kind, RunScratch, ScratchStore, StoreBusy, StoreClosed, StoreReadOnly, SweepReport
from scratch.database import connection as opening
from scratch.database import maintenance
from scratch.database.turns import TURNS
from scratch.sweeper.sweep import sweep
from tests.support import Clock, add_expired, count_entries, query

ROOT = Path(__file__).resolve().parent.parent
MIB = 1024 * 1024


@contextmanager
def other_connection(path: Path) -> Iterator[sqlite3.Connection]:
    """As another process would have it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


async def traced(store: ScratchStore) -> list[str]:
    """Every statement that the connection which writes runs from now on, as it comes."""
    seen: list[str] = []
    writer = store._database._engine.writer
    assert writer is not None
    await writer.call(lambda connection: connection.set_trace_callback(seen.append))
    return seen


def deletions(seen: list[str]) -> list[set[str]]:
    """The deletions of entries in each transaction. (A statement is told again for each trigger in it.)"""
    transactions: list[set[str]] = []
    for statement in seen:
        if statement == "BEGIN IMMEDIATE":
            transactions.append(set())
        elif statement.startswith("DELETE FROM scratch_entries"):
            transactions[-1].add(statement)
    return transactions


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 0.05 seconds for a lock instead of 5."""
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.05)


# --- what is deleted


async def test_a_sweep_on_demand_deletes_what_has_expired_and_nothing_else(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C115
    await run.capture(query("x" * 20_000), ttl=10)
    new = await run.capture(query("y" * 20_000), ttl=11)
    await run.write("old", "1", ttl=10)
    await run.write("new", "2", ttl=11)
    clock.advance(10)
    report = await store.sweep()
    assert (report.entries, report.bytes, report.dry_run) == (2, 20_001, False)
    assert report.batches >= 1
    assert new.handle is not None
    assert (await run.read_handle(new.handle)).size == 20_000
    assert (await run.read("new")).text == "2"
    assert {info.key for info in await store.list_scratch_entries_for_run("run-42")} == {new.handle, "new"}
    assert count_entries(store.path) == 2


async def test_large_results_are_reaped_with_all_their_pieces(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C121
    await run.capture(query("日本語😀" * 100_000))
    clock.advance(3_600)
    report = await store.sweep()
    assert (report.entries, report.bytes) == (1, 1_300_000)
    with other_connection(store.path) as connection:
        assert connection.execute("SELECT count(*) FROM scratch_chunks").fetchone() == (0,)
        assert connection.execute("SELECT bytes FROM runs").fetchone() == (0,)


async def test_a_sweep_during_an_open_run_never_takes_live_entries(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C93
    captured = await run.capture(query("x" * 20_000), ttl=10)
    await run.write("plan", "find it", ttl=10)
    assert captured.handle is not None
    for _ in range(5):
        clock.advance(9)
        await run.renew(captured.handle, 10)
        await run.renew("plan", 10)
        add_expired(store.path, 3)
        assert (await store.sweep()).entries == 3
    assert (await run.read_handle(captured.handle)).size == 20_000
    assert (await run.read("plan")).text == "find it"


async def test_a_completed_run_keeps_its_entries_until_they_expire(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    await run.write("result", "42", ttl=10)
    await store.complete_run("run-42")
    assert (await store.sweep()).entries == 0
    clock.advance(10)
    assert (await store.sweep()).entries == 1


async def test_a_clock_that_steps_back_deletes_nothing_that_is_live(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    await run.write("before", "1", ttl=10)
    clock.advance(-7_200)
    await run.write("after", "2", ttl=10)
    assert (await store.sweep()).entries == 0
    assert [info.key for info in await run.list()] == ["after", "before"]
    clock.advance(10)
    assert (await store.sweep()).entries == 1
    assert [info.key for info in await run.list()] == ["before"]


async def test_what_expires_during_a_pass_waits_for_the_next_one(store: ScratchStore, run: RunScratch) -> None:
    times = iter([1_800_000_000.0])
    await run.write("note", "1", ttl=0.5)
    add_expired(store.path, 3)
    # the second look at this clock would raise
    report = await sweep(store._database, lambda: next(times), batch_entries=1, pause=0)
    assert report.entries == 3
    assert (await run.read("note")).text == "1"


async def test_several_writers_are_served_during_a_sweep_and_lose_nothing(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    add_expired(store.path, 1_500)
    done = asyncio.Event()
    written: dict[str, str] = {}

    async def write(scope: RunScratch, name: str) -> int:
        number = 0
        while not done.is_set() or number == 0:
            await scope.write(f"{name}-{number}", str(number))
            captured = await scope.capture(query(f"{name}-{number} " * 2_000))
            assert captured.decision.reason == "over_threshold"
            assert captured.handle is not None
            written[captured.handle] = scope.agent_id
            number += 1
        return number

    async with ScratchStore.open(store.path, clock=clock) as other:
        scopes = [await other.run("run-42", agent_id="other"), run, await store.run("run-43", agent_id="third")]
        tasks = [asyncio.create_task(write(scope, f"w{number}")) for number, scope in enumerate(scopes * 2)]
        report = await store.sweep()
        done.set()
        notes = sum(await asyncio.gather(*tasks))
    assert report.entries == 1_500
    assert count_entries(store.path) == notes + len(written) == 2 * notes
    live = await store.list_scratch_entries_for_run("run-42") + await store.list_scratch_entries_for_run("run-43")
    assert {info.key: info.agent_id for info in live if info.kind is Kind.HANDLE} == written


# --- in short transactions


async def test_a_hundred_thousand_expired_entries_go_in_transactions_of_limited_size(
    store: ScratchStore, clock: Clock
) -> None:  # C148
    add_expired(store.path, 100_000, size=0)
    seen = await traced(store)
    report = await sweep(store._database, clock, batch_entries=400, pause=0)
    sizes = [len(ids) for ids in deletions(seen)]
    assert max(sizes) <= 400
    assert sum(sizes) == report.entries == 100_000
    assert report.batches == sum(1 for size in sizes if size)
    assert count_entries(store.path) == 0


async def test_a_batch_that_has_held_the_lock_too_long_ends_early(store: ScratchStore) -> None:
    add_expired(store.path, 10)
    batch = await store._database.delete_expired(2, entries=50, seconds=0)
    assert (batch.entries, batch.more) == (1, True)
    assert (await store.sweep()).entries == 9


async def test_a_cancelled_sweep_has_deleted_whole_batches_and_nothing_else(
    store: ScratchStore, run: RunScratch
) -> None:  # C181
    add_expired(store.path, 2_000)
    await run.write("live", "1")
    seen = await traced(store)
    sweeping = asyncio.create_task(store.sweep(batch_entries=20))
    while seen.count("COMMIT") < 3 and not sweeping.done():
        await asyncio.sleep(0)
    sweeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweeping
    assert (await run.read("live")).text == "1"
    await run.write("live", "2")  # waits for what was still being committed
    left = count_entries(store.path) - 1
    assert 0 < left < 2_000
    assert seen.count("BEGIN IMMEDIATE") == seen.count("COMMIT")
    assert sum(len(ids) for ids in deletions(seen)) == 2_000 - left
    assert (await store.sweep()).entries == left


async def test_closing_the_store_during_a_sweep_leaves_whole_batches(path: Path) -> None:  # C181
    store = await ScratchStore.open(path)
    add_expired(path, 2_000)
    seen = await traced(store)
    sweeping = asyncio.create_task(store.sweep())
    while "COMMIT" not in seen and not sweeping.done():
        await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreClosed):
        await sweeping
    deleted = 2_000 - count_entries(path)
    assert 0 < deleted < 2_000
    assert seen.count("BEGIN IMMEDIATE") == seen.count("COMMIT")
    assert sum(len(ids) for ids in deletions(seen)) == deleted
    async with ScratchStore.open(path) as store:
        assert (await store.sweep()).entries == 2_000 - deleted
        assert (await store.check()).problems == ()


# --- beside others


SWEEPER = """
import asyncio, dataclasses, json, sys
from scratch import ScratchStore

async def main():
    async with ScratchStore.open(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(dataclasses.asdict(await store.sweep(batch_entries=10))), flush=True)

asyncio.run(main())
"""


async def test_two_processes_that_sweep_one_store_delete_each_entry_once(store: ScratchStore) -> None:  # C187
    add_expired(store.path, 3_000)
    command = [sys.executable, "-c", SWEEPER, str(store.path)]
    pipe = subprocess.PIPE
    sweepers = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for sweeper in sweepers:
        assert sweeper.stdout is not None
        assert sweeper.stdout.readline() == "ready\n", sweeper.communicate()[1]
    outputs = await asyncio.gather(*(asyncio.to_thread(sweeper.communicate, "go\n") for sweeper in sweepers))
    assert [errors for _, errors in outputs] == ["", ""]
    reports = [json.loads(output) for output, _ in outputs]
    assert sum(report["entries"] for report in reports) == 3_000
    assert sum(report["bytes"] for report in reports) == 300_000
    assert count_entries(store.path) == 0


async def test_a_sweep_with_nothing_to_do_takes_no_write_lock(path: Path) -> None:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("live", "1")
        await store.sweep()
        seen = await traced(store)
        upkeep = store._database._engine.upkeep
        assert upkeep is not None
        await upkeep.call(lambda connection: connection.set_trace_callback(seen.append))
        with other_connection(path) as other:
            other.execute("BEGIN IMMEDIATE")
            report = await store.sweep()
            other.execute("ROLLBACK")
        run_by_sweep = list(seen)  # closing saves the counts
    assert (report.entries, report.batches, report.given_back, report.wal_bytes) == (0, 0, 0, 0)
    assert [
        one for one in run_by_sweep if not one.startswith(("SELECT", "PRAGMA freelist_count", "PRAGMA page_size"))
    ] == []


async def test_a_writer_in_the_way_of_the_checkpoint_is_reported_and_not_raised(
    store: ScratchStore, run: RunScratch
) -> None:  # C140
    await run.write("live", "1")
    with other_connection(store.path) as other:
        other.execute("BEGIN IMMEDIATE")
        assert (await store.sweep()).wal_bytes > 0
        other.execute("ROLLBACK")
    assert (await store.sweep()).wal_bytes == 0


async def test_a_reader_that_pins_the_wal_is_reported_and_not_raised(
    store: ScratchStore, run: RunScratch
) -> None:  # C138
    with other_connection(store.path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM scratch_entries").fetchall()
        for number in range(200):
            await run.capture(query(f"{number}" + "x" * 100_000))
        assert (await store.sweep()).wal_bytes > 15 * MIB
    assert (await store.sweep()).wal_bytes == 0


async def test_listing_and_reading_leave_no_cursor_that_pins_the_wal(
    store: ScratchStore, run: RunScratch
) -> None:  # C139
    for number in range(20):
        await run.write(f"note-{number}", "x" * 100_000)
    assert len(await run.list(limit=1)) == 1
    assert len(await store.list_scratch_entries_for_run("run-42")) == 20
    await run.read("note-0")
    await store.list_runs()
    assert (await store.sweep()).wal_bytes == 0


async def test_a_lock_that_is_never_released_ends_the_sweep_with_store_busy(
    store: ScratchStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # C137
    give_up_soon(monkeypatch)
    add_expired(store.path, 10)
    with other_connection(store.path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            await store.sweep()
        other.execute("ROLLBACK")
    assert count_entries(store.path) == 10
    assert (await store.sweep()).entries == 10


async def test_a_sweep_waits_for_a_lock_that_is_released_in_time(store: ScratchStore) -> None:  # C137
    add_expired(store.path, 10)
    seen = await traced(store)
    with other_connection(store.path) as other:
        other.execute("BEGIN IMMEDIATE")
        sweeping = asyncio.create_task(store.sweep())
        while seen.count("BEGIN IMMEDIATE") < 3 and not sweeping.done():  # it is trying
            await asyncio.sleep(0)
        other.execute("ROLLBACK")
        assert (await sweeping).entries == 10


async def test_space_that_cannot_be_given_back_now_is_left_to_the_next_sweep(
    store: ScratchStore, run: RunScratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch)
    await run.write("note", "x" * MIB)
    await run.delete("note")
    with other_connection(store.path) as other:
        other.execute("BEGIN IMMEDIATE")
        assert (await store.sweep()).given_back == 0
        other.execute("ROLLBACK")
    assert (await store.sweep()).given_back >= MIB


# --- the space


async def test_a_sweep_makes_the_file_smaller(store: ScratchStore, run: RunScratch, clock: Clock) -> None:  # C117
    empty = (await store.stats()).file_bytes
    for number in range(100):
        await run.capture(query(f"{number} " + "x" * 30_000))
    clock.advance(3_600)
    full = (await store.stats()).file_bytes
    report = await store.sweep()
    after = (await store.stats()).file_bytes
    assert report.entries == 100
    assert report.given_back > 3_000_000
    assert after <= empty + MIB < full
    assert report.wal_bytes == 0


async def test_a_deleted_run_of_20_megabytes_leaves_a_small_file(store: ScratchStore, path: Path) -> None:  # C144
    run = await store.run("big", agent_id="researcher")
    for number in range(20):
        await run.capture(query(f"{number} " + "x" * 1_000_000))
    await store.delete_run("big")
    await store._database.truncate_wal()
    assert path.stat().st_size > 15_000_000
    report = await store.sweep()
    assert report.given_back > 15_000_000
    assert path.stat().st_size < 2_000_000
    assert report.wal_bytes == path.with_name("scratch.db-wal").stat().st_size == 0


async def test_space_is_given_back_in_bounded_steps_off_the_event_loop(
    store: ScratchStore, run: RunScratch, monkeypatch: pytest.MonkeyPatch
) -> None:  # C147
    await run.write("live", "1")
    big = await store.run("big", agent_id="researcher")
    for number in range(10):
        await big.capture(query(f"{number} " + "x" * 1_000_000))
    await store.delete_run("big")
    await store._database.truncate_wal()
    before = store.path.stat().st_size
    sizes: list[int] = []
    threads: set[int] = set()
    vacuum_step = maintenance.vacuum_step

    def watched(connection: sqlite3.Connection, pages: int) -> None:
        vacuum_step(connection, pages)
        free, page_size = maintenance.free_pages(connection)
        sizes.append(free * page_size)
        threads.add(threading.get_ident())
        assert store.path.stat().st_size <= before

    monkeypatch.setattr(maintenance, "vacuum_step", watched)
    report = await store.sweep()
    assert len(sizes) >= 3
    assert report.given_back > 10_000_000
    steps = [a - b for a, b in zip([sizes[0] + 4 * MIB, *sizes], sizes, strict=False)]
    assert max(steps) <= 4 * MIB
    assert threading.get_ident() not in threads
    assert (await run.read("live")).text == "1"


def test_the_more_pages_are_free_the_fewer_are_cut_off_at_once() -> None:
    """Each was seen to take 240 microseconds where 130,000 were free, and 4 where it stood at the front of the list."""
    pages = [maintenance.vacuum_pages(free, 0.0015) for free in (1, 1_000, 10_000, 130_000, 10_000_000)]
    assert pages == [149, 120, 42, 4, 4]
    assert maintenance.vacuum_pages(1, 1.0) == 512


def test_who_waits_for_the_lock_hears_that_it_was_given_back() -> None:
    waiting, woken = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        TURNS.wait(60)
        woken.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert waiting.wait(10)
    while not woken.is_set() and thread.is_alive():
        TURNS.give_way()
    thread.join(10)
    assert woken.is_set()


async def test_a_new_store_can_give_space_back(store: ScratchStore, path: Path) -> None:  # C146
    with other_connection(path) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert connection.execute("PRAGMA page_size").fetchone() == (8_192,)


async def test_orphaned_content_is_found_and_swept(path: Path) -> None:  # C123
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("live", "1")
        with other_connection(path) as tool:  # one that knows no foreign keys
            tool.executemany("INSERT INTO scratch_chunks VALUES (?, 0, x'00')", [(1_000 + n,) for n in range(120)])
        assert any("120 rows point to a row that is gone" in one for one in (await store.check()).problems)
        report = await store.sweep()
        assert (report.entries, report.bytes) == (0, 0)
        assert (await store.check()).problems == ()
        assert (await run.read("live")).text == "1"


# --- only looking


async def test_a_dry_run_counts_what_a_sweep_would_delete(store: ScratchStore) -> None:
    add_expired(store.path, 7)
    counted = await store.sweep(dry_run=True)
    assert (counted.entries, counted.bytes, counted.batches, counted.dry_run) == (7, 700, 0, True)
    assert count_entries(store.path) == 7
    assert (await store.sweep()).entries == 7
    assert (await store.sweep(dry_run=True)).entries == 0


async def test_a_store_opened_for_reading_can_only_do_a_dry_run(path: Path) -> None:
    async with ScratchStore.open(path):
        add_expired(path, 7)
    before = path.read_bytes()
    async with ScratchStore.open(path, read_only=True) as store:
        assert (await store.sweep(dry_run=True)).entries == 7
        with pytest.raises(StoreReadOnly):
            await store.sweep()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("batch", [0, -1, True, 2.0, "5"])
async def test_a_bad_batch_size_is_refused(store: ScratchStore, batch: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await store.sweep(batch_entries=batch)  # type: ignore[arg-type]  # on purpose
    assert caught.value.data["argument"] == "batch_entries"


async def test_a_negative_pause_is_refused(store: ScratchStore, clock: Clock) -> None:
    with pytest.raises(InvalidArgument):
        await sweep(store._database, clock, pause=-1)


async def test_a_sweep_of_an_empty_store_reports_nothing(store: ScratchStore) -> None:
    report = await store.sweep()
    assert report == SweepReport(0, 0, 0, 0, 0, report.seconds)
