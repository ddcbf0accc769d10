"""Functions on a connection's thread, and commits in groups: who is told what, whatever goes wrong."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from scratch.database import connection as opening
from scratch.database.worker import GroupCommit, Worker
from scratch.errors import StoreBusy, StoreClosed, StoreError, StoreFull

Add = Callable[[sqlite3.Connection], int]


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (x UNIQUE)")
    return connection


def rows(path: Path) -> list[object]:
    """What is committed, as another process sees it."""
    connection = sqlite3.connect(path)
    found = [x for (x,) in connection.execute("SELECT x FROM t ORDER BY rowid")]
    connection.close()
    return found


def add(x: object) -> Add:
    def function(connection: sqlite3.Connection) -> int:
        return connection.execute("INSERT INTO t VALUES (?)", (x,)).rowcount

    return function


def failing(error: BaseException) -> Add:
    """Writes something, then raises."""

    def function(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO t VALUES ('taken back')")
        raise error

    return function


class Kit:
    """A worker, its group commit, and what was seen of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements: list[str] = []
        self.sizes: list[int] = []
        connection = connect(path)
        connection.set_trace_callback(self.statements.append)
        self.worker = Worker(connection, path)
        self.commits = GroupCommit(self.worker, path, self.sizes.append)

    def count(self, statement: str) -> int:
        return self.statements.count(statement)


@pytest.fixture
async def kit(path: Path) -> AsyncIterator[Kit]:
    kit = Kit(path)
    yield kit
    await kit.commits.finish()
    await kit.worker.close()


# --- in groups


async def test_writes_of_one_moment_are_committed_together(kit: Kit) -> None:
    assert await asyncio.gather(*(kit.commits.write(add(x)) for x in range(10))) == [1] * 10
    assert kit.count("BEGIN IMMEDIATE") == kit.count("COMMIT") == 1
    assert rows(kit.path) == list(range(10))


async def test_a_lone_write_does_not_wait_for_company(kit: Kit) -> None:
    for x in range(3):
        await kit.commits.write(add(x))
        assert rows(kit.path) == list(range(x + 1))
    assert kit.count("COMMIT") == 3


async def test_at_most_64_writes_share_a_transaction_and_order_is_kept(kit: Kit) -> None:
    await asyncio.gather(*(kit.commits.write(add(x)) for x in range(130)))
    assert kit.count("COMMIT") == 3
    assert rows(kit.path) == list(range(130))


async def test_a_group_ends_at_four_mebibytes(kit: Kit) -> None:
    mib = 1024 * 1024
    await asyncio.gather(*(kit.commits.write(add(x), mib) for x in range(10)))
    assert kit.sizes == [4 * mib, 4 * mib, 2 * mib]
    await asyncio.gather(*(kit.commits.write(add(x), 64 * mib) for x in (10, 11)))
    assert kit.sizes[3:] == [64 * mib, 64 * mib]


async def test_a_write_is_acknowledged_only_after_its_commit(kit: Kit) -> None:
    seen: list[list[object]] = []

    async def write(x: int) -> None:
        await kit.commits.write(add(x))
        seen.append(rows(kit.path))

    await asyncio.gather(*(write(x) for x in range(5)))
    assert seen == [list(range(5))] * 5


async def test_writes_that_come_during_a_commit_form_the_next_group(kit: Kit) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        inside.set()
        assert go_on.wait(10)
        return connection.execute("INSERT INTO t VALUES ('slow')").rowcount

    first = asyncio.create_task(kit.commits.write(slow))
    await asyncio.to_thread(inside.wait, 10)
    others = [asyncio.create_task(kit.commits.write(add(x))) for x in range(5)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *others)
    assert kit.count("COMMIT") == 2
    assert rows(kit.path) == ["slow", 0, 1, 2, 3, 4]


