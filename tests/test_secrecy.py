"""Secrecy: who can read the files, what a handle tells about others, what stays of what was deleted, what is logged."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scratch import RunScratch, ScratchError, ScratchStore, SpillPolicy
from scratch.artifacts import write_artifact
from scratch.cli.main import cli
from scratch.content import read_content
from scratch.explore.explorer import Explorer
from scratch.export import export_run
from scratch.spill import build_stub
from scratch.tools import VERBS, Toolset
from tests.support import Clock, add_expired, query

ALL = SpillPolicy(threshold_bytes=0, stub_must_be_smaller=False)
SECRET = "correct-horse-battery"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def assert_private(folder: Path) -> list[str]:
    """All files below a folder are 0600 and all folders 0700; returns the names of the files."""
    names = []
    for found in folder.rglob("*"):
        assert mode(found) == (0o700 if found.is_dir() else 0o600), (found, oct(mode(found)))
        names += [] if found.is_dir() else [found.name]
    return sorted(names)


# --- who can read the files


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


async def test_every_file_and_folder_is_private_at_every_moment(tmp_path: Path, clock: Clock, umask: int) -> None:
    folder = tmp_path / "memory"
    path = folder / "deep" / "scratch.db"
    async with ScratchStore.open(path, clock=clock, policy=ALL) as store:
        assert assert_private(folder) == ["scratch.db", "scratch.db-shm", "scratch.db-wal"]
        run = await store.run("r", agent_id="a")
        await run.capture(query("x" * 9_000_000))  # over the size at which a checkpoint begins
        await write_artifact(run, "plan.md", "the plan")
        await store.backup(folder / "deep" / "copy.db")
        await export_run(store, "r", folder / "out", everything=True)
        clock.advance(4_000)
        await store.sweep()
        assert {"copy.db", "coordinator-plan.md", "scratch.db", "scratch.db-wal"} <= set(assert_private(folder))
    assert "scratch.db-wal" not in assert_private(folder)
    async with ScratchStore.open(path, clock=clock) as store:  # again: the WAL is made anew
        await (await store.run("r", agent_id="a")).write("note", "x")
        assert "scratch.db-wal" in assert_private(folder)


def test_a_store_that_is_set_aside_stays_private(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "memory"
    path = folder / "scratch.db"

    async def fill() -> None:
        async with ScratchStore.open(path, policy=ALL) as store:
            await (await store.run("r", agent_id="a")).capture(query("x" * 100_000))

    asyncio.run(fill())
    with path.open("r+b") as file:
        file.seek(8192)  # the second page
        file.write(b"\xff" * 8192)
    asyncio.run(fill())
    assert {"scratch.db", "scratch.db.damaged-1"} <= set(assert_private(folder))


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_daemon_and_the_command_leave_private_files_too(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "memory"
    path = folder / "scratch.db"

    def process(*command: str, stdin: bytes = b"") -> None:
        done = subprocess.run(
            [sys.executable, "-m", *command], input=stdin, capture_output=True, timeout=60, check=False, umask=mask
        )
        assert done.returncode == 0, done.stderr

    process("scratch.cli.main", "--db", str(path), "put", "--run", "r", stdin=b"content")
    add_expired(path, 3)
    process("scratch.sweeper.daemon", "--db", str(path), "--once")
    process("scratch.cli.main", "--db", str(path), "backup", str(folder / "copy.db"))
    process("scratch.cli.main", "--db", str(path), "export", "r", "--to", str(folder / "out"), "--all")
    assert {"scratch.db", "copy.db"} <= set(assert_private(folder))


# --- what a handle tells about others


@pytest.fixture
async def named(store: ScratchStore, clock: Clock) -> dict[str, str]:
    """Handles that a scope cannot read, by why; all of one length, and the scope has one of its own."""
    mine = (await store.run("mine", agent_id="a")).with_policy(ALL)

    async def handle(run_id: str, agent_id: str) -> str:
        run = (await store.run(run_id, agent_id=agent_id)).with_policy(ALL)
        return (await run.capture(query(SECRET * 9))).handle or ""

    swept = await handle("mine", "a")
    clock.advance(3_601)
    await store.sweep()
    expired = await handle("mine", "a")
    clock.advance(3_601)
    handles = {
        "swept": swept,
        "expired": expired,
        "of another agent": await handle("mine", "b"),
        "of another run": await handle("other", "a"),
        "of another scope": await handle("other", "b"),
        "deleted": await handle("mine", "a"),
        "unknown": "r_222222222222",
        "malformed": "r_22222222222\u0000",
        "malformed, too": "R-222222222222",
    }
    await mine.delete(handles["deleted"])
    await handle("mine", "a")
    return handles


async def trace(store: ScratchStore) -> list[str]:
    """A list to which every statement of the store is added from now on."""
    seen: list[str] = []
    engine = store._database._engine
    for worker in (engine.writer, engine.reader):
        assert worker is not None
        await worker.call(lambda connection: connection.set_trace_callback(seen.append))
    return seen


async def alike(store: ScratchStore, named: dict[str, str], work: Callable[[str], Any]) -> str:
    """As for :func:`same_answer`; as many statements must be run for each handle, too."""
    seen = await trace(store)
    statements = set()

    async def counted(handle: str) -> object:
        seen.clear()
        answer = await work(handle)
        statements.add(len(seen))
        return answer

    answer = await same_answer(named, counted)
    assert len(statements) == 1
    assert statements != {0}
    return answer


async def same_answer(named: dict[str, str], work: Callable[[str], Any]) -> str:
    """What ``work`` answers for every handle, which must be the same but for the handle itself."""
    answers = {}
    for why, handle in named.items():
        answer = str(await work(handle))
        for shown in (
            repr(repr(handle)[1:-1])[1:-1],
            json.dumps(repr(handle))[2:-2],
            json.dumps(handle)[1:-1],
            repr(handle)[1:-1],
            handle,
        ):
            answer = answer.replace(shown, "HANDLE")
        answers[why] = answer
    assert len(set(answers.values())) == 1, answers
    return answers["unknown"]


async def told(work: Callable[[str], Any], handle: str) -> str:
    try:
        return f"done: {await work(handle)!r}"
    except ScratchError as error:
        return f"{type(error).__name__} {error} {error.data} {error.__cause__} {error.__context__}"


@pytest.mark.parametrize("verb", ["window", "matches", "find"])
async def test_no_way_to_read_tells_a_foreign_handle_from_an_unknown_one(
    store: ScratchStore, named: dict[str, str], verb: str
) -> None:  # C86 C87
    run = await store.run("mine", agent_id="a")
    ways: dict[str, Callable[[str], Any]] = {
        "window": lambda handle: run.read_handle(handle, offset=3),
        "matches": lambda handle: run.read_handle(handle, match="x"),
        "find": run.find,
    }
    answer = await alike(store, named, lambda handle: told(ways[verb], handle))
    assert answer.startswith("HandleNotFound no live handle 'HANDLE' here")


@pytest.mark.parametrize("verb", ["delete", "renew"])
async def test_no_way_to_change_one_does_either(store: ScratchStore, named: dict[str, str], verb: str) -> None:
    run = await store.run("mine", agent_id="a")
    # a malformed one is the key of a note
    handles = {why: handle for why, handle in named.items() if not why.startswith("malformed")}
    ways: dict[str, Callable[[str], Any]] = {"delete": run.delete, "renew": lambda handle: run.renew(handle, 60.0)}
    answer = await alike(store, handles, lambda handle: told(ways[verb], handle))
    assert answer.startswith({"delete": "done: False", "renew": "HandleNotFound"}[verb])


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.parameters[0].name == "handle"], ids=lambda v: v.name)
async def test_no_tool_that_takes_a_handle_does_either(store: ScratchStore, named: dict[str, str], verb: Any) -> None:
    tools = Toolset(await store.run("mine", agent_id="a"))
    values = {"path": "$", "pattern": "x", "fields": ["a"], "start": 1, "end": 2}
    given = {parameter.name: values[parameter.name] for parameter in verb.parameters[1:] if parameter.required}
    answer = await alike(store, named, lambda handle: tools.call(verb.name, {"handle": handle, **given}))
    assert '"error":"handle_not_found"' in answer
    assert SECRET not in answer


async def test_deleting_by_a_models_tool_does_not_either(store: ScratchStore, named: dict[str, str]) -> None:
    tools = Toolset(await store.run("mine", agent_id="a"))
    handles = {why: handle for why, handle in named.items() if not why.startswith("malformed")}
    assert '"deleted":false' in await alike(
        store, handles, lambda handle: tools.call("scratch_delete", {"key": handle})
    )


@pytest.mark.parametrize(("verb", "argument"), [("read_artifact", "filename"), ("head", "handle"), ("read", "handle")])
async def test_an_artifact_of_another_run_is_not_told_from_one_that_never_was(
    store: ScratchStore, clock: Clock, verb: str, argument: str
) -> None:
    other = await store.run("other", agent_id="a")
    await write_artifact(other, "foreign.md", SECRET)
    run = await store.run("mine", agent_id="a")
    await run.write_artifact("coordinator-expired.md", SECRET, ttl=1)
    clock.advance(2)
    names = {
        "foreign": "coordinator-foreign.md",
        "expired": "coordinator-expired.md",
        "unknown": "coordinator-unknown.md",
    }
    tools = Toolset(run)
    assert SECRET not in await alike(store, names, lambda name: tools.call(verb, {argument: name}))


@pytest.mark.parametrize("arguments", ["show mine {}", "find mine {} x", "rm mine {}", "explore --run mine {} head"])
async def test_at_the_terminal_only_what_the_run_holds_is_there(
    store: ScratchStore, named: dict[str, str], arguments: str
) -> None:
    """An operator sees all agents of a run; of other runs, and of what is gone, no more than of what never was."""
    gone = {why: named[why] for why in ("of another run", "of another scope", "deleted", "swept", "unknown")}

    async def typed(handle: str) -> str:
        command = [part.format(handle) for part in arguments.split(" ")]
        result = await asyncio.to_thread(CliRunner(env={"SCRATCH_DB": str(store.path)}).invoke, cli, command)
        assert result.exit_code == 1
        return result.output

    assert "HANDLE" in await same_answer(gone, typed)


# --- what is logged


class Unprintable:
    """A value that a tool returned and that JSON cannot express."""

    def __str__(self) -> str:
        raise ValueError("no text")


def everything(records: list[logging.LogRecord]) -> str:
    """All that a handler could write of what was logged."""
    said = []
    for record in records:
        said += [record.getMessage(), repr(record.__dict__)]
        if record.exc_info and record.exc_info[1] is not None:
            said += traceback.format_exception(record.exc_info[1])
            error: BaseException | None = record.exc_info[1]
            while error is not None:
                said += [repr(error), repr(error.__dict__)]
                error = error.__cause__ or error.__context__
    return "\n".join(said)


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError


class Errors:
    """Runs what may fail, and keeps what the errors say."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.kinds: set[str] = set()

    async def expect(self, work: Any) -> None:
        try:
            await work
        except (ScratchError, ZeroDivisionError) as error:
            self.kinds.add(type(error).__name__)
            self.said += [str(error), repr(error), repr(error.__dict__), *traceback.format_exception(error)]


