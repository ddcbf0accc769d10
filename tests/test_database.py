"""The database layer: the file and its place, the pragmas, the schema, damage, locks, a full disk, the WAL."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from scratch import (
    ForeignDatabase,
    Kind,
    RunScratch,
    SchemaTooNew,
    ScratchStore,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    UnsafePath,
)
from scratch.database import connection as opening
from scratch.database import files, maintenance, statements
from scratch.database.worker import Worker
from scratch.entries import Scope
from tests.support import Clock, query

MIB = 1024 * 1024
NOBODY = 65_534


def sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run statements as another program would; return the last one's rows."""
    rows: list[tuple[object, ...]] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else holds the write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {one.name: (one.stat().st_size, one.stat().st_mtime_ns) for one in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


NEWER = opening.SCHEMA_VERSION + 1


async def make_store(path: Path, notes: int = 3) -> None:
    """A closed store with some notes of 10,000 bytes."""
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        for number in range(notes):
            await run.write(f"note-{number}", f"{number}" * 10_000)


def workers(store: ScratchStore) -> dict[str, Worker]:
    engine = store._database._engine
    assert engine.writer is not None
    assert engine.upkeep is not None
    assert engine.reader is not None
    return {"writer": engine.writer, "upkeep": engine.upkeep, "reader": engine.reader}


# --- every connection


@pytest.mark.parametrize(("secure_delete", "expected"), [("fast", 2), ("on", 1)])
async def test_every_connection_has_the_pragmas(path: Path, secure_delete: str, expected: int) -> None:  # C146 C149
    pragmas = {
        "page_size": 8_192,
        "auto_vacuum": 2,
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "secure_delete": expected,
        "journal_size_limit": 16 * MIB,
        "trusted_schema": 0,
        "wal_autocheckpoint": 0,
    }
    own = {  # the writing ones wait in a way of their own
        "writer": {"busy_timeout": 0, "query_only": 0},
        "upkeep": {"busy_timeout": 0, "query_only": 0},
        "reader": {"busy_timeout": 5_000, "query_only": 1},
    }
    async with ScratchStore.open(path, secure_delete=secure_delete) as store:  # type: ignore[arg-type]  # parametrized
        for name, worker in workers(store).items():
            wanted = pragmas | own[name]

            def read(connection: sqlite3.Connection, wanted: Mapping[str, object] = wanted) -> dict[str, object]:
                return {pragma: connection.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in wanted}

            assert await worker.call(read) == wanted, name


async def test_the_reading_connection_cannot_write(store: ScratchStore, run: RunScratch) -> None:
    with pytest.raises(StoreReadOnly):
        await workers(store)["reader"].call(lambda connection: connection.execute("DELETE FROM runs"))


async def test_a_new_store_has_the_schema_of_the_schema_file_and_nothing_else(path: Path) -> None:
    await make_store(path, 0)
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(opening.schema_text())
        expected = memory.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
    assert sql(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name") == expected
    assert sql(path, "PRAGMA application_id") == [(0x52534352,)]
    assert sql(path, "PRAGMA user_version") == [(opening.SCHEMA_VERSION,)]


@pytest.mark.parametrize(
    "values",
    [
        "('r', 'a', 'note', 'k', 1, NULL, 't', '', NULL, 1, 1, 'tomorrow')",  # C108: times are integers only
        "('r', 'a', 'note', 'k', 1, NULL, 't', '', NULL, 1, 1, '2030-01-01T00:00:00Z')",
        "('r', 'a', 'note', 'k', 1, NULL, 't', '', NULL, 1, 1, 1.5)",
        "('r', 'a', 'note', 'k', 1, NULL, 't', '', NULL, 1, '2030-01-01', 1)",
        "('r', 'a', 'cache', 'k', 1, NULL, 't', '', NULL, 1, 1, 1)",
        "('r', 'a', 'note', '', 1, NULL, 't', '', NULL, 1, 1, 1)",
        "('r', 'a', 'note', 'k', -1, NULL, 't', '', NULL, 1, 1, 1)",
        "('r', 'a', 'note', 'k', 1, NULL, 't', '', NULL, 0, 1, 1)",
        "('r', 'b', 'note', 'k', 1, NULL, 't', '', NULL, 1, 1, 1)",  # an agent that is not in the run
    ],
)
async def test_the_schema_itself_refuses_a_wrong_row(store: ScratchStore, values: str) -> None:
    await store.run("r", agent_id="a")
    columns = "run_id, agent_id, kind, key, size, tokens, media_type, preview, source_tool, version, created_at"
    with pytest.raises(sqlite3.IntegrityError):
        sql(
            store.path,
            "PRAGMA foreign_keys=ON",
            f"INSERT INTO scratch_entries ({columns}, expires_at) VALUES {values}",
        )


# --- every statement

_WHOLE = {
    "EXPIRE_RUN": "a run goes whole",
    "STEP_OF_RUN": "a run goes whole",
    "EXPIRE_AGENT": "an agent goes whole",
    "STEP_OF_AGENT": "an agent goes whole",
    "PURGE_RUN": "reclaims what no scope can see any more",
    "RUNS": "the operator's view of all runs",
    "LIST_RUN": "the operator's view of a run",
}
"""Statements on entries that need not compare all of run_id, agent_id and expires_at, and why."""


def constants(module: object) -> dict[str, str]:
    return {
        name: text
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str) and re.search(r"\b(SELECT|INSERT|UPDATE|DELETE)\b", text)
    }


def test_every_statement_on_entries_compares_run_agent_and_expiry() -> None:  # C86 C87 C101
    on_entries = {name for name, text in constants(statements).items() if "scratch_entries" in text}
    assert on_entries >= {"GET_INFO", "RANGE", "LIST_SCOPE", "RENEW", "DELETE_ENTRY", "FIND_ENTRY", "UPDATE_ENTRY"}
    assert set(_WHOLE) <= on_entries
    for name in on_entries - set(_WHOLE) - {"INSERT_ENTRY"}:
        text = constants(statements)[name]
        for comparison in (r"\brun_id = \?", r"\bagent_id = \?", r"\bexpires_at (>|<=) \?"):
            assert re.search(comparison, text), f"{name} does not compare {comparison}"


_READS_ALL = {"ORPHANS", "INCOMPLETE"}
"""The sweep and the check go through everything, on purpose."""


def test_no_statement_goes_through_all_entries_or_all_content() -> None:
    seen = 0
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(opening.schema_text())
        for module in (statements, maintenance):
            for name, text in constants(module).items():
                numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
                values = [1] * (max(numbered) if numbered else text.count("?"))
                plan = [row[3] for row in memory.execute(f"EXPLAIN QUERY PLAN {text}", values)]
                scans = [step for step in plan if re.match(r"SCAN (scratch_entries|scratch_chunks|e|c)\b", step)]
                assert not scans or name in _READS_ALL, f"{name}: {plan}"
                seen += 1
    assert seen > 25


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("GET_INFO", r"sqlite_autoindex_scratch_entries_1 \(run_id=\? AND agent_id=\? AND kind=\? AND key=\?\)"),
        ("RANGE", r"sqlite_autoindex_scratch_chunks_1 \(entry_id=\? AND seq>\? AND seq<\?\)"),
        ("LIST_SCOPE", r"\(run_id=\? AND agent_id=\? AND kind=\? AND key>\? AND key<\?\)"),
        ("DELETE_ENTRY", r"\(run_id=\? AND agent_id=\? AND kind=\? AND key=\?\)"),
        ("RENEW", r"\(run_id=\? AND agent_id=\? AND kind=\? AND key=\?\)"),
        ("LIST_RUN", r"\(run_id=\?"),
        ("EXPIRED", r"scratch_entries_by_expiry \(expires_at<\?\)"),
        ("COUNT_EXPIRED", r"scratch_entries_by_expiry \(expires_at<\?\)"),
    ],
)
def test_a_statement_uses_the_whole_index(name: str, index: str) -> None:
    text = (constants(statements) | constants(maintenance))[name]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
    values = [1] * (max(numbered) if numbered else text.count("?"))
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(opening.schema_text())
        plan = "\n".join(row[3] for row in memory.execute(f"EXPLAIN QUERY PLAN {text}", values))
    assert re.search(index, plan), plan


