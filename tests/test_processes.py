"""Several processes on one file, and processes that are killed. Real ones."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scratch import RunScratch, ScratchStore, StoreBusy
from scratch.database import connection as opening
from tests.support import query

ROOT = Path(__file__).parent.parent

PRELUDE = """
import asyncio, hashlib, os, sys
from scratch import Observation, ScratchStore, VersionConflict
def query(text):
    return Observation(content=text, tool="t", tool_class="query")
async def main():
    async with ScratchStore.open(sys.argv[1]) as store:
        run = await store.run("r", agent_id="a")
        await work(store, run, sys.argv[2])
"""


@contextmanager
def child(path: Path, work: str, name: str = "", expect: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that runs ``work`` (the body of a coroutine) on the store; it must end with ``expect``."""
    body = "\n".join(f"    {line}" for line in work.strip().splitlines())
    code = f"{PRELUDE}\nasync def work(store, run, name):\n{body}\nasyncio.run(main())\n"
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, str(path), name],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        _, stderr = process.communicate(timeout=120)
        assert (process.returncode, stderr) == (expect, "")


def run_side_by_side(path: Path, work: str, names: list[str]) -> list[str]:
    """Run ``work`` in one process a name, all at once; return their output lines."""
    lines: list[str] = []
    managers = [child(path, work, name) for name in names]
    processes = [manager.__enter__() for manager in managers]
    for process, manager in zip(processes, managers, strict=True):
        assert process.stdout is not None
        lines += process.stdout.read().splitlines()
        manager.__exit__(None, None, None)
    return lines


async def read_all(run: RunScratch, handle: str) -> bytes:
    data, offset = b"", 0
    while offset is not None:
        window = await run.read_handle(handle, offset=offset, length=32_768)
        data += window.data
        offset = window.next_offset  # type: ignore[assignment]
    return data


@pytest.mark.parametrize("acknowledged", [1, 60, 250])
async def test_what_was_acknowledged_survives_a_kill_byte_for_byte(path: Path, acknowledged: int) -> None:  # C106
    work = """
for number in range(1000):
    text = os.urandom(10_000 + number * 50).hex()
    captured = await run.capture(query(text))
    print(captured.handle, hashlib.sha256(text.encode()).hexdigest(), flush=True)
"""
    written: dict[str, str] = {}
    with child(path, work, expect=-signal.SIGKILL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            fields = line.split()
            if len(fields) == 2 and len(fields[1]) == 64:  # the last line may be cut
                written[fields[0]] = fields[1]
            if len(written) == acknowledged:
                process.kill()
    assert len(written) >= acknowledged
    async with ScratchStore.open(path) as store:
        run = await store.run("r", agent_id="a")
        for handle, digest in written.items():
            assert hashlib.sha256(await read_all(run, handle)).hexdigest() == digest
        assert (await store.check()).problems == ()


async def test_processes_that_make_one_store_at_once_all_find_it(path: Path) -> None:
    lines = run_side_by_side(path, "print((await run.capture(query(name * 10_000))).handle)", list("abcdefgh"))
    assert len(set(lines)) == 8  # C32, C33
    assert "None" not in lines
    async with ScratchStore.open(path) as store:
        assert len(await store.list_scratch_entries_for_run("r")) == 8
        assert (await store.check()).problems == ()


async def test_appends_of_two_processes_lose_nothing(path: Path) -> None:  # C207
    run_side_by_side(
        path,
        """
for number in range(50):
    await run.write("log", f"{name}{number}\\n", append=True)
""",
        ["a", "b"],
    )
    async with ScratchStore.open(path) as store:
        lines = (await (await store.run("r", agent_id="a")).read("log")).text.splitlines()
    assert sorted(lines) == sorted(f"{name}{number}" for name in "ab" for number in range(50))


async def test_compare_and_set_by_eight_processes_counts_every_step(path: Path) -> None:  # C131
    async with ScratchStore.open(path) as store:
        await (await store.run("r", agent_id="a")).write("count", "0")
    run_side_by_side(
        path,
        """
for _ in range(10):
    while True:
        note = await run.read("count")
        try:
            await run.write("count", str(int(note.text) + 1), if_version=note.version)
            break
        except VersionConflict:
            pass
""",
        list("abcdefgh"),
    )
    async with ScratchStore.open(path) as store:
        note = await (await store.run("r", agent_id="a")).read("count")
        assert (note.text, note.version) == ("80", 81)


async def test_writers_and_sweepers_side_by_side_meet_no_error(path: Path) -> None:
    lines = run_side_by_side(
        path,
        """
for number in range(60):
    if name.startswith("sweeper"):
        await store.sweep()
    else:
        captured = await run.capture(query(name * 20_000), ttl=0.001 if number % 2 else 600)
        print(captured.decision.reason)
""",
        ["a", "b", "c", "sweeper-1", "sweeper-2"],
    )
    assert lines == ["over_threshold"] * 180
    async with ScratchStore.open(path) as store:
        assert len(await store.list_scratch_entries_for_run("r")) == 90
        assert (await store.check()).problems == ()


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody else holds the write lock."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()


async def test_opening_joining_and_reading_wait_for_no_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScratchStore.open(path) as store:
        handle = (await (await store.run("r", agent_id="a")).capture(query("x" * 10_000))).handle
        assert handle is not None
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.0)  # who waits, fails
    with locked(path):  # C132
        async with ScratchStore.open(path) as store:
            run = await store.run("r", agent_id="a")
            assert (await run.read_handle(handle)).size == 10_000


async def test_a_lock_that_stays_is_a_named_error_and_a_result_stays_in_context(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # C130, C133
    async with ScratchStore.open(path) as store:
        run = await store.run("r", agent_id="a")
        monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
        with locked(path) as other:
            with pytest.raises(StoreBusy):
                await run.write("plan", "x")
            captured = await run.capture(query("x" * 10_000))
            assert (captured.text, captured.handle) == ("x" * 10_000, None)
            assert captured.decision.reason == "store_failed"
            assert caplog.records[-1].exc_info is not None
            other.execute("ROLLBACK")
            assert await run.write("plan", "x") == 1
