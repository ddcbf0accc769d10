"""A process that forks while a store is open: the child is told so, and can open a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scratch import Kind, ScratchStore

ROOT = Path(__file__).resolve().parent.parent

PRELUDE = """
import asyncio, gc, logging, os, sys, threading
from scratch import Observation, ScratchStore, WrongProcess

path = sys.argv[1]

def query(content):
    return Observation(content=content, tool="run_query", tool_class="query")

async def own(key):
    async with ScratchStore.open(path) as store:
        return await (await store.run("run-42", agent_id="child")).write(key, "x")
"""


def run(program: str, path: Path) -> str:
    """What the program printed, when it ended well and had nothing to complain about."""
    done = subprocess.run(
        # 3.12 warns of forks beside threads
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", PRELUDE + program, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


FORKED = """
logging.disable()

async def refused(store, run):
    for call in (run.write("note", "x"), run.read("note"), store.list_runs(), store.sweep(), store.close()):
        try:
            await call
        except WrongProcess:
            continue
        return False
    kept = await run.capture(query("x" * 10_000))
    return kept.decision.reason == "store_failed"

async def main():
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="parent")
        for number in range(20):
            writing = [asyncio.create_task(run.capture(query("x" * 500_000))) for _ in range(3)]
            for _ in range(number):
                await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                asks = refused(store, run)
                try:
                    asks.send(None)
                except StopIteration as end:
                    assert end.value
                assert asyncio.run(own(f"note-{number}")) == 1
                store = run = None
                gc.collect()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            for captured in await asyncio.gather(*writing):
                assert captured.handle is not None
            print(os.waitstatus_to_exitcode(status))

asyncio.run(main())
"""


async def test_a_child_that_was_forked_at_any_moment_is_told_so_and_can_open_a_store_of_its_own(
    path: Path,
) -> None:  # C159 C160
    assert run(FORKED, path).split() == ["0"] * 20
    async with ScratchStore.open(path) as store:
        parent = await store.run("run-42", agent_id="parent")
        assert len(await parent.list(kind=Kind.HANDLE)) == 60
        assert len(await (await store.run("run-42", agent_id="child")).list()) == 20
        assert (await store.check()).problems == ()
    assert [one.name for one in path.parent.iterdir()] == ["scratch.db"]


MID_WRITE = """
inside = threading.Event()

def slow(connection):
    connection.execute("UPDATE runs SET completed_at = 1")
    inside.set()
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000)"
    return connection.execute(f"{numbers} SELECT count(*) FROM n").fetchone()[0]

async def main():
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="parent")
        writing = asyncio.create_task(store._database._engine.write(slow))
        await asyncio.to_thread(inside.wait)
        child = os.fork()
        if child == 0:
            os._exit(asyncio.run(own("note")))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), await writing, await run.write("note", "y"))

asyncio.run(main())
"""


async def test_a_child_that_was_forked_in_the_middle_of_a_write_waits_for_no_lock_of_it(path: Path) -> None:  # C160
    assert run(MID_WRITE, path) == "1 500000 1\n"
    async with ScratchStore.open(path) as store:
        assert len(await store.list_scratch_entries_for_run("run-42")) == 2
        assert (await store.check()).problems == ()


OUTLIVED = """
async def child():
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="child")
        await run.write("before", "x")
        os.write(told, b"x")
        os.read(wait, 1)  # until the parent has closed its store
        await run.write("after", "y")
        return (await store.check()).problems

async def main():
    store = await ScratchStore.open(path)
    run = await store.run("run-42", agent_id="parent")
    await run.write("note", "x")
    return store

loop = asyncio.new_event_loop()
store = loop.run_until_complete(main())
hears, told = os.pipe()
wait, go = os.pipe()
if os.fork() == 0:
    os._exit(0 if asyncio.run(child()) == () else 1)
os.read(hears, 1)
loop.run_until_complete(store.close())
os.write(go, b"x")
_, status = os.wait()
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
print(os.waitstatus_to_exitcode(status))
"""


async def test_what_a_child_writes_stays_when_the_parent_closes_first(path: Path) -> None:  # C159
    assert run(OUTLIVED, path) == "0\n"
    async with ScratchStore.open(path) as store:
        child = await store.run("run-42", agent_id="child")
        assert [info.key for info in await child.list()] == ["after", "before"]
        assert (await store.check()).problems == ()
    assert [one.name for one in path.parent.iterdir()] == ["scratch.db"]


FROM_A_JOB = """
from scratch.database import forks

forks._PATIENCE_SECONDS = 0.01

def forks_in_it(connection):
    child = os.fork()
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

async def main():
    async with ScratchStore.open(path) as store:
        print(await store._database._engine.write(forks_in_it))

asyncio.run(main())
"""


def test_a_fork_out_of_the_work_that_it_waits_for_does_not_hang(path: Path) -> None:
    assert run(FROM_A_JOB, path) == "7\n"
