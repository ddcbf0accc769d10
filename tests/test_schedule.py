"""The sweep as a job in a host's loop. The scheduler is the real one; no test waits for more than its next event."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apscheduler.schedulers.base
import pytest

from scratch import InvalidArgument, RunScratch, ScratchStore, SweepReport
from scratch.sweeper import schedule as module
from scratch.sweeper.schedule import SweepSchedule
from tests.support import Clock, add_expired, count_entries, unhurried

ROOT = Path(__file__).resolve().parent.parent
NOTHING = SweepReport(0, 0, 0, 0, 0, 0.0)
SOON = 0.01
GUARD = 30.0
"""Seconds after which a test that hangs fails; none of them gets near it."""


class Passes:
    """A sweep that counts its calls, can be held in a pass, and can be told to fail."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.started = 0
        self.finished = 0
        self.at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Condition()

    async def __call__(self) -> SweepReport:
        self.started += 1
        self.at_once += 1
        assert self.at_once == 1, "two passes at the same time"
        try:
            await self._tell()
            await self.gate.wait()
            if self.errors and (error := self.errors.pop(0)):
                raise error
            self.finished += 1
            return NOTHING
        finally:
            self.at_once -= 1

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_started(self, passes: int) -> None:
        async with asyncio.timeout(GUARD), self._changed:
            await self._changed.wait_for(lambda: self.started >= passes)


