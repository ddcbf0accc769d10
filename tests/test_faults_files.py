"""Files that are damaged, foreign, newer, replaced or out of reach: when a store is opened, and under an open one."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from scratch import (
    ForeignDatabase,
    HandleNotFound,
    Kind,
    NoteNotFound,
    RunNotFound,
    ScratchStore,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from scratch.database import connection as opening
from scratch.tools import Toolset
from tests.faults_support import (
    FIGURES,
    LARGE,
    READS,
    TOOL_READS,
    TOOL_WRITES,
    WRITES,
    Kit,
    all_is_well,
    call,
    fill,
    filled,
    open_kit,
    read_only_disk,
    refuses,
    results_are_kept,
    small_disk,
    tools_refuse,
    works,
)
from tests.support import Clock, query

PAGE = 8_192


def root_page(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,))
    return int(page)


def overwrite(path: Path, start: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * length)


def page_of(name: str) -> Callable[[Path], None]:
    return lambda path: overwrite(path, (root_page(path, name) - 1) * PAGE, PAGE)


def another_file(path: Path) -> None:
    """As `cp` does it: the same file, another content."""
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.executescript("PRAGMA page_size=4096; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    shutil.copyfile(other, path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "entries": page_of("scratch_entries"),
    "index of entries": page_of("sqlite_autoindex_scratch_entries_1"),
    "pieces": page_of("scratch_chunks"),
    "runs": page_of("runs"),
    "schema": lambda path: overwrite(path, 100, PAGE - 100),
    "header": lambda path: overwrite(path, 0, PAGE),
    "everything": lambda path: overwrite(path, 0, path.stat().st_size),
    "cut to nothing": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, 3 * PAGE),
}


async def forget_pages(store: ScratchStore) -> None:
    """As if the memory in which SQLite keeps pages had been needed elsewhere; and nothing is left in the log."""
    engine = store._database._engine
    for worker in (engine.writer, engine.upkeep, engine.reader):
        assert worker is not None
        await worker.call(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        await worker.call(lambda connection: connection.execute("PRAGMA shrink_memory"))


async def works_or_raises(kit: Kit, expected: type[StoreError]) -> int:
    """How many verbs found that something is wrong. None says anything else."""
    found = 0
    for verb in {**READS, **FIGURES, **WRITES}.values():
        with suppress(HandleNotFound, NoteNotFound, RunNotFound):
            try:
                await verb(kit)
            except expected:
                found += 1
    for tool in {**TOOL_READS, **TOOL_WRITES}:
        answer = await call(kit, tool)
        assert "internal_error" not in answer, (tool, answer)
        found += f'"error":"{expected.code}"' in answer
    captured = await kit.run.capture(query(LARGE))
    assert captured.decision.spill or (captured.text, captured.decision.reason) == (LARGE, "store_failed")
    return found


@pytest.mark.parametrize("checked", ["small", "large"])
@pytest.mark.parametrize("what", DAMAGE)
async def test_damage_under_an_open_store_is_said_and_the_next_opening_sets_it_aside(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str, checked: str
) -> None:
    if checked == "large":  # too large to be checked whenever it is opened
        monkeypatch.setattr(opening, "_CHECKED_AT_MOST", 0)
    async with open_kit(path) as kit:
        await forget_pages(kit.store)
        DAMAGE[what](path)
        assert await works_or_raises(kit, StoreCorrupt) > 0
    caplog.clear()
    async with ScratchStore.open(path) as store:
        (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert "set aside as scratch.db.damaged-1, starting a new one" in record.getMessage()
        assert await store.list_runs() == []
        await all_is_well(await fill(store))
    assert {one.name for one in path.parent.iterdir()} - {"other.db"} <= {
        "scratch.db",
        *(f"scratch.db.damaged-1{suffix}" for suffix in ("", "-wal", "-shm", "-check")),
    }


async def test_a_check_that_was_asked_for_and_finds_nothing_is_made_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_kit(path):
        pass
    page = path.read_bytes()
    DAMAGE["pieces"](path)
    monkeypatch.setattr(opening, "_CHECKED_AT_MOST", 0)
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        with pytest.raises(StoreCorrupt):
            await run.read("note")
    assert path.with_name("scratch.db-check").stat().st_mode & 0o777 == 0o600
    path.write_bytes(page)  # somebody has brought it back
    for _ in range(2):
        async with ScratchStore.open(path) as store:
            run = await store.run("run-42", agent_id="researcher")
            assert (await run.read("note")).text == "of note"
        assert list(path.parent.iterdir()) == [path]


async def test_another_database_that_is_copied_into_the_file_is_refused_at_the_next_opening(path: Path) -> None:
    async with open_kit(path) as kit:
        await forget_pages(kit.store)
        another_file(path)
        assert await works_or_raises(kit, StoreError) > 0
    with pytest.raises(ForeignDatabase):
        await ScratchStore.open(path)


# --- another store's file, with the log of the one before


async def write_notes(store: ScratchStore, count: int, text: str) -> None:
    run = await store.run("run-42", agent_id="researcher")
    for number in range(count):
        await run.write(f"{text}-{number}", text * 3_000)


@pytest.mark.parametrize(("before", "in_the_log", "other"), [(0, 1, 20), (5, 1, 3), (20, 3, 20), (20, 20, 0)])
@pytest.mark.parametrize("which", ["another store", "an older copy"])
async def test_a_file_that_was_put_beside_an_old_log_is_whole_or_set_aside(
    tmp_path: Path, path: Path, which: str, before: int, in_the_log: int, other: int
) -> None:  # C142
    source, placed = tmp_path / "source.db", tmp_path / "placed.db"
    async with ScratchStore.open(source) as store:
        await write_notes(store, before, "o")
    if which == "an older copy":
        shutil.copy(source, placed)
    async with ScratchStore.open(source) as store:
        await write_notes(store, before, "later")
        await store.sweep()
        await write_notes(store, in_the_log, "log")
        shutil.copy(f"{source}-wal", f"{path}-wal")  # as a killed process leaves it
    if which == "another store":
        async with ScratchStore.open(placed) as store:
            await write_notes(store, other, "n")
    shutil.copy(placed, path)
    for _ in range(2):  # when it shows only in use, then at the second opening
        try:
            async with ScratchStore.open(path) as store:
                run = await store.run("run-42", agent_id="researcher")
                for info in await run.list(limit=1_000):
                    assert (await run.read(info.key)).text == info.key.partition("-")[0] * 3_000
                assert (await store.check()).problems == ()
                break
        except StoreCorrupt:
            continue
    else:
        raise AssertionError("it is neither whole nor set aside")


# --- opening


async def test_a_store_on_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with open_kit(disk / "scratch.db") as kit:
            handle = kit.handle
        with read_only_disk(disk):
            for path in (disk / "scratch.db", disk / "new.db", disk / "folder" / "new.db"):
                with pytest.raises(StoreReadOnly):
                    await ScratchStore.open(path)
            async with ScratchStore.open(disk / "scratch.db", read_only=True) as store:
                run = await store.run("run-42", agent_id="researcher")
                assert (await run.read_handle(handle, match="row 999")).total_matches == 1
                assert (await store.check()).problems == ()
                await store.backup(tmp_path / "copy.db")
                with pytest.raises(StoreReadOnly):
                    await run.write("note", "x")
        async with open_kit(disk / "scratch.db") as kit:
            await all_is_well(kit)


async def test_a_file_that_may_not_be_written_is_read_and_every_write_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = Path(tempfile.mkdtemp())  # where others get to, unlike tmp_path
    path = folder / "scratch.db"
    try:
        async with open_kit(path):
            pass
        folder.chmod(0o777)
        path.chmod(0o444)
        if os.getuid() == 0:  # to whom rights mean nothing
            os.seteuid(65_534)
        async with ScratchStore.open(path, clock=Clock()) as store:
            run = await store.run("run-42", agent_id="researcher")
            (handle,) = await run.list(kind=Kind.HANDLE)
            kit = Kit(store, run, Toolset(run), handle.key)
            await refuses(kit, WRITES, StoreReadOnly)
            await tools_refuse(kit, TOOL_WRITES, StoreReadOnly)
            await results_are_kept(kit, StoreReadOnly, caplog)
            await works(kit, {**READS, **FIGURES})
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        shutil.rmtree(folder)


@pytest.mark.parametrize("leave", [0, 4_096, 16_384, 32_768, 40_960, 65_536, 98_304])
async def test_a_full_disk_at_opening_is_store_full_and_no_half_a_store_stays_in_the_way(
    tmp_path: Path, leave: int
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with open_kit(disk / "old.db"):
            pass
        with filled(disk, leave=leave):
            for _ in range(2):
                with pytest.raises(StoreFull):
                    await ScratchStore.open(disk / "new.db")
            if leave < 32_768:
                async with ScratchStore.open(disk / "old.db", read_only=True) as store:
                    assert (await store.check()).problems == ()
                with pytest.raises(StoreFull):
                    await ScratchStore.open(disk / "old.db")
        for name in ("new.db", "old.db"):
            async with open_kit(disk / name) as kit:
                await all_is_well(kit)


async def test_a_disk_without_room_for_one_more_file_is_store_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m,nr_inodes=3") as disk:
        (disk / "one").touch()
        (disk / "two").touch()
        with pytest.raises(StoreFull):
            await ScratchStore.open(disk / "scratch.db")
        with pytest.raises(StoreFull):
            await ScratchStore.open(disk / "folder" / "scratch.db")