@pytest.fixture
async def watched(caplog: pytest.LogCaptureFixture) -> AsyncIterator[pytest.LogCaptureFixture]:
    """All that anybody logs; asyncio in its debug mode, where it logs every step that it takes."""
    caplog.set_level(logging.DEBUG)
    for name in ("scratch", "aiosqlite", "asyncio", "apscheduler", "concurrent.futures"):
        caplog.set_level(logging.DEBUG, name)
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0
    yield caplog
    loop.set_debug(False)


async def use_every_verb(run: RunScratch, errors: Errors) -> None:
    """Spill, read, explore and note a secret, and get everything wrong that can be."""
    tools = Toolset(run)
    secret = {"items": [{"name": SECRET, "n": n} for n in range(500)]}
    values = [secret, SECRET * 500, SECRET.encode() * 500 + b"\xff", '{"a": "' + SECRET * 500, [Unprintable(), SECRET]]
    handles = [(await tools.capture(query(value))).handle for value in values]
    for value in ({SECRET: Unprintable()}, {("no", "key"): SECRET}, SECRET * 30_000):
        assert (await tools.capture(query(value))).handle is None
    for handle in handles:
        for verb in VERBS:
            given: dict[str, Any] = {p.name: SECRET for p in verb.parameters if p.kind == "string"}
            given |= {p.name: [SECRET] for p in verb.parameters if p.kind == "strings"}
            given |= {p.name: 1 for p in verb.parameters if p.kind == "integer" and p.required}
            for arguments in (given, given | {"handle": handle}, given | {"handle": handle, "path": "$.items"}):
                known = {name: value for name, value in arguments.items() if name in {p.name for p in verb.parameters}}
                await tools.call(verb.name, known)
                await tools.call(verb.name, known | {"if_version": 7} if verb.name == "scratch_write" else SECRET)
    for value in (SECRET, SECRET * 2_000, SECRET * 100_000, {SECRET: Unprintable()}, {("no", "key"): SECRET}):
        await errors.expect(run.write("note", value))
        await errors.expect(run.write("note", value, if_version=99))
        await errors.expect(run.write("note", value, append=True))
        await errors.expect(run.write_artifact("artifact.md", value))
    for handle in filter(None, handles):
        await errors.expect(run.read_handle(handle))
        await errors.expect(run.read_handle(handle, match=SECRET))
    await errors.expect(run.read("note"))
    await errors.expect(run.read("no note"))
    await errors.expect(run.read_handle("r_222222222222", match=SECRET))