class Lines(logging.Handler):
    """Wakes up whoever waits for a log line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._arrived = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._arrived.set()

    async def wait_for(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(GUARD):
            while sum(text in line for line in self.lines) < times:
                self._arrived.clear()
                await self._arrived.wait()


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The messages of all errors and warnings logged so far, by anyone."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- passes


async def test_a_store_is_swept_at_once_and_then_at_every_interval(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C115
    reports: asyncio.Queue[SweepReport] = asyncio.Queue()

    async def sweep() -> SweepReport:
        report = await store.sweep()
        await reports.put(report)
        return report

    async def next_that_did_something() -> SweepReport:
        async with asyncio.timeout(GUARD):
            while not (report := await reports.get()).entries:
                pass
        return report

    add_expired(store.path, 3)
    await run.write("note", "x" * 100_000, ttl=60)
    async with SweepSchedule(sweep, interval=SOON):
        assert (await next_that_did_something()).entries == 3
        assert (await run.read("note")).info.size == 100_000
        clock.advance(60)
        assert (await next_that_did_something()).entries == 1
    assert count_entries(store.path) == 0


async def test_the_first_pass_does_not_wait_for_the_interval() -> None:
    sweep = Passes()
    async with SweepSchedule(sweep, interval=timedelta(days=30)):
        await sweep.wait_started(1)


async def test_a_pass_that_raises_is_logged_and_counted_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:  # C180
    failed = [OSError("disk"), ValueError("bug")]
    told: list[tuple[Exception, int]] = []
    sweep = Passes(*failed)
    schedule = SweepSchedule(
        sweep, interval=SOON, name="a.db", on_failure=lambda error, in_a_row: told.append((error, in_a_row))
    )
    async with schedule:
        await sweep.wait_started(4)
    assert schedule.passes == sweep.started
    assert (schedule.failures, schedule.failures_in_a_row) == (2, 0)
    assert told == [(failed[0], 1), (failed[1], 2)]
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in logged] == [
        "a.db: the sweep failed (1 in a row): disk",
        "a.db: the sweep failed (2 in a row): bug",
    ]
    assert [record.exc_info and record.exc_info[1] for record in logged] == failed
    assert {record.name for record in logged} == {"scratch.sweeper"}


async def test_a_pass_can_be_made_without_starting_anything(store: ScratchStore) -> None:  # C115
    add_expired(store.path, 3)
    schedule = SweepSchedule(store.sweep)
    report = await schedule.run_once()
    assert report is not None
    assert report.entries == 3
    assert schedule.last_report == report
    assert (schedule.passes, schedule.failures) == (1, 0)


async def test_a_failed_pass_made_by_hand_gives_none_and_keeps_the_last_report() -> None:
    schedule = SweepSchedule(Passes(None, OSError("disk"), OSError("disk"), None))
    results = [await schedule.run_once() for _ in range(3)]
    assert results == [NOTHING, None, None]
    assert (schedule.passes, schedule.failures, schedule.failures_in_a_row) == (3, 2, 2)
    assert schedule.last_report == NOTHING
    assert await schedule.run_once() == NOTHING
    assert (schedule.failures, schedule.failures_in_a_row) == (2, 0)


async def test_a_sweep_that_found_nothing_to_sweep_is_no_failure() -> None:
    async def nothing_there() -> None:
        return None

    schedule = SweepSchedule(nothing_there)
    assert await schedule.run_once() is None
    assert (schedule.passes, schedule.failures, schedule.last_report) == (1, 0, None)


async def test_a_pass_asked_for_while_one_is_running_is_that_one() -> None:
    sweep = Passes()
    sweep.gate.clear()
    schedule = SweepSchedule(sweep)
    both = asyncio.gather(schedule.run_once(), schedule.run_once())
    await sweep.wait_started(1)
    sweep.gate.set()
    first, second = await both
    assert (first, second) == (NOTHING, NOTHING)
    assert sweep.started == 1


async def test_whoever_stops_waiting_for_a_pass_does_not_stop_the_pass() -> None:
    sweep = Passes()
    sweep.gate.clear()
    schedule = SweepSchedule(sweep)
    waiting = asyncio.create_task(schedule.run_once())
    await sweep.wait_started(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    sweep.gate.set()
    await schedule.aclose()
    assert sweep.finished == 1


async def test_a_pass_that_is_longer_than_the_interval_is_not_overlapped_and_the_next_comes_within_one(
    errors: Callable[[], list[str]],
) -> None:  # C183
    sweep = Passes()
    sweep.gate.clear()
    schedule = SweepSchedule(sweep, interval=SOON)
    lines = Lines()
    logger = logging.getLogger("apscheduler.scheduler")
    logger.addHandler(lines)
    try:
        async with schedule:
            await lines.wait_for("maximum number of running instances reached", times=3)
            assert sweep.started == 1
            assert schedule._scheduler is not None
            job = schedule._scheduler.get_job("scratch-sweep")
            assert job is not None
            assert job.next_run_time - datetime.now(UTC) <= timedelta(
                seconds=SOON * 1.1 + 1.0
            )  # a time service may put the clock back a little
            sweep.gate.set()
            await sweep.wait_started(3)
    finally:
        logger.removeHandler(lines)
    assert (schedule.failures, schedule.passes) == (0, sweep.finished)
    assert set(errors()) == {line for line in lines.lines if "maximum number" in line}


async def test_a_hung_pass_is_cancelled_and_the_next_one_runs(errors: Callable[[], list[str]]) -> None:  # C185
    sweep = Passes()
    sweep.gate.clear()
    told: asyncio.Queue[Exception] = asyncio.Queue()
    schedule = SweepSchedule(
        sweep, interval=0.05, pass_timeout=0.2, on_failure=lambda error, in_a_row: told.put_nowait(error)
    )
    async with schedule:
        async with asyncio.timeout(GUARD):
            error = await told.get()
        sweep.gate.set()
        await sweep.wait_started(schedule.passes + 1)
    assert isinstance(error, TimeoutError)
    assert str(error) == "it took longer than 0.2 seconds and was cancelled"
    assert "scratch: the sweep failed (1 in a row): it took longer than 0.2 seconds and was cancelled" in errors()
    assert sweep.finished >= 1


async def test_a_timeout_of_the_sweep_itself_is_told_as_it_is() -> None:
    inner = TimeoutError("of something else")
    told: list[Exception] = []
    schedule = SweepSchedule(Passes(inner), on_failure=lambda error, in_a_row: told.append(error))
    await schedule.run_once()
    assert told == [inner]


async def test_garbage_collection_does_not_take_a_running_pass() -> None:  # C180
    sweep = Passes()
    sweep.gate.clear()
    async with SweepSchedule(sweep, interval=SOON):
        await sweep.wait_started(1)
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0)
        sweep.gate.set()
        await sweep.wait_started(2)
        gc.collect()
    assert sweep.finished == sweep.started


# --- starting and closing


async def test_closing_finishes_the_pass_that_is_running(errors: Callable[[], list[str]]) -> None:  # C181, C182
    sweep = Passes()
    sweep.gate.clear()
    schedule = SweepSchedule(sweep, interval=SOON)
    schedule.start()
    await sweep.wait_started(1)
    closing = asyncio.create_task(schedule.aclose())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    sweep.gate.set()
    await closing
    assert (sweep.started, sweep.finished) == (1, 1)
    assert schedule._scheduler is None
    assert [one for one in errors() if "maximum number" not in one] == []


async def test_closing_during_a_sweep_of_a_store_finishes_it(
    path: Path, errors: Callable[[], list[str]]
) -> None:  # C181
    async with ScratchStore.open(path) as store:
        add_expired(path, 500)
        schedule = SweepSchedule(store.sweep)
        schedule.start()
        while count_entries(path) == 500:
            await asyncio.sleep(0)
        await schedule.aclose()
    assert schedule.last_report is not None
    assert schedule.last_report.entries == 500
    assert count_entries(path) == 0
    assert errors() == []


async def test_closing_at_once_is_quiet_whatever_the_scheduler_was_about_to_do(
    errors: Callable[[], list[str]],
) -> None:  # C182
    passes: list[str] = []

    async def sweep() -> SweepReport:
        passes.append("started")
        for _ in range(10):
            await asyncio.sleep(0)
        passes.append("finished")
        return NOTHING

    for rounds in range(8):
        schedule = SweepSchedule(sweep)
        schedule.start()
        for _ in range(rounds):
            await asyncio.sleep(0)
        await schedule.aclose()
        at_close = list(passes)
        for _ in range(5):
            await asyncio.sleep(0)
        assert passes == at_close
        assert passes.count("started") == passes.count("finished")
    assert "finished" in passes
    assert errors() == []


HOST = """
import asyncio, logging, sys
from scratch.sweeper.schedule import SweepSchedule

