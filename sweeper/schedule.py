"""The sweep as a job in a host's event loop, run by APScheduler 3.11. No other module imports that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_SUBMITTED, JobEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from scratch.clock import ttl_seconds
from scratch.errors import InvalidArgument
from scratch.sweeper.sweep import SweepReport

logger = logging.getLogger("scratch.sweeper")

DEFAULT_INTERVAL = 300.0
"""Seconds."""
DEFAULT_PASS_TIMEOUT = 600.0
"""Seconds."""
_JOB = "scratch-sweep"
_CLOCK_SLACK = 1.0
"""Seconds that a clock may be put back without a word: time services do that all the time."""


class _FromNow(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """An interval counted from now, in seconds; APScheduler's own counts from the time at which the job was due.

    That one goes through every time that was missed when the clock leaps forward: for a board that boots in 1970,
    six million of them, with the loop blocked for 14 seconds.
    """

    def __init__(self, interval: float, jitter: float) -> None:
        self._interval = interval
        self._jitter = jitter

    def get_next_fire_time(  # pyright: ignore[reportIncompatibleMethodOverride]  # it takes the base's for None
        self,
        previous_fire_time: datetime | None,  # noqa: ARG002
        now: datetime,
    ) -> datetime:
        wait = self._interval + random.uniform(0, self._jitter)  # noqa: S311 - spreads sweepers, guards nothing
        return now + timedelta(seconds=wait)

    def __str__(self) -> str:
        return f"every {self._interval:g} s"


class SweepSchedule:
    """Sweeps a store at an interval, in the event loop of the process that uses it: no thread, no process more.

    ::

        async with ScratchStore.open("scratch.db") as store, SweepSchedule(store.sweep):
            …

    The first pass starts at once. Passes never overlap: what becomes due while one is running is left out. A pass that
    raises, or takes too long, is logged with its exception and counted, and the next one runs as usual. Tasks of one
    event loop may share it.

    Args:
        sweep: Makes one pass: ``store.sweep``, or any coroutine function like it. None stands for "nothing was there".
        interval: From one pass to the next: seconds or a timedelta; 5 minutes.
        jitter: Up to so many seconds (or a timedelta) are added to each interval, so that many processes do not sweep
            at the same moment; a tenth of the interval when None.
        pass_timeout: A pass is cancelled after so many seconds (or a timedelta), and has failed then; 10 minutes.
        name: What is swept, as log lines say it.
        on_failure: Called after each failed pass with the exception and the number of failures in a row; must not
            raise.

    Raises:
        InvalidArgument: a duration that is not above 0 (``jitter`` may be 0), or a jitter longer than the interval.
    """

    def __init__(
        self,
        sweep: Callable[[], Awaitable[SweepReport | None]],
        *,
        interval: float | timedelta = DEFAULT_INTERVAL,
        jitter: float | timedelta | None = None,
        pass_timeout: float | timedelta = DEFAULT_PASS_TIMEOUT,
        name: str = "scratch",
        on_failure: Callable[[Exception, int], None] | None = None,
    ) -> None:
        self._sweep = sweep
        self._interval = ttl_seconds(interval, "interval")
        self._jitter = _jitter_seconds(jitter, self._interval)
        self._pass_timeout = ttl_seconds(pass_timeout, "pass_timeout")
        self._name = name
        self._on_failure = on_failure
        self._scheduler: AsyncIOScheduler | None = None
        self._pass: asyncio.Task[SweepReport | None] | None = None
        self._job_idle = asyncio.Event()
        self._job_idle.set()
        self._watch: asyncio.TimerHandle | None = None
        self.passes = 0
        """Passes that have ended, the failed ones included."""
        self.failures = 0
        """Passes that have failed."""
        self.failures_in_a_row = 0
        """Passes that have failed since the last one that did not."""
        self.last_report: SweepReport | None = None
        """Of the last pass that did not fail."""

    def start(self) -> None:
        """Start sweeping. Does nothing when it is running.

        Raises:
            RuntimeError: there is no running event loop.
        """
        if self._scheduler is not None:
            return
        loop = asyncio.get_running_loop()
        # UTC: in a zone with summer time there is an hour a year in which nothing would be due
        scheduler = AsyncIOScheduler(timezone=UTC)
        scheduler.add_listener(self._on_event, EVENT_JOB_SUBMITTED | EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.add_job(
            self._tick,
            _FromNow(self._interval, self._jitter),
            id=_JOB,
            name=f"sweep of {self._name}",
            next_run_time=datetime.now(UTC),
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # the default is 1 second: in a busy loop the pass would be dropped
        )
        scheduler.start()
        self._scheduler = scheduler
        self._watch = loop.call_later(self._interval, self._watch_clock)

    async def aclose(self) -> None:
        """Start no more passes, wait for the one that is running, and stop. Calling it again does nothing.

        Cancelled, it cancels the pass too. Close the schedule before its store.
        """
        scheduler, self._scheduler = self._scheduler, None
        if self._watch is not None:
            self._watch.cancel()
        if scheduler is not None:
            scheduler.remove_all_jobs()
        try:
            # APScheduler's shutdown(wait=True) waits for nothing and cancels what is running. So it is called when
            # nothing is, and that is when the scheduler has let go of the job: a little after the pass has ended.
            await self._job_idle.wait()
            if self._pass is not None:
                await asyncio.wait([self._pass])
        except asyncio.CancelledError:
            if self._pass is not None:
                self._pass.cancel()
            raise
        finally:
            if scheduler is not None:
                scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # the scheduler shuts down in the loop's next round

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run_once(self) -> SweepReport | None:
        """Make a pass now, or join the one that is running; None when it failed. It need not be started for that.

        A pass that raises is logged and counted here as well. Cancelled, it lets the pass go on.
        """
        if self._pass is None or self._pass.done():
            # kept here: the loop itself holds tasks weakly
            self._pass = asyncio.create_task(self._one_pass(), name=_JOB)
        return await asyncio.shield(self._pass)

    async def _one_pass(self) -> SweepReport | None:
        logger.debug("%s: sweeping", self._name, extra={"db": self._name})
        try:
            report = await self._in_time()
        except Exception as error:  # the next pass runs all the same
            self.passes += 1
            self.failures += 1
            self.failures_in_a_row += 1
            logger.error(  # noqa: TRY400 - the exception may be handed on to no except block
                "%s: the sweep failed (%d in a row): %s",
                self._name,
                self.failures_in_a_row,
                error,
                exc_info=error,
                extra={"db": self._name, "failures_in_a_row": self.failures_in_a_row},
            )
            if self._on_failure is not None:
                self._on_failure(error, self.failures_in_a_row)
            return None
        self.passes += 1
        self.failures_in_a_row = 0
        if report is not None:
            self.last_report = report
            logger.info("%s: %s", self._name, _describe(report), extra={"db": self._name, "report": report})
        return report

    async def _in_time(self) -> SweepReport | None:
        limit = asyncio.timeout(self._pass_timeout)
        try:
            async with limit:
                return await self._sweep()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"it took longer than {self._pass_timeout:g} seconds and was cancelled") from error

    async def _tick(self) -> None:
        """The scheduler's job."""
        # A loop that ends without aclose() cancels this task. The scheduler would log that as an error.
        with contextlib.suppress(asyncio.CancelledError):
            await self.run_once()

    def _on_event(self, event: JobEvent) -> None:
        if event.code == EVENT_JOB_SUBMITTED:
            self._job_idle.clear()
        else:
            self._job_idle.set()

    def _watch_clock(self) -> None:
        """Once an interval, by a clock that only goes forward: see that the next pass is not too far away.

        The scheduler goes by the wall clock: set back by an hour, that would put off the next pass by an hour.
        """
        assert self._scheduler is not None
        job = self._scheduler.get_job(_JOB)
        assert job is not None
        now = datetime.now(UTC)
        if (job.next_run_time - now).total_seconds() > self._interval + self._jitter + _CLOCK_SLACK:
            logger.warning("%s: the clock was set back; sweeping now", self._name, extra={"db": self._name})
            job.modify(next_run_time=now)
        self._watch = asyncio.get_running_loop().call_later(self._interval, self._watch_clock)


def _jitter_seconds(jitter: float | timedelta | None, interval: float) -> float:
    if jitter is None:
        return interval / 10
    seconds = 0.0 if jitter in (0, timedelta(0)) else ttl_seconds(jitter, "jitter")
    if seconds > interval:
        raise InvalidArgument("jitter must not be longer than the interval", argument="jitter")
    return seconds


def _describe(report: SweepReport) -> str:
    if report.dry_run:
        return f"would delete {report.entries:,} entries ({report.bytes:,} bytes)"
    return (
        f"deleted {report.entries:,} entries ({report.bytes:,} bytes) in {report.batches:,} batches, "
        f"gave back {report.given_back:,} bytes, WAL {report.wal_bytes:,} bytes, {report.seconds:.3f} s"
    )