async def test_no_log_line_and_no_error_holds_content(
    path: Path, clock: Clock, watched: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = Errors()
    async with ScratchStore.open(
        path, policy=ALL, clock=clock, max_entry_bytes=400_000, max_run_bytes=900_000
    ) as store:
        run = await store.run("r", agent_id="a")
        await use_every_verb(run, errors)
        task = asyncio.create_task(run.write("note", SECRET))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with monkeypatch.context() as patch:  # bugs of our own
            for name in ("scratch.capturing.build_stub", "scratch.run.make_preview", "scratch.windows.cut_window"):
                patch.setattr(name, broken)
            patch.setattr(Explorer, "look", broken)
            await use_every_verb(run, errors)
        clock.advance(4_000)
        await store.sweep()
        writer = store._database._engine.writer
        assert writer is not None
        await writer.call(lambda connection: connection.execute("PRAGMA max_page_count=1"))  # a full disk
        await use_every_verb(run, errors)
    await use_every_verb(run, errors)  # closed
    assert errors.kinds >= {
        "HandleNotFound",
        "InvalidArgument",
        "LimitExceeded",
        "NoteNotFound",
        "StoreClosed",
        "StoreFull",
        "VersionConflict",
        "ZeroDivisionError",
    }
    logged = {type(record.exc_info[1]).__name__ for record in watched.records if record.exc_info}
    assert logged >= {"LimitExceeded", "StoreClosed", "StoreFull", "TypeError", "ValueError", "ZeroDivisionError"}
    assert any(record.name == "asyncio" and "took" in record.getMessage() for record in watched.records)
    assert SECRET not in everything(watched.records)
    assert SECRET not in "\n".join(errors.said)


async def test_what_the_store_hands_out_can_be_logged(run: RunScratch) -> None:
    tools = Toolset(run.with_policy(ALL))
    captured = await tools.capture(query(SECRET))
    kept = await run.capture(query(SECRET))
    handle = captured.handle or ""
    await run.write("note", SECRET)
    for value in (
        captured,
        kept,
        captured.observation,
        await run.read("note"),
        await run.list(),
        await run.find(handle),
        await run.read_handle(handle),
        await run.read_handle(handle, match="horse"),
        build_stub(handle, read_content(SECRET), ALL),
    ):
        assert SECRET not in f"{value} {value!r}"
