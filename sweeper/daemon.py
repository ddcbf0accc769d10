"""The sweeper as a process of its own: the command ``scratch-sweeper``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType

import click

from scratch.errors import InvalidArgument, ScratchError, StoreMissing
from scratch.store import ScratchStore
from scratch.sweeper.schedule import DEFAULT_INTERVAL, DEFAULT_PASS_TIMEOUT, SweepSchedule
from scratch.sweeper.sweep import BATCH_ENTRIES, SweepReport
from scratch.visible import escape, escape_block

logger = logging.getLogger("scratch.sweeper")

MAX_FAILURES = 5
"""After so many failed passes over one database, one after the other, the daemon gives up."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_SIGNAL = 128
"""Added to the number of the signal that ended the process."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """What the command line says. Durations are seconds."""

    interval: float
    pass_timeout: float
    batch: int
    once: bool
    dry_run: bool


class _File:
    """A database that is opened anew for each pass, so that one which appears later, or is replaced, is swept too."""

    def __init__(self, path: Path, settings: _Settings) -> None:
        self._path = path
        self._settings = settings
        self._missing = False

    async def sweep(self) -> SweepReport | None:
        dry_run = self._settings.dry_run
        try:
            async with ScratchStore.open(self._path, create=False, read_only=dry_run) as store:
                self._missing = False
                return await store.sweep(dry_run=dry_run, batch_entries=self._settings.batch)
        except StoreMissing:
            if not self._missing:
                logger.info(
                    "%s: there is no such file; it will be swept when it is there",
                    self._path,
                    extra={"db": str(self._path)},
                )
            self._missing = True
            return None


class _Daemon:
    """One schedule for each database, and what ends them: a signal, or a database that cannot be swept."""

    def __init__(self, paths: Sequence[Path], settings: _Settings) -> None:
        self._once = settings.once
        self._interval = settings.interval
        self._paths = paths
        self._exit_code = EXIT_OK
        self._stop = asyncio.Event()
        self._schedules = [
            SweepSchedule(
                _File(path, settings).sweep,
                interval=settings.interval,
                pass_timeout=settings.pass_timeout,
                name=str(path),
                on_failure=partial(self._failed, path),
            )
            for path in paths
        ]

    async def run(self) -> int:
        """Sweep until the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        if self._once:
            for schedule in self._schedules:
                if not self._stop.is_set():
                    await schedule.run_once()
            return self._exit_code
        logger.info("sweeping every %g seconds: %s", self._interval, ", ".join(map(str, self._paths)))
        for schedule in self._schedules:
            schedule.start()
        await self._stop.wait()
        await asyncio.gather(*(schedule.aclose() for schedule in self._schedules))
        logger.info("stopped")
        return self._exit_code

    def _failed(self, path: Path, error: Exception, failures_in_a_row: int) -> None:
        if self._once:
            self._exit_code = EXIT_FAILED
        elif failures_in_a_row >= MAX_FAILURES:
            self._exit_code = EXIT_FAILED
            logger.critical(
                "%s: the sweep failed %d times in a row; giving up. The last error: %s",
                path,
                failures_in_a_row,
                error,
                extra={"db": str(path), "failures_in_a_row": failures_in_a_row},
            )
            self._stop.set()

    def _on_signal(self, number: signal.Signals) -> None:
        """The first signal. The next one ends the process, whatever the loop is doing then."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)
            signal.signal(one, _end_at_once)
        logger.info("%s: finishing the pass that is running; a second signal ends at once", number.name)
        self._stop.set()


def _end_at_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
    # Not by the signal's default action: process 1 of a container has none. SQLite takes back what was not committed.
    os._exit(EXIT_SIGNAL + number)


# --- log lines

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _TextLines(logging.Formatter):
    """Time (UTC), level and message, safe on a terminal. No traceback of an error of ours: its message says all."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escape(super().formatMessage(record))  # the name of a file can hold a line break

    def format(self, record: logging.LogRecord) -> str:
        return escape_block(super().format(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - logging's name
        error = ei[1]
        if not isinstance(error, ScratchError):
            return super().formatException(ei)
        return f"  caused by {error.__cause__!r}" if error.__cause__ else ""


class _JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message; db, the report's fields and the error where any."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("db", "failures_in_a_row"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        report = getattr(record, "report", None)
        if isinstance(report, SweepReport):
            line |= asdict(report)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = getattr(record.exc_info[1], "code", type(record.exc_info[1]).__name__)
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _configure_logging(log_format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if log_format == "json" else _TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("apscheduler").setLevel(logging.WARNING)  # two lines a pass that say what ours say
    logging.captureWarnings(capture=True)


# --- the command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--db",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="SCRATCH_DB",
    show_envvar=True,
    help="A database to sweep; may be given several times (in the variable: separated by ':'). "
    "One that is not there yet is swept when it appears.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=366 * 86_400),
    default=DEFAULT_INTERVAL,
    envvar="SCRATCH_SWEEPER_INTERVAL",
    show_envvar=True,
    show_default=True,
    help="Seconds from one pass to the next; up to a tenth is added at random.",
)
@click.option(
    "--once",
    is_flag=True,
    envvar="SCRATCH_SWEEPER_ONCE",
    show_envvar=True,
    help="One pass over every database, then exit: 1 when any failed.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    envvar="SCRATCH_SWEEPER_DRY_RUN",
    show_envvar=True,
    help="Only count what would be deleted, and write nothing. Implies --once.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=BATCH_ENTRIES,
    envvar="SCRATCH_SWEEPER_BATCH",
    show_envvar=True,
    show_default=True,
    help="Entries deleted in one transaction, at most.",
)
@click.option(
    "--pass-timeout",
    type=click.FloatRange(min=0.1, max=366 * 86_400),
    default=DEFAULT_PASS_TIMEOUT,
    envvar="SCRATCH_SWEEPER_PASS_TIMEOUT",
    show_envvar=True,
    show_default=True,
    help="Seconds after which a pass is cancelled and has failed.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="SCRATCH_SWEEPER_LOG_FORMAT",
    show_envvar=True,
    show_default=True,
    help="How log lines are written to standard error.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    envvar="SCRATCH_SWEEPER_LOG_LEVEL",
    show_envvar=True,
    show_default=True,
    help="The least important lines that are written.",
)
@click.version_option(package_name="run-scratch")
def main(
    paths: tuple[Path, ...],
    interval: float,
    once: bool,
    dry_run: bool,
    batch: int,
    pass_timeout: float,
    log_format: str,
    log_level: str,
) -> None:
    """Delete what has expired from scratch databases and give its space back, again and again.

    Other processes may read, write and sweep the same databases meanwhile.

    The first SIGINT or SIGTERM finishes the pass that is running and exits 0; a second one ends at once (130 or 143).
    After five failed passes in a row over one database it exits 1.

    \b
    Examples:
      scratch-sweeper --db scratch.db
      scratch-sweeper --db a.db --db b.db --interval 60 --log-format json
      scratch-sweeper --db scratch.db --dry-run
      SCRATCH_DB=a.db:b.db scratch-sweeper --once
    """  # noqa: D301 - to click it is the backspace itself that says "leave these lines as they are"
    settings = _Settings(interval, pass_timeout, batch, once or dry_run, dry_run)
    try:
        daemon = _Daemon(list(dict.fromkeys(path.absolute() for path in paths)), settings)
    except InvalidArgument as error:  # what the ranges above let through, such as "nan"
        raise click.UsageError(error.message) from error
    _configure_logging(log_format, log_level)
    sys.exit(asyncio.run(daemon.run()))


if __name__ == "__main__":
    main()