async def sweep():
    print("sweeping", flush=True)
    await asyncio.sleep(0 if sys.argv[1] == "close" else 3600)

async def main():
    logging.basicConfig(level=logging.WARNING)
    schedule = SweepSchedule(sweep, interval=60)
    schedule.start()
    while schedule._pass is None:
        await asyncio.sleep(0)
    if sys.argv[1] == "close":
        await schedule.aclose()

asyncio.run(main(), debug=True)
"""


@pytest.mark.parametrize("way", ["close", "forget"])
def test_a_host_that_ends_prints_no_traceback(way: str) -> None:  # C182
    command = [sys.executable, "-X", "dev", "-c", HOST, way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=GUARD)
    assert (done.returncode, unhurried(done.stderr)) == (0, "")
    assert done.stdout == "sweeping\n"


async def test_cancelling_the_close_cancels_the_pass(errors: Callable[[], list[str]]) -> None:
    sweep = Passes()
    sweep.gate.clear()
    schedule = SweepSchedule(sweep)
    schedule.start()
    await sweep.wait_started(1)
    closing = asyncio.create_task(schedule.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert schedule._pass is not None
    await asyncio.wait([schedule._pass], timeout=GUARD)
    assert schedule._pass.cancelled()
    assert (sweep.at_once, sweep.finished) == (0, 0)
    assert errors() == []


async def test_starting_and_closing_twice_does_nothing_more_and_it_can_be_started_again() -> None:
    sweep = Passes()
    schedule = SweepSchedule(sweep)
    await schedule.aclose()
    schedule.start()
    schedule.start()
    await sweep.wait_started(1)
    assert schedule._scheduler is not None
    assert len(schedule._scheduler.get_jobs()) == 1
    await schedule.aclose()
    await schedule.aclose()
    assert sweep.started == 1
    async with schedule:
        await sweep.wait_started(2)


def test_starting_needs_a_running_loop() -> None:
    schedule = SweepSchedule(Passes())
    with pytest.raises(RuntimeError, match="no running event loop"):
        schedule.start()


# --- the clock


def use_wall_clock(monkeypatch: pytest.MonkeyPatch, shift: Callable[[], timedelta]) -> None:
    """Let the scheduler see another time of day; the loop's own clock goes on."""

    class Wall(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Wall:
            return super().now(tz) + shift()

    monkeypatch.setattr(module, "datetime", Wall)
    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Wall)


@pytest.fixture
def los_angeles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's own time zone."""
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def test_the_job_is_never_dropped_for_being_late_and_never_doubled() -> None:
    async with SweepSchedule(Passes()) as schedule:
        assert schedule._scheduler is not None
        (job,) = schedule._scheduler.get_jobs()
        assert (job.misfire_grace_time, job.coalesce, job.max_instances) == (None, True, 1)
        assert schedule._scheduler.timezone is UTC