# --- the file and its place


async def test_file_side_files_and_new_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:  # C95 C96
    path = tmp_path / "new" / "newer" / "scratch.db"
    umask = os.umask(0)
    try:
        async with ScratchStore.open(path) as store:
            await (await store.run("run-42", agent_id="researcher")).write("note", "x")
            names = {"scratch.db": 0o600, "scratch.db-wal": 0o600, "scratch.db-shm": 0o600}
            assert {one.name: mode(one) for one in path.parent.iterdir()} == names
            await store.backup(tmp_path / "copy.db")
    finally:
        os.umask(umask)
    assert mode(path.parent) == mode(path.parent.parent) == 0o700
    assert mode(tmp_path / "copy.db") == 0o600


async def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o750)
    folder.chmod(0o750)
    async with ScratchStore.open(folder / "scratch.db"):
        assert mode(folder) == 0o750


async def test_a_symbolic_link_is_refused_and_its_target_untouched(tmp_path: Path) -> None:  # C95
    target, link = tmp_path / "target", tmp_path / "scratch.db"
    link.symlink_to(target)
    with pytest.raises(UnsafePath, match="symbolic link"):
        await ScratchStore.open(link)
    assert not target.exists()
    target.write_bytes(b"")
    with pytest.raises(UnsafePath) as caught:
        await ScratchStore.open(link, read_only=True)
    assert caught.value.data["path"] == str(link)
    assert target.read_bytes() == b""


