"""A run as files: where each entry goes, whose bytes they hold, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import tracemalloc
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from scratch import EntryInfo, InvalidArgument, Kind, RunNotFound, RunScratch, ScratchStore
from scratch import export as exporting
from scratch.artifacts import capture_output, capture_result, write_artifact
from scratch.cli.export import export
from scratch.cli.session import EXIT_FAILED, EXIT_MISUSE, EXIT_OK
from scratch.export import ExportError, export_run, plan_files, safe_name
from tests.support import Clock, query

MIB = 1024 * 1024
export_all = partial(export_run, everything=True)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "a" / "out"


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder, with their content."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if not file.is_dir()}


async def fill(run: RunScratch) -> str:
    """One entry of each sort; return the handle."""
    await write_artifact(run, "plan.md", "the plan")
    await capture_result(run, "r" * 5_000, task=1, worker="web", iteration=2)
    await capture_output(run, "grep", 7, "o" * 600, 0.1, task=1, worker="web", iteration=3)
    await run.write("todo/first", "a note")
    captured = await run.capture(query({"rows": ["x" * 10_000]}))
    assert captured.handle is not None
    return captured.handle


# --- what is written


async def test_notes_and_results_are_written_only_when_they_are_asked_for(
    store: ScratchStore, run: RunScratch, to: Path
) -> None:
    await fill(run)
    report = await export_run(store, "run-42", to)
    assert {file.kind for file in report.files} == {Kind.ARTIFACT}
    assert sorted(tree(to)) == [
        "run-42/artifacts/coordinator-plan.md",
        "run-42/iteration-2/scratchpad/task-1-web-iter-2-result.txt",
        "run-42/iteration-3/scratchpad/task-1-web-iter-3-grep-7-output.txt",
    ]
    assert report.left_out == 2
    assert (await export_all(store, "run-42", to / "all")).left_out == 0


async def test_each_sort_of_entry_has_its_place(store: ScratchStore, run: RunScratch, to: Path) -> None:
    handle = await fill(run)
    report = await export_all(store, "run-42", to)
    note = f"notes/{safe_name('todo/first')}"
    assert tree(to) == {
        "run-42/artifacts/coordinator-plan.md": b"the plan",
        "run-42/iteration-2/scratchpad/task-1-web-iter-2-result.txt": b"r" * 5_000,
        "run-42/iteration-3/scratchpad/task-1-web-iter-3-grep-7-output.txt": b"o" * 600,
        f"run-42/{note}": b"a note",
        f"run-42/handles/{handle}.json": json.dumps({"rows": ["x" * 10_000]}).encode(),
    }
    assert report.folder == str(to / "run-42")
    assert {file.path: file.size for file in report.files} == {
        path.removeprefix("run-42/"): len(content) for path, content in tree(to).items()
    }
    assert report.size == sum(map(len, tree(to).values()))
    assert [(file.kind, file.key, file.agent_id) for file in report.files if file.path == note] == [
        (Kind.NOTE, "todo/first", "researcher")
    ]


async def test_each_agent_has_a_folder_where_there_are_several(store: ScratchStore, run: RunScratch, to: Path) -> None:
    writer = await store.run("run-42", agent_id="the writer")
    await write_artifact(writer, "shared.md", "s")
    await run.write("plan", "mine")
    await write_artifact(run, "plan.md", "p")
    await export_all(store, "run-42", to / "1")
    assert sorted(tree(to / "1")) == [
        "run-42/artifacts/coordinator-plan.md",
        "run-42/artifacts/coordinator-shared.md",
        "run-42/notes/plan",
    ]
    await writer.write("plan", "theirs")
    await export_all(store, "run-42", to / "2")
    assert tree(to / "2" / "run-42" / "notes") == {
        "researcher/plan": b"mine",
        f"{safe_name('the writer')}/plan": b"theirs",
    }
    await export_all(store, "run-42", to / "3", agent_id="the writer")
    assert tree(to / "3" / "run-42") == {"notes/plan": b"theirs", "artifacts/coordinator-shared.md": b"s"}


async def test_an_export_holds_no_byte_of_another_run(store: ScratchStore, path: Path, to: Path) -> None:
    # C100
    for name, mark in (("A", "apple"), ("B", "berry")):
        run = await store.run(name, agent_id=f"agent-of-{mark}")
        await write_artifact(run, "plan.md", mark * 100)
        await run.write(f"note-of-{mark}", mark)
        await run.capture(query(mark * 20_000))
    await (await store.run("B", agent_id="agent-of-apple")).write("stray", "berry from an agent of both")
    await store.delete_run("never")
    await export_all(store, "A", to)
    names = [str(file.relative_to(to)) for file in to.rglob("*")]
    assert names
    assert not [name for name in names if "berry" in name or name.startswith("B")]
    assert all(b"berry" not in content and content for content in tree(to).values())


async def test_files_and_folders_are_for_their_owner_only(store: ScratchStore, run: RunScratch, to: Path) -> None:
    # C95, C96
    await fill(run)
    umask = os.umask(0)
    try:
        await export_all(store, "run-42", to)
    finally:
        os.umask(umask)
    assert {stat.S_IMODE(file.stat().st_mode) for file in to.rglob("*") if file.is_file()} == {0o600}
    assert {stat.S_IMODE(file.stat().st_mode) for file in to.rglob("*") if file.is_dir()} == {0o700}
    assert stat.S_IMODE(to.stat().st_mode) == stat.S_IMODE(to.parent.stat().st_mode) == 0o700


async def test_every_content_comes_out_as_it_went_in(store: ScratchStore, run: RunScratch, to: Path) -> None:
    contents: dict[str, Any] = {
        "empty": "",
        "odd": "\ud835\0\r\n\u2028é日😀",
        "binary": bytes(range(256)) * 1_000,
        "large": "0123456789abcdef" * (MIB // 4) + "end",
    }
    for name, content in contents.items():
        await run.write_artifact(name, content)
    await export_all(store, "run-42", to)
    assert tree(to / "run-42" / "artifacts") == {
        name: content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        for name, content in contents.items()
    }


async def test_what_has_expired_is_not_exported(store: ScratchStore, run: RunScratch, to: Path, clock: Clock) -> None:
    await run.write("short", "x", ttl=5)
    await run.write("long", "y", ttl=50)
    clock.advance(6)
    await export_all(store, "run-42", to / "1")
    assert tree(to / "1") == {"run-42/notes/long": b"y"}
    clock.advance(60)
    report = await export_all(store, "run-42", to / "2")
    assert report.files == ()
    assert not (to / "2").exists()


async def test_a_store_that_is_open_for_reading_is_enough(path: Path, to: Path) -> None:
    async with ScratchStore.open(path) as store:
        await fill(await store.run("run-42", agent_id="researcher"))
    async with ScratchStore.open(path, read_only=True) as store:
        report = await export_all(store, "run-42", to)
    assert len(report.files) == len(tree(to)) == 5


async def test_a_large_entry_is_never_in_memory_whole(store: ScratchStore, run: RunScratch, to: Path) -> None:
    await run.write_artifact("large", b"x" * (24 * MIB))
    tracemalloc.start()
    try:
        await export_all(store, "run-42", to)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (to / "run-42" / "artifacts" / "large").stat().st_size == 24 * MIB
    assert peak < 8 * MIB


# --- names


@pytest.mark.parametrize("name", ["plan", "a.b-c_d.json", "Überblick", "日本語", "r_4k7hq2m9xwzt.txt", "x" * 120])
def test_a_name_that_is_safe_stays(name: str) -> None:
    assert safe_name(name) == name


HOSTILE = ("..", ".", "/", "", "con", "NUL.txt", "-rf", ".ssh", "a/../b", "é" * 200, "a\0", "x" * 119 + ".y")


@given(st.text() | st.sampled_from(HOSTILE))
def test_every_name_is_made_safe(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()  # ids and keys hold no lone surrogates
    name = safe_name(text)
    assert 1 <= len(name.encode()) <= 130
    assert name[0] not in "-."
    assert name[-1] not in ". "
    assert not set(name) & set('/\\:*?"<>|\0 \n')
    assert name.partition(".")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt9"}


def entry(key: str, kind: Kind = Kind.NOTE, agent: str = "a") -> EntryInfo:
    return EntryInfo("r", agent, kind, key, 1, 1, "text/plain", "", None, 1, 0, 1)


ALIKE = ("a", "A", "ss", "ß", "a/b", "a-b", "a-2", "A-2", "a-2-2", "é", "e\u0301", "..", "_con", "con")


@given(st.lists(st.sampled_from(ALIKE), unique=True))
def test_no_two_files_have_one_name(keys: list[str]) -> None:
    entries = [entry(key, kind, agent) for key in keys for kind in Kind for agent in ("x", "X", "y")]
    paths = ["/".join(path).casefold() for path, _ in plan_files(entries)]
    assert len(set(paths)) == len(paths)


async def test_hostile_names_stay_inside_the_folder(store: ScratchStore, to: Path) -> None:
    run = await store.run("../../evil", agent_id="/etc")
    other = await store.run("../../evil", agent_id="..")
    for scope in (run, other):
        await scope.write("../../../escape", "x")
    await run.write_artifact("/etc/passwd", "x")
    await run.write_artifact("../x-iter-1-y", "x")
    report = await export_all(store, "../../evil", to)
    assert len(report.files) == len(tree(to)) == 4
    assert [folder.name for folder in to.iterdir()] == [safe_name("../../evil")]
    assert sorted(file.name for file in to.parent.iterdir()) == ["out"]


# --- what is refused


async def test_what_is_there_already_is_not_touched(store: ScratchStore, run: RunScratch, to: Path) -> None:
    await fill(run)
    (to / "run-42").mkdir(parents=True)
    await export_all(store, "run-42", to)  # an empty folder is no obstacle
    before = tree(to)
    await run.write("more", "x")
    for dry_run in (False, True):
        with pytest.raises(ExportError, match="is there already"):
            await export_all(store, "run-42", to, dry_run=dry_run)
    assert tree(to) == before
    assert [folder.name for folder in to.iterdir()] == ["run-42"]


async def test_links_are_not_followed(store: ScratchStore, run: RunScratch, tmp_path: Path) -> None:
    # C95
    await fill(run)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    to = tmp_path / "out"
    to.mkdir()
    (to / "run-42").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "link").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for place in (to, tmp_path / "link", tmp_path / "dangling"):
        with pytest.raises(ExportError, match="symbolic link"):
            await export_all(store, "run-42", place)
    assert list(elsewhere.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("planted", ["link", "full folder", "file"])
async def test_what_comes_into_its_place_meanwhile_is_not_touched_either(
    store: ScratchStore, run: RunScratch, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    await fill(run)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    finish = exporting._Target.finish

    def plant(target: exporting._Target) -> None:
        place = to / "run-42"
        if planted == "link":
            place.symlink_to(elsewhere, target_is_directory=True)
        elif planted == "file":
            place.write_text("mine")
        else:
            place.mkdir()
            (place / "mine").write_text("mine")
        finish(target)

    monkeypatch.setattr(exporting._Target, "finish", plant)
    with pytest.raises(ExportError, match="is there already"):
        await export_all(store, "run-42", to)
    assert list(elsewhere.iterdir()) == []
    assert [folder.name for folder in to.iterdir()] == ["run-42"]


async def test_a_file_in_the_place_of_a_folder_is_refused(store: ScratchStore, run: RunScratch, tmp_path: Path) -> None:
    await fill(run)
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ExportError):
            await export_all(store, "run-42", place)
    assert (tmp_path / "file").read_text() == "mine"


async def test_an_unknown_run_and_bad_ids_are_named(store: ScratchStore, run: RunScratch, to: Path) -> None:
    with pytest.raises(RunNotFound):
        await export_all(store, "run-43", to)
    with pytest.raises(InvalidArgument):
        await export_all(store, "a\0b", to)
    with pytest.raises(InvalidArgument):
        await export_all(store, "run-42", to, agent_id="")
    assert not to.exists()


async def test_a_dry_run_says_all_and_writes_nothing(store: ScratchStore, run: RunScratch, to: Path) -> None:
    await fill(run)
    planned = await export_all(store, "run-42", to, dry_run=True)
    assert not to.parent.exists()
    written = await export_all(store, "run-42", to)
    assert asdict(planned) | {"dry_run": False} == asdict(written)


# --- what goes wrong, and what changes meanwhile


@contextmanager
def after_first_piece(monkeypatch: pytest.MonkeyPatch, act: Any) -> Iterator[list[str]]:
    """Let something happen after the first piece of each entry was read; the list tells of which."""
    pieces = RunScratch.pieces
    seen: list[str] = []

    async def interrupted(run: RunScratch, info: EntryInfo) -> AsyncGenerator[bytes, None]:
        seen.append(info.key)
        first = True
        async for piece in pieces(run, info):
            yield piece
            if first:
                first = False
                await act(info, seen.count(info.key))

    with monkeypatch.context() as patch:
        patch.setattr(RunScratch, "pieces", interrupted)
        yield seen


async def test_a_full_disk_leaves_nothing(
    store: ScratchStore, run: RunScratch, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(run)

    async def fail(info: EntryInfo, _time: int) -> None:
        if info.kind is Kind.HANDLE:
            raise OSError(errno.ENOSPC, "No space left on device")

    with after_first_piece(monkeypatch, fail), pytest.raises(ExportError, match="No space left") as caught:
        await export_all(store, "run-42", to)
    assert isinstance(caught.value.__cause__, OSError)
    assert list(to.iterdir()) == []
    await export_all(store, "run-42", to)
    assert len(tree(to)) == 5


async def test_a_cancelled_export_leaves_nothing(
    store: ScratchStore, run: RunScratch, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(run)
    reached = asyncio.Event()

    async def wait(info: EntryInfo, _time: int) -> None:
        if info.kind is Kind.NOTE:
            reached.set()
            await asyncio.Event().wait()

    with after_first_piece(monkeypatch, wait):
        task = asyncio.create_task(export_all(store, "run-42", to))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert list(to.iterdir()) == []


async def test_an_entry_that_is_replaced_meanwhile_is_written_as_it_is_then(
    store: ScratchStore, run: RunScratch, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await store.run("run-42", agent_id="writer")
    await run.write_artifact("doc", "a" * 2 * MIB)
    await run.write("note", "old")

    async def change(info: EntryInfo, time: int) -> None:
        if time == 1 and info.kind is Kind.ARTIFACT:
            await writer.write_artifact("doc", "b" * 2 * MIB)
        elif time == 1:
            await run.write("note", "new")

    with after_first_piece(monkeypatch, change) as seen:
        report = await export_all(store, "run-42", to)
    assert seen == ["doc", "doc", "note", "note"]
    assert tree(to) == {"run-42/artifacts/doc": b"b" * 2 * MIB, "run-42/notes/note": b"new"}
    assert [file.agent_id for file in report.files] == ["writer", "researcher"]


async def test_an_entry_that_is_deleted_meanwhile_is_told(
    store: ScratchStore, run: RunScratch, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run.write("first", "x")
    await run.write("second", "y")

    async def delete(info: EntryInfo, _time: int) -> None:
        await run.delete("second")

    with after_first_piece(monkeypatch, delete):
        report = await export_all(store, "run-42", to)
    assert report.gone == ("second",)
    assert tree(to) == {"run-42/notes/first": b"x"}


async def test_an_entry_that_never_stands_still_ends_it(
    store: ScratchStore, run: RunScratch, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run.write("note", "x")

    async def change(info: EntryInfo, time: int) -> None:
        await run.write("note", f"{time}")

    with after_first_piece(monkeypatch, change), pytest.raises(ExportError, match="again and again"):
        await export_all(store, "run-42", to)
    assert list(to.iterdir()) == []


# --- the command


@pytest.fixture
def filled(path: Path) -> Path:
    async def work() -> None:
        async with ScratchStore.open(path) as store:
            await fill(await store.run("run-42", agent_id="researcher"))

    asyncio.run(work())
    return path


def typed(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(export, list(arguments), obj=path)


def test_the_command_writes_and_says_what(filled: Path, to: Path) -> None:
    result = typed(filled, "run-42", "--to", str(to), "--all")
    assert result.exit_code == EXIT_OK, result.output
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert {f"run-42/{line[0]}" for line in lines} == set(tree(to))
    assert ["artifacts/coordinator-plan.md", "artifact", "coordinator-plan.md", "researcher", "8"] in lines
    assert result.stderr.startswith("wrote 5 files (")
    again = typed(filled, "run-42", "--to", str(to))
    assert again.exit_code == EXIT_FAILED
    assert "is there already" in again.output


def test_the_command_gives_json_and_can_only_look(filled: Path, to: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in filled.parent.iterdir()}
    result = typed(filled, "run-42", "--to", str(to), "--all", "--json", "--dry-run")
    assert result.exit_code == EXIT_OK
    answer = json.loads(result.stdout)
    assert answer["dry_run"] is True
    assert len(answer["files"]) == 5
    assert {file.name: file.stat().st_mtime_ns for file in filled.parent.iterdir()} == before
    assert typed(filled, "run-42", "--to", str(to), "--all", "--dry-run").stderr.startswith("would write 5 files (")


def test_the_command_says_what_it_leaves_out(filled: Path, path: Path, to: Path) -> None:
    result = typed(filled, "run-42", "--to", str(to))
    assert result.stderr.startswith("wrote 3 files (")
    assert result.stderr.endswith("\nleft out: 2 notes and results; --all takes them too\n")

    async def note() -> None:
        async with ScratchStore.open(path) as store:
            await (await store.run("notes", agent_id="a")).write("plan", "x")

    asyncio.run(note())
    assert typed(path, "notes", "--to", str(to)).stderr == (
        "there is no artifact in run 'notes'\nleft out: 1 note or result; --all takes them too\n"
    )


def test_the_command_says_when_there_is_nothing(filled: Path, to: Path) -> None:
    result = typed(filled, "run-42", "--to", str(to), "--agent", "nobody")
    assert result.exit_code == EXIT_OK
    assert result.stderr == "nothing is live in run 'run-42' of agent 'nobody'\n"
    assert not to.exists()


def test_the_command_fails_as_the_others_do(filled: Path, to: Path, tmp_path: Path) -> None:
    assert typed(filled, "run-43", "--to", str(to)).exit_code == EXIT_FAILED
    assert typed(tmp_path / "none.db", "run-42", "--to", str(to)).exit_code == EXIT_FAILED
    assert typed(filled, "run-42").exit_code == EXIT_MISUSE
    assert typed(filled, "run-42", "--to", "").exit_code == EXIT_MISUSE
    assert typed(filled, "run-42", "--to", str(to), "--agent", "").exit_code == EXIT_MISUSE
    assert not to.exists()


def test_its_help_has_an_example() -> None:
    assert "scratch export run-42 --to ./out" in typed(Path(), "--help").output