async def test_what_was_written_is_not_kept_in_memory(kit: Kit) -> None:
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)

    def function(connection: sqlite3.Connection, big: Big = big) -> int:
        return connection.execute("INSERT INTO t VALUES (1)").rowcount

    await kit.commits.write(function)
    del big, function
    gc.collect()
    assert gone() is None


# --- failing alone


@pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyError("x"), MemoryError(), GeneratorExit(), type("Panic", (BaseException,), {})()]
)
async def test_a_failing_write_takes_back_its_own_work_and_no_other(kit: Kit, error: BaseException) -> None:  # C178
    outcomes = await asyncio.gather(
        kit.commits.write(add(1)), kit.commits.write(failing(error)), kit.commits.write(add(2)), return_exceptions=True
    )
    assert list(outcomes) == [1, error, 1]
    assert rows(kit.path) == [1, 2]
    assert kit.count("COMMIT") == 1


async def test_a_stop_iteration_which_no_future_takes_arrives_as_another_error(kit: Kit) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await kit.commits.write(failing(StopIteration(3)))
    assert await kit.commits.write(add(1)) == 1


async def test_an_error_of_sqlite_arrives_under_its_name_with_its_cause(kit: Kit) -> None:
    await kit.commits.write(add(1))
    with pytest.raises(StoreError) as caught:
        await kit.commits.write(add(1))
    assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)
    with pytest.raises(StoreError) as caught:
        await kit.worker.call(lambda connection: connection.execute("SELECT nonsense"))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