async def test_a_folder_that_is_reached_by_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with ScratchStore.open(tmp_path / "link" / "scratch.db"):
        assert (tmp_path / "real" / "scratch.db").exists()


async def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(UnsafePath, match="not a regular file"):
            await ScratchStore.open(path)


@pytest.mark.parametrize(
    "name", ["nul\0.db", "x" * 300, "file/scratch.db", "file/deeper/scratch.db"], ids=["nul", "long", "below", "deep"]
)
async def test_a_path_that_cannot_be_is_a_named_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("I am no folder")
    with pytest.raises(StoreReadOnly, match="cannot be made or reached"):
        await ScratchStore.open(tmp_path / name)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["a b?c#d%41&e.db", "日本 é.db", os.fsdecode(b"\xff\xfe.db"), "-x.db", ":memory:"])
async def test_an_odd_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    async with ScratchStore.open(path) as store:
        await (await store.run("run-42", agent_id="researcher")).write("note", "x")
        assert {one.name for one in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm"}
    async with ScratchStore.open(path, read_only=True) as store:
        assert (await (await store.run("run-42", agent_id="researcher")).read("note")).text == "x"
    assert [one.name for one in tmp_path.iterdir()] == [name]


async def test_a_missing_store_is_not_made_where_that_is_not_wanted(tmp_path: Path) -> None:
    path = tmp_path / "no" / "scratch.db"
    for options in ({"create": False}, {"read_only": True}, {"read_only": True, "create": True}):
        with pytest.raises(StoreMissing):
            await ScratchStore.open(path, **options)  # type: ignore[arg-type]  # booleans only
    assert list(tmp_path.iterdir()) == []


async def test_loose_rights_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:  # C95
    folder = tmp_path / "open"
    folder.mkdir()
    await make_store(folder / "scratch.db", 0)
    assert caplog.messages == []
    (folder / "scratch.db").chmod(0o644)
    folder.chmod(0o777)
    async with ScratchStore.open(folder / "scratch.db") as store:
        assert "others can read the file" in "".join((await store.check()).problems)
    assert len(caplog.messages) == 2
    assert "can be written by everyone" in caplog.messages[0]
    assert "can be read by others" in caplog.messages[1]
    caplog.clear()
    folder.chmod(0o1777)  # as /tmp: nobody can replace what is not theirs
    (folder / "scratch.db").chmod(0o600)
    async with ScratchStore.open(folder / "scratch.db"):
        assert caplog.messages == []


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "virtiofs", "9p", "fuse.sshfs"])
async def test_a_network_file_system_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:  # C161 C163
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(files, "MOUNTS", mounts)
    with pytest.raises(UnsafePath, match=f"lies on {re.escape(kind)}.*local disk") as caught:
        await ScratchStore.open(tmp_path / "scratch.db")
    assert caught.value.data["file_system"] == kind


def test_the_deepest_mount_decides_and_odd_mount_points_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [b"local", b"a b", "日本".encode(), b"\xff\\", b"plain-but-longer"]
    table = b"garbage\nserver:/ %s nfs rw 0 0\n" % bytes(tmp_path)
    for number, name in enumerate(names):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir()
        (folder / "scratch.db").touch()
        escaped = bytes(folder).replace(b"\\", rb"\134").replace(b" ", rb"\040")
        table += b"dev %s type%d rw 0 0\n" % (escaped, number)
    mounts = tmp_path / "mounts"
    mounts.write_bytes(table)
    monkeypatch.setattr(files, "MOUNTS", mounts)
    found = [files.file_system(tmp_path / os.fsdecode(name) / "scratch.db") for name in names]
    assert found == ["type0", "type1", "type2", "type3", "type4"]
    assert files.file_system(tmp_path / "plain" / "scratch.db") == "nfs"
    monkeypatch.setattr(files, "MOUNTS", tmp_path / "none")
    assert files.file_system(mounts) is None


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder, and afterwards the rights of somebody who cannot write there; call ``close`` on it by chmod 0555."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def drop_rights(folder: Path) -> None:
    folder.chmod(0o555)
    if os.getuid() == 0:  # to whom rights mean nothing
        os.seteuid(NOBODY)


async def test_a_folder_that_cannot_be_written_is_said_clearly() -> None:  # C166
    with unprivileged() as folder:
        drop_rights(folder)
        with pytest.raises(StoreReadOnly, match="rights of its folder"):
            await ScratchStore.open(folder / "scratch.db")
        with pytest.raises(StoreReadOnly, match="rights of its folder"):
            await ScratchStore.open(folder / "deeper" / "scratch.db")
        assert list(folder.iterdir()) == []


