"""What every verb does when something is wrong under an open store: named errors, results kept, and on it goes."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import shutil
import sqlite3
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from scratch import (
    ScratchError,
    ScratchStore,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreMissing,
    WrongLoop,
    WrongProcess,
)
from scratch.database import connection as opening
from scratch.sweeper.schedule import SweepSchedule
from tests.faults_support import (
    FIGURES,
    READS,
    TOOL_READS,
    TOOL_WRITES,
    WRITES,
    Kit,
    all_is_well,
    fill,
    filled,
    locked,
    open_kit,
    refuses,
    results_are_kept,
    small_disk,
    tools_refuse,
    tools_work,
    works,
)
from tests.support import Clock, query


async def writes_are_refused_and_reads_go_on(
    kit: Kit, error: type[ScratchError], caplog: pytest.LogCaptureFixture
) -> None:
    await refuses(kit, WRITES, error)
    await tools_refuse(kit, TOOL_WRITES, error)
    await results_are_kept(kit, error, caplog)
    await works(kit, READS)
    await tools_work(kit, TOOL_READS)
    failures: list[Exception] = []
    schedule = SweepSchedule(kit.store.sweep, on_failure=lambda failure, _: failures.append(failure))
    await schedule.run_once()
    assert [type(failure) for failure in failures] == [error]


# --- a full disk


async def test_on_a_full_disk_reads_go_on_and_with_room_again_everything_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with open_kit(disk / "scratch.db") as kit:
            for _ in range(2):
                with filled(disk):
                    await writes_are_refused_and_reads_go_on(kit, StoreFull, caplog)
                    await works(kit, FIGURES)
                    with pytest.raises(StoreFull):
                        await kit.store.backup(disk / "copy.db")
                    assert not (disk / "copy.db").exists()
                    await kit.store.backup(tmp_path / f"copy-{os.urandom(4).hex()}.db")
                await kit.run.write("note-3", "x")
            await all_is_well(kit)


@contextmanager
def no_file_may_grow_over(size: int) -> Iterator[None]:
    """Writing over it is an error of the disk: not SQLITE_FULL, but an I/O error, as over a quota."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_where_the_disk_takes_nothing_more_reads_go_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_kit(path) as kit:
        with no_file_may_grow_over(path.stat().st_size):  # all that was written is in the log only
            await writes_are_refused_and_reads_go_on(kit, StoreError, caplog)
            await works(kit, FIGURES)
        await all_is_well(kit)


async def test_a_commit_for_which_there_is_no_room_is_taken_back_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with open_kit(disk / "scratch.db") as kit:
            before = await kit.store.stats()
            with filled(disk, leave=1_500_000):
                outcomes = await asyncio.gather(
                    *(kit.run.write(f"big-{number}", "x" * 300_000) for number in range(8)), return_exceptions=True
                )
            assert {type(outcome) for outcome in outcomes} == {StoreFull}
            assert (await kit.store.stats()).live == before.live
            await all_is_well(kit)


async def test_a_checkpoint_for_which_there_is_no_room_is_made_up_for_later(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        async with open_kit(disk / "scratch.db") as kit:
            with filled(disk), pytest.raises(StoreFull):
                await kit.store._database.truncate_wal()
            assert await kit.store._database.truncate_wal() == 0
            await all_is_well(kit)


async def test_a_sweep_frees_space_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "32m") as disk:
        path, clock = disk / "scratch.db", Clock()
        async with open_kit(path, clock) as kit:
            for number in range(100):
                await kit.run.write(f"old-{number}", "x" * 20_000, ttl=60)
            await kit.store._database.truncate_wal()
            for number in range(50):  # they find room in the file, and are in the log only
                await kit.run.delete(f"old-{number}")
            for number in range(30):
                await kit.run.write(f"old-{number}", "x" * 20_000, ttl=60)
            clock.advance(100)
            size = path.stat().st_size
            with filled(disk):
                swept = await kit.store.sweep()
                assert swept.entries == 83
                assert swept.given_back > 1_000_000
                assert path.stat().st_size < size - 1_000_000
                assert (await kit.run.capture(query("x" * 100_000))).decision.spill
            await all_is_well(kit)


@pytest.mark.parametrize("size", [1_000, 50_000, 1_000_000])
async def test_a_store_that_fills_the_disk_by_itself_can_be_swept(tmp_path: Path, size: int) -> None:
    with small_disk(tmp_path / "disk", "12m") as disk:
        clock = Clock()
        async with open_kit(disk / "scratch.db", clock) as kit:

            async def write_on() -> None:
                for number in itertools.count():
                    await kit.run.write(f"old-{number}", "x" * size, ttl=60)

            with pytest.raises(StoreFull, match="free some, or sweep"):
                await write_on()
            assert shutil.disk_usage(disk).free > 500_000
            clock.advance(100)
            swept = await kit.store.sweep()
            assert swept.entries > 3
            assert swept.wal_bytes == 0
            await all_is_well(kit)


