"""Several real processes on one store: killed ones, hurried ones, forgetful ones."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scratch import Kind, ScratchStore, StoreBusy
from scratch.database import connection as opening
from tests.processes import go, results, several, start
from tests.support import query, read_back, unhurried

# --- killed

CAPTURES = """
async def main():
    store = await ScratchStore.open(path)
    run = await store.run("run-42", agent_id=name)
    async def capture(number):
        body = f"{number}|" + hashlib.sha256(str(number).encode()).hexdigest() * (200 + number % 7 * 300)
        captured = await run.capture(query(body))
        say(captured.handle, hashlib.sha256(body.encode()).hexdigest())
    for number in range(0, 1000, 5):
        await asyncio.gather(*(capture(number + more) for more in range(5)))

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledged", [1, 200, 600])
async def test_every_result_that_was_acknowledged_survives_kill_9(path: Path, acknowledged: int) -> None:  # C106
    process = start(CAPTURES, path)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(acknowledged)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGKILL, "")
    acks = [line.split() for line in lines if line.endswith("\n")]
    assert acknowledged <= len(acks) < 1_000
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="p0")
        for handle, digest in acks:
            assert hashlib.sha256(await read_back(run, handle)).hexdigest() == digest
        assert {handle for handle, _ in acks} <= {info.key for info in await run.list(kind=Kind.HANDLE, limit=1_000)}
        report = await store.check()
        assert report.problems == ()
        assert len(acks) <= report.stats.live <= len(acks) + 5  # those under way may have been committed
        assert (await run.capture(query("x" * 10_000))).decision.spill


# --- at once

FIRST_OPENS = """
async def main():
    for number in range(4):
        say("ready")
        sys.stdin.readline()
        async with ScratchStore.open(f"{path}-{number}") as store:
            run = await store.run("run-42", agent_id=name)
            captured = await run.capture(query(f"{name} {number} " + "x" * 20_000))
            await run.write("note", captured.handle)
            say(captured.handle)

asyncio.run(main())
"""


async def test_eight_processes_may_make_one_new_store_at_once(path: Path) -> None:
    handles: list[list[str]] = [[] for _ in range(8)]
    with several(FIRST_OPENS, path, 8) as processes:
        for number in range(4):
            go(processes)
            for process, found in zip(processes, handles, strict=True):
                assert process.stdout is not None
                found.append(process.stdout.readline().strip())
                if number < 3:
                    assert process.stdout.readline() == "ready\n"
        results(processes)
    for number in range(4):
        async with ScratchStore.open(f"{path}-{number}") as store:
            for agent, found in enumerate(handles):
                run = await store.run("run-42", agent_id=f"p{agent}")
                assert (await run.read("note")).text == found[number]
                assert (await run.read_handle(found[number])).text.startswith(f"p{agent} {number} x")
            assert (await store.check()).problems == ()
    assert sorted(one.name for one in path.parent.iterdir()) == [f"scratch.db-{number}" for number in range(4)]


OPEN_ONCE = """
async def main():
    say("ready")
    sys.stdin.readline()
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id=name)
        say((await run.capture(query(f"{name} " + "x" * 20_000))).handle)

asyncio.run(main())
"""


async def test_eight_processes_that_find_one_store_damaged_begin_one_new_store(path: Path) -> None:  # C167
    async with ScratchStore.open(path) as store:
        await (await store.run("run-42", agent_id="p0")).write("old", "x" * 10_000)
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xff" * 8_192)
    with several(OPEN_ONCE, path, 8) as processes:
        go(processes)
        outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sum("is damaged" in errors for _, errors in outputs) == 1
    async with ScratchStore.open(path) as store:
        for number, (output, _) in enumerate(outputs):
            run = await store.run("run-42", agent_id=f"p{number}")
            assert (await run.read_handle(output.strip())).text.startswith(f"p{number} ")
            assert await run.list() == []
        assert (await store.check()).problems == ()
    # side files of the old store stay beside it when somebody had it open while it was renamed
    names = {one.name.removesuffix("-wal").removesuffix("-shm") for one in path.parent.iterdir()}
    assert names == {"scratch.db", "scratch.db.damaged-1"}


COUNT = """
async def main():
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="shared")
        say("ready")
        sys.stdin.readline()
        for number in range(20):
            while True:
                try:
                    note = await run.read("counter")
                    text, version = note.text, note.version
                except NoteNotFound:
                    text, version = "0", 0
                try:
                    await run.write("counter", str(int(text) + 1), if_version=version)
                    break
                except VersionConflict:
                    pass
            await run.write("log", f"{name}-{number}\\n", append=True)

asyncio.run(main())
"""


async def test_eight_processes_that_count_and_append_lose_nothing(path: Path) -> None:  # C131 C207
    with several(COUNT, path, 8) as processes:
        go(processes)
        results(processes)
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="shared")
        counter, log = await run.read("counter"), await run.read("log")
        assert (counter.text, counter.version) == ("160", 160)
        lines = log.text.splitlines()
        assert sorted(lines) == sorted(f"p{process}-{number}" for process in range(8) for number in range(20))
        for process in range(8):  # each one's lines in their order
            own = [line for line in lines if line.startswith(f"p{process}-")]
            assert own == [f"p{process}-{number}" for number in range(20)]
        assert (await store.check()).problems == ()