async def test_a_store_that_cannot_be_written_is_said_clearly_and_can_be_read() -> None:  # C166
    with unprivileged() as folder:
        path = folder / "scratch.db"
        await make_store(path)
        path.chmod(0o444)
        drop_rights(folder)
        with pytest.raises(StoreReadOnly, match="folder"):
            await ScratchStore.open(path)
        async with ScratchStore.open(path, read_only=True) as store:
            run = await store.run("run-42", agent_id="researcher")
            assert (await run.read("note-2")).text == "2" * 10_000
            with pytest.raises(StoreReadOnly):
                await run.write("note", "x")
        assert list(folder.iterdir()) == [path]


async def test_a_folder_that_cannot_be_entered_is_said_clearly() -> None:
    with unprivileged() as folder:
        (folder / "private").mkdir(mode=0o700)
        if os.getuid() != 0:
            (folder / "private").chmod(0)
        drop_rights(folder)
        with pytest.raises(StoreReadOnly, match="Permission denied"):
            await ScratchStore.open(folder / "private" / "scratch.db")
        if os.getuid() != 0:
            (folder / "private").chmod(0o700)


# --- files that are not ours, or not of this version


@pytest.mark.parametrize(
    "content", [b"just a text\n" * 1_000, b"\xff" * 100_000, b"SQLite format 3\0" + b"\xff" * 9_000]
)
async def test_what_is_not_a_database_is_refused_and_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(ForeignDatabase):
            await ScratchStore.open(path, read_only=read_only)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE agents (agent_id)", "PRAGMA user_version=1", "PRAGMA application_id=1", "CREATE VIEW v AS SELECT 1"],
)
async def test_somebody_elses_database_is_refused_and_untouched(path: Path, statement: str) -> None:
    sql(path, statement)
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(ForeignDatabase):
            await ScratchStore.open(path, read_only=read_only)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def test_somebody_elses_damaged_database_is_not_set_aside(path: Path) -> None:
    sql(
        path,
        "CREATE TABLE theirs (x)",
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE theirs (((' WHERE name = 'theirs'",
    )
    before = path.read_bytes()
    with pytest.raises(ForeignDatabase):
        await ScratchStore.open(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def test_a_newer_schema_is_refused_and_untouched(path: Path) -> None:
    await make_store(path)
    sql(path, f"PRAGMA user_version={NEWER}")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew, match=rf"schema {NEWER}.*newer run-scratch.*knows {NEWER - 1}") as caught:
            await ScratchStore.open(path, read_only=read_only)
        assert caught.value.data == {"schema": NEWER, "known": NEWER - 1}
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch(0o600)
    await make_store(path)
    async with ScratchStore.open(path) as store:
        assert (await store.check()).problems == ()


async def test_a_creation_that_was_killed_half_way_is_finished(path: Path) -> None:
    sql(path, "PRAGMA page_size=8192", "PRAGMA auto_vacuum=INCREMENTAL", "PRAGMA journal_mode=WAL")
    path.chmod(0o600)
    assert path.stat().st_size > 0
    async with ScratchStore.open(path) as store:
        assert (await store.check()).problems == ()


def test_there_is_a_migration_from_every_earlier_schema() -> None:
    assert set(opening.MIGRATIONS) == set(range(1, opening.SCHEMA_VERSION))


async def test_an_older_schema_is_migrated_step_by_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_store(path)
    steps = {
        NEWER - 1: "ALTER TABLE runs ADD COLUMN colour TEXT;\n-- a comment;\nUPDATE runs\nSET colour = 'red';\n",
        NEWER: "CREATE TABLE more (x TEXT) STRICT",  # without its semicolon
    }
    monkeypatch.setattr(opening, "MIGRATIONS", steps)
    monkeypatch.setattr(opening, "SCHEMA_VERSION", NEWER + 1)
    with pytest.raises(StoreError, match=f"schema {NEWER - 1}"):
        await ScratchStore.open(path, read_only=True)
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert (await run.read("note-1")).text == "1" * 10_000
        assert (await store.check()).problems == ()
    assert sql(path, "SELECT colour FROM runs") == [("red",)]
    assert sql(path, "SELECT count(*) FROM more") == [(0,)]
    assert sql(path, "PRAGMA user_version") == [(NEWER + 1,)]


async def test_a_migration_that_fails_leaves_the_old_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_store(path)
    monkeypatch.setattr(opening, "MIGRATIONS", {NEWER - 1: "ALTER TABLE runs ADD x TEXT;\nALTER TABLE no ADD y;\n"})
    monkeypatch.setattr(opening, "SCHEMA_VERSION", NEWER)
    with pytest.raises(StoreError, match="no such table"):
        await ScratchStore.open(path)
    monkeypatch.undo()
    assert sql(path, "PRAGMA user_version") == [(NEWER - 1,)]
    assert "x" not in [row[1] for row in sql(path, "PRAGMA table_info(runs)")]
    async with ScratchStore.open(path) as store:
        assert (await store.check()).problems == ()


# --- damage


def damage(path: Path, page: int = 2) -> bytes:
    """Overwrite a page; return the file as it is then."""
    with path.open("r+b") as file:
        file.seek((page - 1) * 8_192)
        file.write(b"\xff" * 8_192)
    return path.read_bytes()


async def test_a_damaged_store_is_set_aside_loudly_and_a_new_one_begun(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # C167
    for number in (1, 2):
        await make_store(path)
        damaged = damage(path)
        async with ScratchStore.open(path) as store:
            run = await store.run("run-42", agent_id="researcher")
            assert await run.list() == []
            assert (await run.capture(query("x" * 10_000))).decision.spill
            assert (await store.check()).problems == ()
        aside = path.with_name(f"scratch.db.damaged-{number}")
        assert aside.read_bytes() == damaged
        assert mode(path) == 0o600
        (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert aside.name in record.getMessage()
        caplog.clear()


async def test_nothing_of_a_damaged_store_comes_back_out_of_its_log(tmp_path: Path, path: Path) -> None:  # C142
    source = tmp_path / "source.db"
    async with ScratchStore.open(source) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("note", "x" * 10_000)
        await store.sweep()
        await run.write("in the wal", "x")
        for suffix in ("", "-wal"):  # as a killed process leaves them
            shutil.copy(f"{source}{suffix}", f"{path}{suffix}")
    damage(path)
    async with ScratchStore.open(path) as store:
        assert await store.list_runs() == []
        assert (await store.check()).problems == ()
    assert path.with_name("scratch.db.damaged-1").stat().st_size > path.stat().st_size
    assert not path.with_name("scratch.db-wal").exists()


def test_side_files_go_with_the_file(path: Path) -> None:  # C142
    names = ["", "-wal", "-shm", "-journal"]
    for suffix in names:
        Path(f"{path}{suffix}").write_text(suffix)
    aside = files.set_aside(path, path.stat())
    assert aside == path.with_name("scratch.db.damaged-1")
    assert [Path(f"{aside}{suffix}").read_text() for suffix in names] == names
    assert listing(path.parent)[path.name][0] == 0
    assert len(listing(path.parent)) == 5


async def test_a_store_cut_in_half_is_set_aside(path: Path) -> None:
    await make_store(path, 20)
    os.truncate(path, path.stat().st_size // 2)
    async with ScratchStore.open(path) as store:
        assert await store.list_runs() == []
    assert path.with_name("scratch.db.damaged-1").exists()


async def test_opening_for_reading_reports_damage_and_sets_nothing_aside(path: Path) -> None:
    await make_store(path)
    before = damage(path)
    async with ScratchStore.open(path, read_only=True) as store:
        assert any(problem.startswith("damaged: ") for problem in (await store.check()).problems)
    os.truncate(path, len(before) // 2)
    with pytest.raises(StoreCorrupt):
        await ScratchStore.open(path, read_only=True)
    assert path.read_bytes() == before[: len(before) // 2]
    assert list(path.parent.iterdir()) == [path]


async def test_only_the_file_that_was_found_damaged_is_set_aside(path: Path) -> None:
    await make_store(path)
    damaged = path.stat()
    path.rename(path.with_name("elsewhere"))
    await make_store(path)  # another process was faster
    assert files.set_aside(path, damaged) is None
    assert sorted(one.name for one in path.parent.iterdir()) == ["elsewhere", "scratch.db"]


async def test_a_damaged_store_that_cannot_be_set_aside_is_a_named_error() -> None:
    with unprivileged() as folder:
        path = folder / "scratch.db"
        await make_store(path)
        damaged = damage(path)
        stat_result = path.stat()
        path.chmod(0o444)
        drop_rights(folder)
        with pytest.raises(StoreCorrupt, match="cannot be set aside"):
            files.set_aside(path, stat_result)
        assert path.read_bytes() == damaged


async def test_damage_that_shows_later_is_store_corrupt_and_a_result_stays_in_context(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_store(path)
    ((page,),) = sql(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'scratch_chunks'")
    assert isinstance(page, int)
    damage(path, page)
    monkeypatch.setattr(opening, "_CHECKED_AT_MOST", 0)  # as for a large file
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert len(await run.list()) == 3
        with pytest.raises(StoreCorrupt, match="damaged"):
            await run.read("note-1")
        captured = await run.capture(query("x" * 100_000))
        assert (captured.decision.reason, captured.text) == ("store_failed", "x" * 100_000)
    assert not path.with_name("scratch.db.damaged-1").exists()


# --- locks


async def test_opening_and_joining_take_no_lock_when_there_is_nothing_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C132
    await make_store(path)
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0)  # who waits fails
    with locked(path):
        async with ScratchStore.open(path) as store:
            run = await store.run("run-42", agent_id="researcher")
            assert len(await run.list()) == 3
            assert len(await store.list_runs()) == 1


async def test_a_lock_that_is_held_too_long_is_store_busy_and_nothing_else(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScratchStore.open(path, clock=clock) as store:
        run = await store.run("run-42", agent_id="researcher")
        with locked(path):
            monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.02)
            with pytest.raises(StoreBusy, match="try again later"):
                await run.write("note", "x")
            with pytest.raises(StoreBusy):
                await store.run("run-43", agent_id="researcher")
            captured = await run.capture(query("x" * 10_000))
            assert captured.decision.reason == "store_failed"
            assert captured.text == "x" * 10_000
            assert "StoreBusy" in caplog.text
            monkeypatch.undo()
        assert await run.write("note", "x") == 1
        assert (await store.check()).problems == ()


async def test_a_new_store_that_somebody_keeps_locked_is_store_busy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch(0o600)
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.02)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusy):
            await ScratchStore.open(path)


async def test_a_write_that_had_to_wait_is_done_when_the_lock_is_free(store: ScratchStore, run: RunScratch) -> None:
    seen: list[str] = []
    await workers(store)["writer"].call(lambda connection: connection.set_trace_callback(seen.append))
    with locked(store.path):
        writing = asyncio.create_task(run.write("note", "x"))
        while seen.count("BEGIN IMMEDIATE") < 3:  # it keeps trying
            await asyncio.sleep(0)
        assert not writing.done()
    assert await writing == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_READONLY, StoreReadOnly),
        (sqlite3.SQLITE_CANTOPEN, StoreReadOnly),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
        (sqlite3.SQLITE_NOTADB, ForeignDatabase),
        (sqlite3.SQLITE_PROTOCOL, StoreError),
        (sqlite3.SQLITE_IOERR, StoreError),
        (sqlite3.SQLITE_ERROR, StoreError),
    ],
)
def test_each_error_of_sqlite_has_a_name(path: Path, code: int, expected: type[StoreError]) -> None:
    error = sqlite3.OperationalError("something")
    error.sqlite_errorcode = code
    named = opening.store_error(error, path)
    assert type(named) is expected
    assert "scratch.db" in named.message


def test_a_locking_error_names_the_likely_cause(path: Path) -> None:  # C163
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
    assert "network file system" in opening.store_error(error, path).message


# --- a full disk


async def test_a_full_disk_keeps_results_in_context_and_spoils_nothing(
    store: ScratchStore, run: RunScratch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = workers(store)["writer"]
    await run.write("before", "x")

    def limit(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages + 5}")

    await writer.call(limit)
    captured = await run.capture(query("é" * 100_000))
    assert captured.decision.reason == "store_failed"
    assert captured.handle is None
    assert captured.text == "é" * 100_000
    assert "StoreFull" in caplog.text
    with pytest.raises(StoreFull, match="free disk space"):
        await run.write("big", "x" * 200_000)
    with pytest.raises(StoreFull):
        await run.write("before", "y" * 200_000)
    outcomes = await asyncio.gather(
        run.write("small", "x"), run.write("big", "x" * 200_000), run.write("tiny", "y"), return_exceptions=True
    )
    assert isinstance(outcomes[1], StoreFull)
    kept = {"before"} | {key for key, outcome in zip(["small", "big", "tiny"], outcomes, strict=True) if outcome == 1}
    assert {info.key for info in await run.list()} == kept
    assert (await run.read("before")).text == "x"
    assert (await store.check()).problems == ()
    await writer.call(lambda connection: connection.execute("PRAGMA max_page_count=1000000"))
    assert await run.write("big", "x" * 200_000) == 1
    assert (await run.capture(query("é" * 100_000))).decision.spill


# --- the write-ahead log


async def test_the_log_stays_small_while_much_is_written_and_read(store: ScratchStore, run: RunScratch) -> None:
    wal = store.path.with_name("scratch.db-wal")
    handles: list[str] = []
    done = False

    async def read() -> int:
        count = 0
        while not done:
            if handles:
                await run.read_handle(handles[count % len(handles)], offset=count * 997 % 900_000)
                count += 1
            await asyncio.sleep(0)
        return count

    readers = [asyncio.create_task(read()) for _ in range(3)]
    largest = 0
    body = bytes(range(256)) * 4_000
    for _ in range(80):
        captured = await run.capture(query(body))
        assert captured.handle is not None
        handles.append(captured.handle)
        largest = max(largest, wal.stat().st_size)
    done = True
    assert sum(await asyncio.gather(*readers)) > 0
    assert largest < 40 * MIB


async def test_a_reader_that_pins_the_log_stops_nobody_and_the_log_recovers(
    store: ScratchStore, run: RunScratch
) -> None:  # C138
    wal = store.path.with_name("scratch.db-wal")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM scratch_entries").fetchone()
        for _ in range(50):
            assert (await run.capture(query(b"\0" * MIB))).decision.spill
        assert wal.stat().st_size > 50 * MIB
        assert reader.execute("SELECT count(*) FROM scratch_entries").fetchone() == (0,)
    for _ in range(40):
        assert (await run.capture(query(b"\0" * MIB))).decision.spill
    assert wal.stat().st_size < 40 * MIB


async def test_a_checkpoint_that_fails_is_logged_and_no_write_hears_of_it(
    store: ScratchStore, run: RunScratch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: sqlite3.Connection, mode: str) -> bool:
        connection.execute("SELECT nonsense")
        return True

    monkeypatch.setattr(maintenance, "checkpoint", fail)
    for _ in range(20):
        assert (await run.capture(query(b"\0" * MIB))).decision.spill
    await workers(store)["upkeep"].call(lambda _: None)
    assert "a checkpoint of scratch.db failed" in caplog.text
    monkeypatch.undo()
    assert (await store.sweep()).wal_bytes == 0


async def test_a_checkpoint_comes_after_a_commit_of_its_own_and_one_at_a_time(store: ScratchStore) -> None:
    # else SQLite up to 3.51.2 can damage the file: its "WAL-reset bug"
    seen: list[str] = []
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.set_trace_callback(seen.append)
        assert maintenance.checkpoint(connection, store.path)
        made = ["BEGIN IMMEDIATE", "PRAGMA user_version=2", "COMMIT", "PRAGMA wal_checkpoint(PASSIVE)"]
        assert [one for one in seen if one in made][:4] == made
        seen.clear()
        with files.checkpoint_turn(store.path) as mine:
            assert mine
            assert not maintenance.checkpoint(connection, store.path)
        assert seen == []
        assert maintenance.checkpoint(connection, store.path, truncate=True)
        assert maintenance.wal_bytes(store.path) == 0


async def test_the_wal_is_not_cut_while_others_write(store: ScratchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write_back = maintenance._checkpoint
    modes: list[str] = []

    def watched(connection: sqlite3.Connection, mode: str) -> int | None:
        modes.append(mode)
        done = write_back(connection, mode)
        with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("PRAGMA user_version=2")
        return done

    monkeypatch.setattr(maintenance, "_checkpoint", watched)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        assert not maintenance.checkpoint(connection, store.path, truncate=True)
    assert modes == ["PASSIVE"]


# --- opened for reading


async def test_reading_leaves_no_trace_beside_the_file(path: Path) -> None:  # C164
    await make_store(path)
    before = listing(path.parent)
    async with ScratchStore.open(path, read_only=True) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert len(await run.list()) == 3
        assert (await run.read("note-1")).text == "1" * 10_000
        assert len(await store.list_scratch_entries_for_run("run-42")) == 3
        assert (await store.check()).problems == ()
        assert listing(path.parent) == before
    assert listing(path.parent) == before


async def test_who_reads_sees_what_others_write_meanwhile(path: Path) -> None:
    await make_store(path, 0)
    async with ScratchStore.open(path, read_only=True) as reading:
        reader = await reading.run("run-42", agent_id="researcher")
        assert await reader.list() == []
        async with ScratchStore.open(path) as store:
            writer = await store.run("run-42", agent_id="researcher")
            await writer.write("note", "in the wal")
            assert (await reader.read("note")).text == "in the wal"
        assert (await reader.read("note")).text == "in the wal"
        assert list(path.parent.iterdir()) == [path]


async def test_what_was_read_while_somebody_began_to_write_is_thrown_away(path: Path, tmp_path: Path) -> None:
    await make_store(path)

    def meanwhile(connection: sqlite3.Connection) -> int:
        sql(path, "PRAGMA foreign_keys=ON", "DELETE FROM runs")
        return int(connection.execute("SELECT count(*) FROM scratch_entries").fetchone()[0])

    async with ScratchStore.open(path, read_only=True) as store:
        with pytest.raises(StoreBusy, match="began to write"):
            await store._database._engine.read(meanwhile)
        assert await store.list_runs() == []


async def test_a_copy_of_a_file_that_changed_meanwhile_does_not_stay(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_store(path)
    backup = maintenance.backup

    def meanwhile(connection: sqlite3.Connection, target: Path) -> None:
        backup(connection, target)
        sql(path, "PRAGMA foreign_keys=ON", "DELETE FROM runs")

    async with ScratchStore.open(path, read_only=True) as store:
        monkeypatch.setattr(maintenance, "backup", meanwhile)
        with pytest.raises(StoreBusy):
            await store.backup(tmp_path / "copy.db")
        assert not (tmp_path / "copy.db").exists()
        monkeypatch.undo()
        await store.backup(tmp_path / "copy.db")
        with pytest.raises(FileExistsError):
            await store.backup(tmp_path / "copy.db")
    assert sql(tmp_path / "copy.db", "SELECT count(*) FROM runs") == [(0,)]


# --- space, and what deleting costs others


async def test_deleting_a_large_run_goes_in_short_transactions(store: ScratchStore, run: RunScratch) -> None:
    big = await store.run("big", agent_id="researcher")
    for number in range(120):
        await big.write(f"note-{number}", "x")
    seen: list[str] = []
    await workers(store)["writer"].call(lambda connection: connection.set_trace_callback(seen.append))
    deleting = asyncio.create_task(store.delete_run("big"))
    written = 0
    while not deleting.done():  # others are served meanwhile
        await run.write("note", str(written))
        written += 1
    assert await deleting
    assert written > 3
    deleted: set[str] = set()
    for statement in seen:
        if statement == "BEGIN IMMEDIATE":
            deleted = set()
        if statement.startswith("DELETE FROM scratch_entries WHERE entry_id"):
            deleted.add(statement)  # a trigger tells it again
        assert len(deleted) <= 50
    assert (await run.read("note")).text == str(written - 1)


async def test_nothing_of_a_run_is_live_once_its_deletion_has_begun(store: ScratchStore) -> None:
    big = await store.run("big", agent_id="researcher")
    for number in range(60):
        await big.write(f"note-{number}", "x")
    deleting = asyncio.create_task(store.delete_run("big"))
    while await big.list():
        await asyncio.sleep(0)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert await store.list_scratch_entries_for_run("big") == []
    assert (await store.sweep()).entries <= 60
    assert await store.delete_run("big")
    assert sql(store.path, "SELECT count(*) FROM scratch_entries") == [(0,)]


DAMAGES = {
    "chunk without entry": ("INSERT INTO scratch_chunks VALUES (99, 0, x'00')", "1 rows point to a row that is gone"),
    "entry without its agent in the run": ("DELETE FROM run_agents", "2 rows point to a row that is gone"),
    "entry without chunks": ("DELETE FROM scratch_chunks", "1 entries have content that does not add up"),
    "a chunk is gone": ("DELETE FROM scratch_chunks WHERE seq = 1", "1 entries have content that does not add up"),
    "a chunk too many": (
        "INSERT INTO scratch_chunks VALUES (1, 5, x'00')",
        "1 entries have content that does not add up",
    ),
    "a gap": ("UPDATE scratch_chunks SET seq = 7 WHERE seq = 1", "1 entries have content that does not add up"),
    "a byte in the wrong chunk": (
        "UPDATE scratch_chunks SET data = zeroblob(length(data) + iif(seq, 1, -1))",
        "1 entries have content that does not add up",
    ),
    "a run's bytes": ("UPDATE runs SET bytes = bytes + 1", "1 runs have a byte count"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_check_finds_what_does_not_add_up(path: Path, damage: str) -> None:
    statement, expected = DAMAGES[damage]
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("note", "x" * (65_536 + 34_536))
        await run.write("short", "")
        assert (await store.check()).problems == ()
        sql(path, "PRAGMA foreign_keys=OFF", statement)
        problems = (await store.check()).problems
    assert any(expected in problem for problem in problems)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_072, 262_143, 262_144, 262_145, 1_000_003])
async def test_content_of_any_size_comes_back_byte_for_byte_from_any_range(
    store: ScratchStore, run: RunScratch, size: int
) -> None:
    data = bytes(index * 7 % 251 for index in range(size))
    await run.write("note", data)
    scope = Scope("run-42", "researcher")
    database = store._database
    found = await database.get_entry(scope, Kind.NOTE, "note", 1)
    assert found is not None
    assert found[1] == data
    edges = sorted(
        {0, 1, 65_535, 65_536, 65_537, 131_071, 131_072, max(0, size - 1), size, size + 1, size + 70_000, 2**40}
    )
    for start in edges:
        for stop in (edge for edge in edges if edge >= start):
            one = await database.read_range(scope, Kind.NOTE, "note", 1, start, stop)
            assert one == (size, found[0].media_type, data[start:stop])
