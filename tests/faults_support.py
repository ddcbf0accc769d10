"""What the tests of faults share: every verb in a table, small disks, and what a verb has to say when it cannot."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scratch import RunScratch, ScratchError, ScratchStore
from scratch import artifacts as documents
from scratch.tools import Toolset
from tests.support import Clock, add_expired, query

ROWS = json.dumps([{"id": number, "name": f"row {number}"} for number in range(1_000)])
LARGE = "a result\n" * 5_000


@dataclass(frozen=True, slots=True)
class Kit:
    """An open store with a result, some notes, an artifact, a run to delete, and expired entries to sweep."""

    store: ScratchStore
    run: RunScratch
    tools: Toolset
    handle: str

    @property
    def path(self) -> Path:
        return self.store.path


@asynccontextmanager
async def open_kit(path: Path, clock: Callable[[], float] | None = None) -> AsyncIterator[Kit]:
    async with ScratchStore.open(path, clock=clock or Clock()) as store:
        yield await fill(store)


async def fill(store: ScratchStore) -> Kit:
    store._settings.texts._most = 0  # what the exploration tools looked at last would be answered out of memory
    run = await store.run("run-42", agent_id="researcher")
    captured = await run.capture(query(ROWS))
    assert captured.handle is not None
    for key in ("note", "note-2", "note-3"):
        await run.write(key, f"of {key}")
    await run.write_artifact("plan.md", "# the plan\n")
    for run_id in ("run-43", "run-44"):
        await (await store.run(run_id, agent_id=f"agent of {run_id}")).write("note", "x")
    add_expired(store.path, 3)
    return Kit(store, run, Toolset(run), captured.handle)


Verb = Callable[[Kit], Awaitable[object]]


async def pieces(kit: Kit) -> bytes:
    return b"".join([piece async for piece in kit.run.pieces(await kit.run.find(kit.handle))])


# Each can be called again and again, and needs the file every time.
WRITES: Mapping[str, Verb] = {
    "write": lambda kit: kit.run.write("note", "y" * 3_000),
    "append": lambda kit: kit.run.write("note-2", "y" * 3_000, append=True),
    "renew": lambda kit: kit.run.renew(kit.handle, 9_999),
    "delete": lambda kit: kit.run.delete("note-3"),
    "write_artifact": lambda kit: kit.run.write_artifact("plan.md", "y" * 3_000),
    "coordinator's artifact": lambda kit: documents.write_artifact(kit.run, "report", "y" * 3_000),
    "join": lambda kit: kit.store.run("run-45", agent_id=f"agent {os.urandom(4).hex()}"),
    "complete_run": lambda kit: kit.store.complete_run("run-42"),
    "delete_run": lambda kit: kit.store.delete_run("run-43"),
    "delete_agent": lambda kit: kit.store.delete_agent("agent of run-44"),
    "sweep": lambda kit: kit.store.sweep(),
}
READS: Mapping[str, Verb] = {
    "read_handle": lambda kit: kit.run.read_handle(kit.handle),
    "matches": lambda kit: kit.run.read_handle(kit.handle, match="row 999"),
    "find": lambda kit: kit.run.find(kit.handle),
    "pieces": pieces,
    "read": lambda kit: kit.run.read("note"),
    "list": lambda kit: kit.run.list(),
    "find_artifact": lambda kit: documents.find_artifact(kit.run, "plan.md"),
    "artifact_names": lambda kit: documents.artifact_names(kit.run),
    "check_task_artifacts": lambda kit: documents.check_task_artifacts(kit.run, ["plan.md"]),
    "list_runs": lambda kit: kit.store.list_runs(),
    "list_scratch_entries_for_run": lambda kit: kit.store.list_scratch_entries_for_run("run-42"),
}
FIGURES: Mapping[str, Verb] = {
    "stats": lambda kit: kit.store.stats(),
    "check": lambda kit: kit.store.check(),
    "dry run": lambda kit: kit.store.sweep(dry_run=True),
}

TOOL_WRITES: dict[str, dict[str, object]] = {
    "scratch_write": {"key": "note", "value": "y" * 3_000},
    "scratch_delete": {"key": "note-2"},
    "write_artifact": {"filename": "plan.md", "content": "y" * 3_000},
}
TOOL_READS: dict[str, dict[str, object]] = {
    "read_handle": {},
    "head": {"lines": 1},
    "slice": {"start": 1, "end": 1},
    "grep": {"pattern": "row 999"},
    "schema": {},
    "item_schema": {"path": "$"},
    "get_in": {"path": "$[3]"},
    "iterate_over": {"path": "$", "fields": ["id"], "limit": 3},
    "read": {},
    "scratch_read": {"key": "note"},
    "scratch_list": {},
    "read_artifact": {"filename": "plan.md"},
}
_ON_A_HANDLE = {"read_handle", "head", "slice", "grep", "schema", "item_schema", "get_in", "iterate_over", "read"}


async def call(kit: Kit, tool: str) -> str:
    """A verb as a model calls it, on the kit's result where it takes a handle."""
    arguments = (TOOL_WRITES | TOOL_READS)[tool]
    if tool in _ON_A_HANDLE:
        arguments = {"handle": kit.handle, **arguments}
    return await kit.tools.call(tool, arguments)