async def test_when_sqlite_takes_back_the_whole_transaction_every_write_of_the_group_hears_it(kit: Kit) -> None:
    def gives_up(connection: sqlite3.Connection) -> int:
        return connection.execute("INSERT OR ROLLBACK INTO t VALUES (1)").rowcount

    outcomes = await asyncio.gather(
        kit.commits.write(add(1)), kit.commits.write(gives_up), kit.commits.write(add(2)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert rows(kit.path) == []
    assert await kit.commits.write(add(3)) == 1


async def test_a_commit_that_fails_fails_its_whole_group_and_leaves_no_transaction_open(kit: Kit) -> None:
    await kit.worker.call(lambda connection: connection.execute("PRAGMA foreign_keys=ON"))
    await kit.worker.call(
        lambda connection: connection.execute("CREATE TABLE u (y REFERENCES t (x) DEFERRABLE INITIALLY DEFERRED)")
    )

    def dangling(connection: sqlite3.Connection) -> int:
        return connection.execute("INSERT INTO u VALUES ('nothing')").rowcount

    outcomes = await asyncio.gather(kit.commits.write(add(1)), kit.commits.write(dangling), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 2
    assert rows(kit.path) == []
    assert await kit.commits.write(add(1)) == 1


async def test_a_full_disk_fails_the_write_and_the_next_one_works(kit: Kit) -> None:
    await kit.worker.call(lambda connection: connection.execute("PRAGMA max_page_count=3"))
    with pytest.raises(StoreFull):
        await kit.commits.write(add("x" * 100_000))
    assert await kit.commits.write(add("y")) == 1
    assert rows(kit.path) == ["y"]


async def test_a_lock_that_stays_is_store_busy_for_all_that_waited(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.02)
    other = sqlite3.connect(kit.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(*(kit.commits.write(add(x)) for x in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 3
    other.execute("ROLLBACK")
    other.close()
    assert await kit.commits.write(add(1)) == 1


async def test_an_error_after_a_commit_does_not_hold_up_the_next_group(path: Path) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    error = RuntimeError("after the commit")

    def after_commit(_: int) -> None:
        raise error

    worker = Worker(connect(path), path)
    commits = GroupCommit(worker, path, after_commit)
    assert await asyncio.gather(*(commits.write(add(x)) for x in range(100))) == [1] * 100
    assert await commits.write(add(100)) == 1
    await commits.finish()
    await worker.close()
    assert reported == [error] * 3


# --- cancelling


async def test_a_cancelled_write_that_was_still_waiting_is_not_done(kit: Kit) -> None:
    tasks = [asyncio.create_task(kit.commits.write(add(x))) for x in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, asyncio.CancelledError, int]
    assert rows(kit.path) == [0, 2]


async def test_a_write_that_is_cancelled_under_way_is_committed_whole(kit: Kit) -> None:  # C179
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO t VALUES ('first half')")
        inside.set()
        assert go_on.wait(10)
        return connection.execute("INSERT INTO t VALUES ('second half')").rowcount

    task = asyncio.create_task(kit.commits.write(slow))
    await asyncio.to_thread(inside.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await kit.commits.write(add("next")) == 1
    assert rows(kit.path) == ["first half", "second half", "next"]


async def test_an_error_that_nobody_waits_for_any_more_is_not_reported_as_unseen(kit: Kit) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        inside.set()
        assert go_on.wait(10)
        raise ValueError

    task = asyncio.create_task(kit.commits.write(slow))
    await asyncio.to_thread(inside.wait, 10)
    go_on.set()
    await kit.worker.call(lambda _: None)  # the error has arrived; the task has not run yet
    task.cancel()
    with pytest.raises((ValueError, asyncio.CancelledError)):
        await task
    del task
    gc.collect()
    assert reported == []


async def test_cancelling_every_task_of_the_loop_leaves_no_write_waiting_for_ever(kit: Kit) -> None:  # C176
    async def write(x: int) -> int:
        try:
            return await kit.commits.write(add(x))
        except asyncio.CancelledError:
            return await kit.commits.write(add(f"second try {x}"))

    tasks = [asyncio.create_task(write(x)) for x in range(3)]
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 10) == [1, 1, 1]
    await asyncio.wait_for(kit.commits.finish(), 10)
    assert set(rows(kit.path)) == {"second try 0", "second try 1", "second try 2"}


# --- ending


async def test_finish_waits_for_all_that_is_written_and_for_nothing_else(kit: Kit) -> None:
    await kit.commits.finish()
    tasks = [asyncio.create_task(kit.commits.write(add(x))) for x in range(200)]
    await asyncio.sleep(0)
    await asyncio.gather(kit.commits.finish(), kit.commits.finish())
    assert rows(kit.path) == list(range(200))
    await asyncio.gather(*tasks)


async def test_close_does_what_is_queued_and_ends_the_thread(path: Path) -> None:
    before = threading.active_count()
    worker = Worker(connect(path), path)
    assert threading.active_count() == before + 1
    calls = [asyncio.create_task(worker.call(add(x))) for x in range(5)]
    await asyncio.sleep(0)
    await worker.close()
    assert threading.active_count() == before
    assert await asyncio.gather(*calls) == [1] * 5


async def test_a_closed_worker_says_so(path: Path) -> None:
    worker = Worker(connect(path), path)
    await worker.close()
    with pytest.raises(StoreClosed):
        await worker.call(add(1))
    with pytest.raises(StoreClosed):
        await GroupCommit(worker, path, lambda _: None).write(add(1))


async def test_a_forgotten_worker_ends_its_thread_and_closes_its_connection(path: Path) -> None:
    connection = connect(path)
    worker = Worker(connection, path)
    thread = worker._aiosqlite._thread
    await worker.call(add(1))
    del worker
    gc.collect()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


def test_a_loop_that_closes_during_a_write_leaves_no_traceback_and_no_open_transaction(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # C176
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        inside.set()
        assert go_on.wait(10)
        return connection.execute("INSERT INTO t VALUES ('late')").rowcount

    async def start() -> threading.Thread:
        worker = Worker(connect(path), path)
        task = asyncio.create_task(GroupCommit(worker, path, lambda _: None).write(slow))
        await asyncio.to_thread(inside.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        return worker._aiosqlite._thread

    loop = asyncio.new_event_loop()
    thread = loop.run_until_complete(start())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    go_on.set()
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    assert rows(path) == ["late"]
    assert capfd.readouterr().err == ""
