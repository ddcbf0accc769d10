"""scratch-sweeper: real processes on real files, told what to do by signals, watched through their log lines."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import click
import pytest
from click.testing import CliRunner

from scratch import ScratchStore
from scratch.sweeper.daemon import main
from tests.support import add_expired, count_entries, unhurried

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-X", "dev", "-m", "scratch.sweeper.daemon"]
GUARD = 30.0
"""Seconds after which a test that hangs fails; none of them gets near it."""


def environment(**extra: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SCRATCH_")} | extra


class Daemon:
    """A running daemon. Killed at the end of its block if it is still there, and after GUARD seconds anyway."""

    def __init__(self, *arguments: object, **env: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=ROOT,
            env=environment(**env),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._timer = threading.Timer(GUARD, self._process.kill)
        self._timer.start()
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def wait_for(self, text: str) -> str:
        """The next line with ``text`` in it."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}:\n{''.join(self.lines)}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """Read to the end; the exit code."""
        assert self._process.stderr is not None
        self.lines += self._process.stderr
        return self._process.wait()


def run_once(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """A daemon that ends by itself."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(**env), capture_output=True, text=True, timeout=GUARD, check=False
    )
    done.stderr = unhurried(done.stderr)
    return done


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process's write that takes its time: whoever sweeps has to wait for it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


MakeStore = Callable[[str, int], Awaitable[Path]]


@pytest.fixture
def make(tmp_path: Path) -> MakeStore:
    """Makes a store with so many expired entries in it."""

    async def make_store(name: str, entries: int) -> Path:
        path = tmp_path / name
        async with ScratchStore.open(path) as store:
            run = await store.run("run-42", agent_id="researcher")
            await run.write("live", "1")
        add_expired(path, entries)
        return path

    return make_store


async def is_sound(path: Path) -> bool:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        return (await store.check()).problems == () and (await run.read("live")).text == "1"


# --- sweeping


async def test_it_sweeps_at_once_and_ends_well_on_a_signal(make: MakeStore) -> None:
    path = await make("a.db", 120)
    with Daemon("--db", path) as daemon:
        line = daemon.wait_for("deleted")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert f"INFO {path}: deleted 120 entries (12,000 bytes)" in line
    assert daemon.lines[0].endswith(f"INFO sweeping every 300 seconds: {path}\n")
    assert daemon.lines[-1].endswith("INFO stopped\n")
    assert count_entries(path) == 1
    assert await is_sound(path)


async def test_it_sweeps_again_at_every_interval(make: MakeStore) -> None:
    path = await make("a.db", 3)
    with Daemon("--db", path, "--interval", 0.2) as daemon:
        daemon.wait_for("deleted 3 entries")
        add_expired(path, 5)
        daemon.wait_for("deleted 5 entries")
        add_expired(path, 7)
        daemon.wait_for("deleted 7 entries")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert await is_sound(path)


async def test_it_sweeps_several_databases_and_each_only_once_when_named_twice(make: MakeStore) -> None:
    a, b = await make("a.db", 3), await make("b.db", 5)
    done = run_once("--db", a, "--db", b, "--db", a, "--once")
    assert done.returncode == 0
    assert [line.split(" in ")[0].split(" INFO ")[1] for line in done.stderr.splitlines()] == [
        f"{a}: deleted 3 entries (300 bytes)",
        f"{b}: deleted 5 entries (500 bytes)",
    ]
    assert (count_entries(a), count_entries(b)) == (1, 1)


async def test_two_daemons_and_a_writer_share_a_database(make: MakeStore) -> None:  # C187
    path = await make("a.db", 1_000)
    arguments = ("--db", path, "--interval", 0.1, "--batch", 10, "--log-format", "json")
    async with ScratchStore.open(path) as store:
        run = await store.run("run-43", agent_id="writer")
        with Daemon(*arguments) as one, Daemon(*arguments) as other:
            for daemon in (one, other):
                daemon.wait_for("deleted")
            for number in range(100):
                await run.write(f"note-{number}", "x" * 1_000)
            for daemon in (one, other):
                daemon.signal(signal.SIGINT)
            assert [one.end(), other.end()] == [0, 0]
        assert len(await run.list()) == 100
    reports = [json.loads(line) for line in one.lines + other.lines]
    assert sum(report.get("entries", 0) for report in reports) == 1_000
    assert {report["level"] for report in reports} <= {"INFO", "WARNING"}
    assert await is_sound(path)


async def test_a_database_that_appears_later_is_swept_and_its_absence_is_said_once(
    make: MakeStore, tmp_path: Path
) -> None:
    path = tmp_path / "later.db"
    with Daemon("--db", path, "--interval", 0.1, "--log-level", "debug") as daemon:
        for _ in range(4):
            daemon.wait_for(f"{path}: sweeping")
        await make("later.db", 9)
        # it may have been swept before the expired entries were put in
        daemon.wait_for("deleted 9 entries")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert len([line for line in daemon.lines if "there is no such file" in line]) == 1
    assert not [line for line in daemon.lines if "ERROR" in line]
    assert await is_sound(path)