async def refuses(kit: Kit, verbs: Mapping[str, Verb], error: type[ScratchError]) -> None:
    """Every verb raises ``error`` itself, and no bare error of SQLite or the system."""
    for name, verb in verbs.items():
        with pytest.raises(error) as caught:
            await verb(kit)
        assert type(caught.value) is error, name
        assert caught.value.message, name


async def tools_refuse(kit: Kit, tools: Mapping[str, object], error: type[ScratchError]) -> None:
    for tool in tools:
        answer = json.loads(await call(kit, tool))
        assert answer["error"] == error.code, (tool, answer)
        assert answer["message"], tool


async def works(kit: Kit, verbs: Mapping[str, Verb]) -> None:
    for verb in verbs.values():
        await verb(kit)


async def tools_work(kit: Kit, tools: Mapping[str, object]) -> None:
    for tool in tools:
        answer = await call(kit, tool)
        assert '{"error":' not in answer, (tool, answer)


async def results_are_kept(kit: Kit, error: type[ScratchError], caplog: pytest.LogCaptureFixture) -> None:
    """Whichever way a result is taken in, all of it comes back, and the error is logged with its exception."""
    caplog.clear()
    for capture in (kit.run.capture, kit.tools.capture):
        captured = await capture(query(LARGE))
        assert (captured.text, captured.handle, captured.decision.reason) == (LARGE, None, "store_failed")
    worker = {"task": 1, "worker": "w", "iteration": 1}
    assert await documents.capture_result(kit.run, LARGE, **worker) == LARGE  # type: ignore[arg-type]
    assert await documents.capture_output(kit.run, "tool", "call", LARGE, 99.0, **worker) is None  # type: ignore[arg-type]
    errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert len(errors) == 4
    for record in errors:
        assert record.exc_info is not None
        assert type(record.exc_info[1]) is error


async def all_is_well(kit: Kit) -> None:
    """Every verb works, and the file is sound."""
    for capture in (kit.run.capture, kit.tools.capture):
        assert (await capture(query(LARGE))).decision.spill
    await works(kit, {**WRITES, **READS, **FIGURES})
    await tools_work(kit, {**TOOL_WRITES, **TOOL_READS})
    assert (await kit.store.check()).problems == ()


# --- locks and disks


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def small_disk(folder: Path, size: str = "4m") -> Iterator[Path]:
    """A file system of its own in memory; the test is skipped where this process may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this process may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path, *, leave: int = 0) -> Iterator[None]:
    """There are only so many bytes left on the disk."""
    filler = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        while shutil.disk_usage(folder).free > leave:
            os.write(filler, b"x" * 4_096)
    finally:
        os.close(filler)
    yield
    (folder / "filler").unlink()


@contextmanager
def read_only_disk(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


# --- cancelling


@types.coroutine
def cancelled_at(coroutine: Coroutine[Any, Any, object], number: int, *, late: bool) -> Generator[Any, Any, bool]:
    """Run ``coroutine`` in this task, and cancel that where it waits for the ``number``-th time, from 0.

    Late: what it waited for has come, and it was only about to go on. Returns whether it never waited that often.
    """
    task = asyncio.current_task()
    assert task is not None
    error: BaseException | None = None
    for count in itertools.count():
        try:
            waits_for = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration:
            return count <= number
        error = None
        if count == number and not late:
            task.cancel()
        try:
            yield waits_for
        except BaseException as thrown:  # noqa: BLE001 - handed on
            error = thrown
        if count == number and late and error is None:
            error = asyncio.CancelledError()
    raise AssertionError  # it counts for ever


async def cancelled_everywhere(make: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[int]:
    """Cancel what ``make`` makes at every place where it waits, one after the other; yields after each time."""
    task = asyncio.current_task()
    assert task is not None
    for late in (False, True):
        for number in itertools.count():
            try:
                if await cancelled_at(make(), number, late=late):
                    break
            except asyncio.CancelledError:
                task.uncancel()
            yield number