SPILL = """
async def main():
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="shared")
        say("ready")
        sys.stdin.readline()
        for number in range(50):
            captured = await run.capture(query(f"{name} {number} " + "x" * 10_000))
            say(captured.handle, captured.decision.reason)

asyncio.run(main())
"""


async def test_two_processes_that_spill_into_one_scope_share_no_handle(path: Path) -> None:  # C33
    with several(SPILL, path, 2) as processes:
        go(processes)
        lines = [line.split() for output in results(processes) for line in output]
    assert {reason for _, reason in lines} == {"over_threshold"}
    assert len({handle for handle, _ in lines}) == 100
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="shared")
        for number, (handle, _) in enumerate(lines):
            window = await run.read_handle(handle, length=20)
            assert window.text.startswith(f"p{number // 50} {number % 50} x")
        assert (await store.check()).problems == ()


WRITE_AND_SWEEP = """
async def main():
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id=name)
        say("ready")
        sys.stdin.readline()
        for number in range(40):
            if name in ("p0", "p1"):
                await store.sweep()
            else:
                captured = await run.capture(query(name * 10_000), ttl=0.001 if number % 2 else 600)
                say(captured.decision.reason)

asyncio.run(main())
"""


async def test_writers_and_sweepers_side_by_side_meet_no_error(path: Path) -> None:  # C130 C133 C187
    with several(WRITE_AND_SWEEP, path, 5) as processes:
        go(processes)
        assert results(processes) == [[]] * 2 + [["over_threshold"] * 40] * 3
    async with ScratchStore.open(path) as store:
        assert len(await store.list_scratch_entries_for_run("run-42")) == 60
        await store.sweep()
        assert (await store.check()).problems == ()


# --- while another one holds the lock

HOLD = """
import sqlite3

connection = sqlite3.connect(path, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM runs")
say("ready")
sys.stdin.readline()
connection.execute("ROLLBACK")
say("released")
"""


async def test_opening_joining_and_reading_do_not_wait_for_a_writer(path: Path) -> None:  # C132
    async with ScratchStore.open(path) as store:
        await (await store.run("run-42", agent_id="p0")).write("note", "x")
    with several(HOLD, path, 1) as processes:
        async with ScratchStore.open(path) as store:  # whoever waits here waits for ever: it is told to go below
            run = await store.run("run-42", agent_id="p0")
            assert (await run.read("note")).text == "x"
            assert len(await store.list_scratch_entries_for_run("run-42")) == 1
            assert processes[0].poll() is None
            go(processes)
            assert results(processes) == [["released"]]
            assert await run.write("note", "y") == 2
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


# --- forgetful

FORGET = """
async def main():
    store = await ScratchStore.open(path)
    run = await store.run("run-42", agent_id=name)
    await run.write("note", "acknowledged")
    say((await run.capture(query("x" * 20_000))).handle)
    KEEP

asyncio.run(main())
"""


@pytest.mark.parametrize("keep", ["return", "globals().update(store=store, run=run)"], ids=["local", "global"])
async def test_a_script_that_never_closes_its_store_ends_with_a_warning(path: Path, keep: str) -> None:  # C172
    process = start(FORGET.replace("KEEP", keep), path, "p0", "-W", "default")
    output, errors = process.communicate(timeout=5)
    assert process.returncode == 0
    assert f"ResourceWarning: the store {path} was not closed" in errors
    assert "Traceback" not in errors
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="p0")
        assert (await run.read("note")).text == "acknowledged"
        assert (await run.read_handle(output.strip())).size == 20_000
        assert (await store.check()).problems == ()


IN_FLIGHT = """
async def main():
    store = await ScratchStore.open(path)
    run = await store.run("run-42", agent_id=name)
    tasks = [asyncio.create_task(run.capture(query("x" * 3_000_000))) for _ in range(3)]
    tasks += [asyncio.create_task(run.write(f"note-{number}", "x")) for number in range(50)]
    for _ in range(TURNS):
        await asyncio.sleep(0)
    say("ends")

asyncio.run(main())
"""


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 50])
async def test_a_loop_that_ends_during_writes_leaves_no_traceback(path: Path, turns: int) -> None:  # C176
    process = start(IN_FLIGHT.replace("TURNS", str(turns)), path, "p0", "-X", "dev", "-W", "ignore::ResourceWarning")
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, unhurried(errors)) == (0, "ends\n", "")
    async with ScratchStore.open(path) as store:
        assert (await store.check()).problems == ()


async def test_an_interrupted_script_ends_and_leaves_a_sound_store(path: Path) -> None:
    process = start(CAPTURES, path, "p0", "-W", "ignore::ResourceWarning")
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "Exception in thread" not in errors
    assert "never retrieved" not in errors
    async with ScratchStore.open(path) as store:
        assert (await store.check()).problems == ()