async def test_a_database_that_was_replaced_is_swept(make: MakeStore) -> None:
    path, new = await make("a.db", 3), await make("new.db", 7)
    with Daemon("--db", path, "--interval", 1) as daemon:
        daemon.wait_for("deleted 3 entries")  # said after the file was closed; there is a second until the next pass
        new.replace(path)
        daemon.wait_for("deleted 7 entries")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert count_entries(path) == 1
    assert await is_sound(path)


# --- ending


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_finishes_the_pass_that_is_running(make: MakeStore, number: signal.Signals) -> None:
    path = await make("a.db", 500)
    with Daemon("--db", path, "--log-level", "debug") as daemon:
        with locked(path):  # the pass is running, and cannot be over before the signal is there
            daemon.wait_for(f"{path}: sweeping")
            daemon.signal(number)
            daemon.wait_for(f"{number.name}: finishing the pass that is running; a second signal ends at once")
        assert daemon.end() == 0
    assert any("deleted 500 entries" in line for line in daemon.lines)
    assert count_entries(path) == 1
    assert await is_sound(path)


async def test_a_signal_in_the_middle_of_many_batches_finishes_them_all(make: MakeStore) -> None:
    path = await make("a.db", 3_000)
    with Daemon("--db", path, "--batch", 10) as daemon:
        daemon.wait_for("sweeping every")
        while count_entries(path) == 3_001 and daemon.is_running():
            pass
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert any("deleted 3,000 entries" in line for line in daemon.lines)
    assert await is_sound(path)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [(signal.SIGTERM, signal.SIGTERM, 143), (signal.SIGINT, signal.SIGINT, 130), (signal.SIGINT, signal.SIGTERM, 143)],
)
async def test_a_second_signal_ends_at_once(
    make: MakeStore, first: signal.Signals, second: signal.Signals, code: int
) -> None:
    path = await make("a.db", 500)
    with Daemon("--db", path, "--log-level", "debug") as daemon, locked(path):
        daemon.wait_for(f"{path}: sweeping")
        daemon.signal(first)
        daemon.wait_for("finishing the pass")
        daemon.signal(second)
        assert daemon.end() == code
    assert count_entries(path) == 501
    assert await is_sound(path)
    assert count_entries(path) == 501


async def test_a_signal_during_once_finishes_the_pass_and_leaves_out_the_others(make: MakeStore) -> None:
    a, b = await make("a.db", 3), await make("b.db", 5)
    with Daemon("--db", a, "--db", b, "--once", "--log-level", "debug") as daemon:
        with locked(a):
            daemon.wait_for(f"{a}: sweeping")
            daemon.signal(signal.SIGINT)
            daemon.wait_for("finishing the pass")
        assert daemon.end() == 0
    assert (count_entries(a), count_entries(b)) == (1, 6)


async def test_it_gives_up_after_five_failed_passes_in_a_row_over_one_database(make: MakeStore, tmp_path: Path) -> None:
    good, foreign = await make("good.db", 3), tmp_path / "foreign.db"
    make_foreign(foreign)
    before = foreign.read_bytes()
    with Daemon("--db", good, "--db", foreign, "--interval", 0.1, "--log-format", "json") as daemon:
        assert daemon.end() == 1
    lines = [json.loads(line) for line in daemon.lines]
    failed = [line for line in lines if line["level"] == "ERROR"]
    assert [line["failures_in_a_row"] for line in failed] == [1, 2, 3, 4, 5]
    assert {(line["db"], line["error"]) for line in failed} == {(str(foreign), "foreign_database")}
    (critical,) = [line for line in lines if line["level"] == "CRITICAL"]
    assert critical["message"] == (
        f"{foreign}: the sweep failed 5 times in a row; giving up. "
        "The last error: foreign.db is a database of something else; choose another path"
    )
    assert lines[-1]["message"] == "stopped"
    assert count_entries(good) == 1
    assert foreign.read_bytes() == before


def make_foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()
    path.chmod(0o600)


# --- once and dry run


async def test_once_fails_when_any_database_failed_and_sweeps_the_others(make: MakeStore, tmp_path: Path) -> None:
    foreign, good = tmp_path / "foreign.db", await make("good.db", 3)
    foreign.write_bytes(b"not a database " * 100)
    foreign.chmod(0o600)
    done = run_once("--db", foreign, "--db", good, "--once")
    assert done.returncode == 1
    assert f"ERROR {foreign}: the sweep failed (1 in a row): the store foreign.db is not a database file" in done.stderr
    assert "Traceback" not in done.stderr
    assert count_entries(good) == 1


async def test_once_leaves_no_file_beside_the_database_behind(make: MakeStore) -> None:
    path = await make("a.db", 200)
    assert run_once("--db", path, "--once").returncode == 0
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600


