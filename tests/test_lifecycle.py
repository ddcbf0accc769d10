"""Opening and closing, loops, forks, cancelled tasks, and scripts that forget to close."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scratch import ScratchStore, StoreClosed, WrongLoop
from scratch.database import connection as opening
from tests.support import query, unhurried

ROOT = Path(__file__).parent.parent


def files_open(folder: Path) -> list[str]:
    """The files below ``folder`` that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith(str(folder)):
                found.append(target)
    return found


def script(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    done.stderr = unhurried(done.stderr)
    return done


async def test_after_closing_no_file_and_no_thread_is_left(path: Path) -> None:  # C169
    threads = set(threading.enumerate())
    async with ScratchStore.open(path) as store:
        await (await store.run("r", agent_id="a")).write("plan", "x")
        assert files_open(path.parent)
    assert files_open(path.parent) == []
    left = {thread for thread in set(threading.enumerate()) - threads if not thread.name.startswith("asyncio_")}
    assert left == set()  # asyncio's own pool stays until its loop ends


async def test_a_closed_store_says_so_and_closes_again_without_a_word(path: Path) -> None:
    store = await ScratchStore.open(path)
    run = await store.run("r", agent_id="a")
    await store.close()
    await store.close()
    for verb in (run.write("plan", "x"), run.list(), store.sweep(), store.check(), store.run("r", agent_id="a")):
        with pytest.raises(StoreClosed):
            await verb
    captured = await run.capture(query("x" * 10_000))
    assert (captured.text, captured.decision.reason) == ("x" * 10_000, "store_failed")


async def test_closing_finishes_what_is_being_written(path: Path) -> None:
    store = await ScratchStore.open(path)
    run = await store.run("r", agent_id="a")
    writes = [asyncio.ensure_future(run.write(f"k{n}", "x")) for n in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writes) == [1] * 100
    async with ScratchStore.open(path) as store:
        assert len(await (await store.run("r", agent_id="a")).list()) == 100


def test_a_store_belongs_to_the_loop_that_opened_it(path: Path) -> None:  # C176
    async def open_it() -> ScratchStore:
        return await ScratchStore.open(path)

    async def use(store: ScratchStore) -> None:
        for verb in (store.run("r", agent_id="a"), store.stats(), store.close()):
            with pytest.raises(WrongLoop):
                await verb

    with asyncio.Runner() as first:
        store = first.run(open_it())
        asyncio.run(use(store))
        first.run(store.close())


def test_a_forked_child_is_told_so_at_once_and_harms_nothing(path: Path) -> None:  # C159, C160
    code = """
import asyncio, os, sys, warnings
from scratch import Observation, ScratchStore, WrongProcess
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks beside threads
async def main():
    async with ScratchStore.open(sys.argv[1]) as store:
        run = await store.run("r", agent_id="a")
        writing = asyncio.ensure_future(asyncio.gather(*(run.write(f"k{n}", "x") for n in range(50))))
        await asyncio.sleep(0)
        pid = os.fork()
        if pid == 0:
            code = 1
            for verb in (run.write("plan", "x"), run.list()):
                try:
                    verb.send(None)
                except WrongProcess:
                    code = 0
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        await writing
        print(os.waitstatus_to_exitcode(status), len(await run.list()), (await store.check()).problems)
asyncio.run(main())
"""
    done = script(code, str(path))
    assert (done.stdout, done.stderr) == ("0 50 ()\n", "")


def test_a_script_that_forgets_to_close_ends_and_is_told(path: Path) -> None:  # C172
    code = """
import asyncio, sys
from scratch import Observation, ScratchStore
kept = []
async def main():
    kept.append(await ScratchStore.open(sys.argv[1]))
    run = await kept[0].run("r", agent_id="a")
    print(await run.write("plan", "x"))
asyncio.run(main())
"""
    done = script(code, str(path))
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "ResourceWarning: the store" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_loop_that_ends_while_something_is_written_leaves_no_traceback(path: Path) -> None:  # C176
    code = """
import asyncio, sys
from scratch import Observation, ScratchStore
async def main():
    store = await ScratchStore.open(sys.argv[1])
    run = await store.run("r", agent_id="a")
    for n in range(20):
        asyncio.ensure_future(run.capture(Observation("x" * 200_000, tool_class="query")))
    await asyncio.sleep(0)
import warnings; warnings.simplefilter("ignore", ResourceWarning)
asyncio.run(main())
"""
    done = script(code, str(path))
    assert (done.returncode, done.stderr) == (0, "")


async def test_an_unclosed_store_is_named_in_a_warning(path: Path) -> None:
    store = await ScratchStore.open(path)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del store


async def step(coroutine: Coroutine[Any, Any, Any], turns: int) -> bool:
    """Run a task for so many turns of the loop, then cancel it; whether it was still running."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    running = not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        result = await task
        if isinstance(result, ScratchStore):
            await result.close()
    return running


async def test_an_open_cancelled_at_any_turn_leaves_nothing_open(path: Path) -> None:  # C175
    async def opened() -> ScratchStore:
        return await ScratchStore.open(path)

    cancelled = 0
    for turns in range(30):
        cancelled += await step(opened(), turns)
        assert files_open(path.parent) == []
    assert cancelled > 0


@pytest.mark.parametrize("what", ["capture", "write", "append", "delete", "read", "list", "sweep"])
async def test_a_verb_cancelled_at_any_turn_leaves_the_store_working(path: Path, what: str) -> None:  # C178, C179
    async with ScratchStore.open(path) as store:
        run = await store.run("r", agent_id="a")
        for turns in range(12):
            await run.write("plan", "before")
            verbs: dict[str, Coroutine[Any, Any, Any]] = {
                "capture": run.capture(query("x" * 100_000)),
                "write": run.write("plan", "after"),
                "append": run.write("plan", " and after", append=True),
                "delete": run.delete("plan"),
                "read": run.read("plan"),
                "list": run.list(),
                "sweep": store.sweep(),
            }
            chosen = verbs.pop(what)
            for unused in verbs.values():
                unused.close()
            await step(chosen, turns)
            assert await run.write("other", str(turns)) == turns + 1  # no transaction was left open
            texts = {"before", "after", "before and after"}
            assert {(await run.read(info.key)).text for info in await run.list(prefix="plan")} <= texts
        report = await store.check()
        assert report.problems == ()


async def test_of_two_writes_at_once_one_fails_alone(path: Path) -> None:  # C178
    async with ScratchStore.open(path, max_entry_bytes=20_000) as store:
        run = await store.run("r", agent_id="a")
        kept, refused = await asyncio.gather(run.capture(query("x" * 15_000)), run.capture(query("y" * 25_000)))
        assert kept.decision.reason == "over_threshold"
        assert refused.decision.reason == "store_failed"
        assert kept.handle is not None
        assert (await run.read_handle(kept.handle)).size == 15_000


# --- closing at any moment


async def test_a_close_that_is_cancelled_closes_all_the_same(path: Path) -> None:
    for turns in range(1, 12):
        threads = set(threading.enumerate())
        store = await ScratchStore.open(path)
        run = await store.run("r", agent_id="a")
        writing = asyncio.ensure_future(asyncio.gather(*(run.write(f"k{n}", "x") for n in range(100))))
        await asyncio.sleep(0)
        await step(store.close(), turns)
        assert files_open(path.parent) == []
        left = {thread for thread in set(threading.enumerate()) - threads if not thread.name.startswith("asyncio_")}
        assert left == set()
        assert len(await writing) == 100


async def test_who_closes_second_waits_for_the_first(path: Path) -> None:
    store = await ScratchStore.open(path)
    run = await store.run("r", agent_id="a")
    writing = asyncio.gather(*(run.write(f"k{n}", "x") for n in range(100)))
    await asyncio.sleep(0)

    async def close() -> list[str]:
        await store.close()
        return files_open(path.parent)

    assert list(await asyncio.gather(close(), close(), close())) == [[], [], []]
    assert await writing == [1] * 100


async def test_what_was_asked_before_closing_is_answered(path: Path) -> None:
    store = await ScratchStore.open(path)
    run = await store.run("r", agent_id="a")
    await run.write("plan", "x")
    asked = asyncio.gather(run.read("plan"), run.list(), store.list_runs(), store.check(), store.stats())
    await asyncio.sleep(0)
    await store.close()
    note, notes, runs, report, stats = await asked
    assert (note.text, len(notes), len(runs), report.problems, stats.live) == ("x", 1, 1, (), 1)


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 10, 30])
def test_a_task_that_closes_its_store_at_the_loops_end_does_not_hang(path: Path, turns: int) -> None:  # C176
    code = """
import asyncio, sys
from scratch import ScratchStore
async def work(store):
    async with store:
        run = await store.run("r", agent_id="a")
        await asyncio.gather(*(run.write(f"k{n}", "x") for n in range(100)))
async def main():
    task = asyncio.create_task(work(await ScratchStore.open(sys.argv[1])))
    for _ in range(int(sys.argv[2])):
        await asyncio.sleep(0)
asyncio.run(main())
"""
    done = script(code, str(path), str(turns))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_open_at_the_loops_end_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # C175
    at_the_end = threading.Event()

    def open_store(*arguments: Any, **options: Any) -> opening.Connections:
        assert at_the_end.wait(30)
        return real(*arguments, **options)

    real = opening.open_store
    monkeypatch.setattr(opening, "open_store", open_store)

    async def main(turns: int) -> None:
        at_the_end.clear()
        tasks = {asyncio.ensure_future(ScratchStore.open(path).__aenter__()) for _ in range(3)}
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        at_the_end.set()

    for turns in range(4):
        asyncio.run(main(turns))
        assert files_open(path.parent) == []


async def test_a_forgotten_store_gives_back_its_files_and_threads(path: Path) -> None:
    threads = set(threading.enumerate())
    store = await ScratchStore.open(path)
    run = await store.run("r", agent_id="a")
    await run.write("plan", "x")
    with pytest.warns(ResourceWarning, match="was not closed"):
        del store
    assert await run.write("plan", "y") == 2  # who still has a run can go on
    del run
    deadline = time.monotonic() + 30
    while left := [one for one in set(threading.enumerate()) - threads if not one.name.startswith("asyncio_")]:
        assert time.monotonic() < deadline
        gc.collect()  # again: a thread lets go of its last job only after it has said that it is done
        await asyncio.to_thread(left[0].join, 0.1)
    assert files_open(path.parent) == []