async def test_a_store_at_its_page_limit_can_be_swept_and_goes_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    async with open_kit(path, clock) as kit:
        engine = kit.store._database._engine
        assert engine.writer is not None
        for number in range(20):
            await kit.run.write(f"old-{number}", "x" * 20_000, ttl=60)
        (pages,) = await engine.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
        await engine.writer.call(lambda connection: connection.execute(f"PRAGMA max_page_count={pages}"))
        await results_are_kept(kit, StoreFull, caplog)
        await works(kit, READS)
        clock.advance(100)
        assert (await kit.store.sweep()).entries == 23
        assert (await kit.run.capture(query("x" * 100_000))).decision.spill


# --- locks


async def test_while_another_process_keeps_the_lock_reads_go_on(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_kit(path) as kit:
        with locked(path), monkeypatch.context() as patch:
            patch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
            await writes_are_refused_and_reads_go_on(kit, StoreBusy, caplog)
            await works(kit, FIGURES)
            await kit.store.backup(path.with_name("copy.db"))
        await all_is_well(kit)


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_store_that_another_process_keeps_for_itself_is_busy(
    path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    async with open_kit(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE runs SET completed_at = 1")
        other.execute("COMMIT")
        monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
        with pytest.raises(StoreBusy):
            await ScratchStore.open(path, read_only=read_only)


# --- the file goes away


def delete(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def replace(path: Path) -> None:
    """Another store takes its place, as an editor or rsync would do it: under the same name, another file."""

    async def make() -> None:
        async with ScratchStore.open(path.with_name("new.db")) as store:
            await (await store.run("of the new one", agent_id="a")).write("note", "x" * 100_000)

    thread = threading.Thread(target=lambda: asyncio.run(make()))  # a loop is running in this one
    thread.start()
    thread.join()
    path.with_name("new.db").rename(path)


AWAY: dict[str, Callable[[Path], object]] = {
    "deleted": delete,
    "deleted alone": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name("renamed.db")),
    "replaced": replace,
    "its log deleted": lambda path: path.with_name("scratch.db-wal").unlink(),
    "its folder deleted": lambda path: shutil.rmtree(path.parent),
    "its folder renamed": lambda path: path.parent.rename(path.parent.with_name("renamed")),
}


@pytest.mark.parametrize("what", AWAY)
async def test_nothing_is_acknowledged_into_a_file_that_is_not_there_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    path = tmp_path / "folder" / "scratch.db"
    async with open_kit(path) as kit:
        AWAY[what](path)
        await writes_are_refused_and_reads_go_on(kit, StoreMissing, caplog)
        await refuses(kit, FIGURES, StoreMissing)
        await kit.store.backup(tmp_path / "rescued.db")  # what was read until now need not be lost
    async with ScratchStore.open(path) as store:  # its old log brings nothing back
        expected = {"replaced": ["of the new one"], "its log deleted": ["run-42", "run-43", "run-44", "old"]}
        assert [run.run_id for run in await store.list_runs()] == expected.get(what, [])
        assert (await store.check()).problems == ()
        await all_is_well(await fill(store))
    if what == "renamed":  # all that was acknowledged before is in it
        async with ScratchStore.open(path.with_name("renamed.db")) as store:
            assert len(await store.list_scratch_entries_for_run("run-42")) == 5
    async with ScratchStore.open(tmp_path / "rescued.db") as store:
        assert len(await store.list_scratch_entries_for_run("run-42")) == 5


async def test_a_store_opened_for_reading_says_that_its_file_is_gone(path: Path) -> None:
    async with open_kit(path):
        pass
    async with ScratchStore.open(path, read_only=True) as store:
        run = await store.run("run-42", agent_id="researcher")
        path.unlink()
        for verb in (run.read("note"), run.list(), store.stats(), store.check(), store.backup(path.with_name("copy"))):
            with pytest.raises(StoreMissing):
                await verb
    assert list(path.parent.iterdir()) == []


# --- closed, another loop, another process


async def everything_is_refused(kit: Kit, error: type[ScratchError], caplog: pytest.LogCaptureFixture) -> None:
    await refuses(kit, {**WRITES, **READS, **FIGURES}, error)
    await tools_refuse(kit, {**TOOL_WRITES, **TOOL_READS}, error)
    await results_are_kept(kit, error, caplog)


async def test_a_closed_store_refuses_everything(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_kit(path) as kit:
        pass
    await everything_is_refused(kit, StoreClosed, caplog)


async def test_another_loop_is_refused_everything(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_kit(path) as kit:
        await asyncio.to_thread(asyncio.run, everything_is_refused(kit, WrongLoop, caplog))
        await all_is_well(kit)


async def test_another_process_is_refused_everything_at_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def at_once(verb: Coroutine[Any, Any, object]) -> None:
        with pytest.raises(StopIteration):
            verb.send(None)

    async with open_kit(path) as kit:
        working = [asyncio.ensure_future(kit.run.capture(query("x" * 500_000))) for _ in range(3)]
        await asyncio.sleep(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks beside threads
            child = os.fork()
        if child == 0:
            code = 1
            try:
                at_once(everything_is_refused(kit, WrongProcess, caplog))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert all(captured.handle for captured in await asyncio.gather(*working))
        await all_is_well(kit)