def trigger(interval: float = 300, jitter: float = 0) -> Any:
    return module._FromNow(interval, jitter)


@pytest.mark.parametrize(
    "local",
    [
        datetime(2026, 3, 8, 1, 59, 59, tzinfo=ZoneInfo("America/Los_Angeles")),
        datetime(2026, 11, 1, 1, 59, 59, tzinfo=ZoneInfo("America/Los_Angeles")),
    ],
)
def test_summer_time_neither_skips_nor_doubles_an_hour(local: datetime) -> None:  # C186
    now = local.astimezone(UTC)
    times = [now]
    while len(times) < 30:
        times.append(trigger().get_next_fire_time(times[-1], times[-1]))
    assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=300)}


async def test_a_host_in_los_angeles_is_swept_when_summer_time_begins(
    monkeypatch: pytest.MonkeyPatch, errors: Callable[[], list[str]], los_angeles: None
) -> None:  # C186
    begins = datetime(2026, 3, 8, 2, 0, tzinfo=ZoneInfo("America/Los_Angeles")).astimezone(UTC)
    shift = datetime.now(UTC) - begins + timedelta(seconds=0.1)
    use_wall_clock(monkeypatch, lambda: -shift)
    sweep = Passes()
    times: list[datetime] = []

    async def noted() -> SweepReport:
        times.append(datetime.now(UTC) - shift)
        return await sweep()

    async with SweepSchedule(noted, interval=SOON), asyncio.timeout(GUARD):
        while not times or times[-1] < begins + timedelta(seconds=0.05):
            await sweep.wait_started(sweep.started + 1)
    assert times[0] < begins
    assert [one for one in errors() if "maximum number" not in one] == []


def test_a_leap_of_the_clock_leaves_one_pass_to_make_up_for() -> None:
    boot, now = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    assert trigger().get_next_fire_time(boot, now) == now + timedelta(seconds=300)


def test_jitter_only_ever_adds() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    waits = [(trigger(jitter=30).get_next_fire_time(now, now) - now).total_seconds() for _ in range(200)]
    assert 300 <= min(waits) <= max(waits) <= 330
    assert len(set(waits)) > 100


async def test_a_clock_that_is_set_back_does_not_put_off_the_next_pass(
    monkeypatch: pytest.MonkeyPatch, errors: Callable[[], list[str]]
) -> None:  # C186
    back = timedelta(0)
    use_wall_clock(monkeypatch, lambda: -back)
    sweep = Passes()
    async with SweepSchedule(sweep, interval=SOON):
        await sweep.wait_started(1)
        back = timedelta(hours=1)
        await sweep.wait_started(sweep.started + 3)
    assert "scratch: the clock was set back; sweeping now" in errors()
    assert all("set back" in one or "maximum number" in one for one in errors())


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"interval": 0}, "interval"),
        ({"interval": float("nan")}, "interval"),
        ({"interval": "300"}, "interval"),
        ({"interval": timedelta(0)}, "interval"),
        ({"pass_timeout": 0}, "pass_timeout"),
        ({"pass_timeout": float("inf")}, "pass_timeout"),
        ({"jitter": -1}, "jitter"),
        ({"interval": 10, "jitter": 11}, "jitter"),
        ({"jitter": timedelta(hours=1)}, "jitter"),
    ],
)
def test_a_bad_duration_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SweepSchedule(Passes(), **arguments)
    assert caught.value.data["argument"] == named


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        ({}, (300.0, 30.0, 600.0)),
        ({"interval": timedelta(minutes=1)}, (60.0, 6.0, 600.0)),
        ({"interval": 10, "jitter": 0, "pass_timeout": 5}, (10.0, 0.0, 5.0)),
        ({"interval": 10, "jitter": timedelta(seconds=10)}, (10.0, 10.0, 600.0)),
    ],
)
def test_durations_are_seconds_or_timedeltas(arguments: dict[str, Any], seconds: tuple[float, float, float]) -> None:
    schedule = SweepSchedule(Passes(), **arguments)
    assert (schedule._interval, schedule._jitter, schedule._pass_timeout) == seconds


def test_a_store_sweep_is_what_a_schedule_takes(store: ScratchStore) -> None:
    sweep: Callable[[], Awaitable[SweepReport | None]] = store.sweep
    assert SweepSchedule(sweep).passes == 0