def test_once_without_a_database_says_so_and_makes_none(tmp_path: Path) -> None:
    done = run_once("--db", tmp_path / "none.db", "--once")
    assert done.returncode == 0
    assert "none.db: there is no such file; it will be swept when it is there" in done.stderr
    assert list(tmp_path.iterdir()) == []


async def test_a_link_is_not_followed(make: MakeStore, tmp_path: Path) -> None:  # C95
    target = await make("a.db", 3)
    link = tmp_path / "link.db"
    link.symlink_to(target)
    done = run_once("--db", link, "--once")
    assert done.returncode == 1
    assert "link.db is a symbolic link" in done.stderr
    assert count_entries(target) == 4


async def test_a_dry_run_counts_and_writes_nothing(make: MakeStore) -> None:
    path = await make("a.db", 12)
    before = path.read_bytes()
    done = run_once("--db", path, "--dry-run", "--log-format", "json")
    assert done.returncode == 0
    line = json.loads(done.stderr)
    assert line["message"] == f"{path}: would delete 12 entries (1,200 bytes)"
    assert (line["entries"], line["bytes"], line["batches"], line["dry_run"]) == (12, 1_200, 0, True)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# --- log lines


async def test_json_lines_carry_time_level_database_and_report(make: MakeStore, tmp_path: Path) -> None:
    path = await make("ä\nb.db", 120)
    started = datetime.now(UTC)
    done = run_once("--db", path, "--db", tmp_path / "none.db", "--once", "--log-format", "json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [set(line) for line in lines] == [
        {"time", "level", "logger", "message", "db"}
        | {"entries", "bytes", "batches", "given_back", "wal_bytes", "seconds", "dry_run"},
        {"time", "level", "logger", "message", "db"},
    ]
    report = lines[0]
    assert (report["level"], report["db"], report["entries"], report["bytes"]) == ("INFO", str(path), 120, 12_000)
    assert (report["wal_bytes"], report["dry_run"]) == (0, False)
    when = datetime.fromisoformat(report["time"])
    assert when.utcoffset() == timedelta(0)
    assert started - timedelta(seconds=1) <= when <= datetime.now(UTC)


async def test_a_failure_in_json_is_one_line_with_its_traceback(tmp_path: Path) -> None:
    make_foreign(tmp_path / "foreign.db")
    done = run_once("--db", tmp_path / "foreign.db", "--once", "--log-format", "json")
    assert done.returncode == 1
    line = json.loads(done.stderr)
    assert (line["level"], line["error"], line["failures_in_a_row"]) == ("ERROR", "foreign_database", 1)
    assert line["traceback"].startswith("Traceback (most recent call last):\n")


async def test_text_lines_start_with_the_time_in_utc(make: MakeStore) -> None:
    done = run_once("--db", await make("a.db", 1), "--once", TZ="America/Los_Angeles")
    (line,) = done.stderr.splitlines()
    when = datetime.fromisoformat(line.split(" ")[0])
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=5)


# --- the command line


async def test_every_option_can_be_given_by_its_variable(make: MakeStore) -> None:
    a, b = await make("a.db", 3), await make("b.db", 5)
    done = run_once(
        SCRATCH_DB=f"{a}:{b}",
        SCRATCH_SWEEPER_ONCE="1",
        SCRATCH_SWEEPER_LOG_FORMAT="json",
        SCRATCH_SWEEPER_BATCH="1",
        SCRATCH_SWEEPER_PASS_TIMEOUT="60",
    )
    assert done.returncode == 0
    reports = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(report["db"], report["entries"]) for report in reports] == [(str(a), 3), (str(b), 5)]
    assert reports[0]["batches"] >= 3


def test_help_names_every_option_with_its_variable_and_shows_examples() -> None:
    result = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Examples:\n    scratch-sweeper --db scratch.db\n    scratch-sweeper --db a.db --db b.db" in result.output
    options = [one for one in main.params if isinstance(one, click.Option) and one.name != "version"]
    assert len(options) == 8
    for option in options:
        assert option.opts[0] in result.output
        assert option.help
        assert isinstance(option.envvar, str)
        assert option.envvar.startswith("SCRATCH_")
        assert option.envvar in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing option '--db'"),
        (["--db", "a.db", "--interval", "0"], "--interval"),
        (["--db", "a.db", "--interval", "nan"], "interval must be more than 0 seconds"),
        (["--db", "a.db", "--interval", "soon"], "--interval"),
        (["--db", "a.db", "--batch", "0"], "--batch"),
        (["--db", "a.db", "--pass-timeout", "-1"], "--pass-timeout"),
        (["--db", "a.db", "--log-format", "xml"], "--log-format"),
        (["--db", "a.db", "--log-level", "loud"], "--log-level"),
        (["--db", "."], "is a directory"),
        (["--db", "a.db", "--forever"], "--forever"),
        (["--db", "a.db", "now"], "unexpected extra argument"),
    ],
)
def test_misuse_is_told_and_exits_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(main, arguments, env={name: None for name in os.environ if name.startswith("SCRATCH_")})
    assert result.exit_code == 2
    assert says in result.output
