"""The commands and the daemon where something is wrong: one clear line, and the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from scratch.cli.main import cli
from scratch.database import connection as opening
from tests.faults_support import LARGE, filled, locked, open_kit, read_only_disk, small_disk

ROOT = Path(__file__).resolve().parent.parent
READING = (
    "list run-42",
    "runs",
    "show run-42 note",
    "find run-42 plan.md plan",
    "stats",
    "doctor",
    "sweep --dry-run",
    "explore --run run-42 plan.md head",
    "export run-42 --to {folder}/out --dry-run",
    "backup {folder}/copy.db",
)
WRITING = ("sweep", "put --run run-42", "note run-42 key value", "rm run-42 note-2")


def fails(path: Path, commands: Sequence[str], folder: Path) -> None:
    """Each ends with exit code 1 and one clear line; what was to be stored comes out again."""
    for command in commands:
        done = CliRunner(env={"SCRATCH_DB": str(path)}).invoke(cli, command.format(folder=folder).split(), input=LARGE)
        assert isinstance(done.exception, SystemExit), (command, done.exc_info)
        assert done.exit_code == 1, command
        assert done.stderr.startswith("Error: "), (command, done.stderr)
        assert done.stderr.count("\n") == 1, (command, done.stderr)
        assert path.name in done.stderr, (command, done.stderr)
        assert done.stdout == (LARGE if command.startswith("put") else ""), command


def succeed(path: Path, commands: Sequence[str], folder: Path) -> None:
    for command in commands:
        done = CliRunner(env={"SCRATCH_DB": str(path)}).invoke(cli, command.format(folder=folder).split(), input=LARGE)
        assert done.exit_code == 0, (command, done.output)


def make_store(path: Path) -> None:
    async def make() -> None:
        async with open_kit(path, time.time):
            pass

    asyncio.run(make())


@pytest.mark.parametrize("kind", ["foreign", "newer", "text", "a link", "missing below a file"])
def test_every_command_says_in_one_line_why_a_file_is_refused(tmp_path: Path, path: Path, kind: str) -> None:
    match kind:
        case "foreign":
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE theirs (x)")
        case "newer":
            make_store(path)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA user_version=99")
        case "text":
            path.write_text("no database\n" * 1_000)
        case "a link":
            make_store(tmp_path / "real.db")
            path.symlink_to(tmp_path / "real.db")
        case _:
            path.write_text("no folder")
            path = path / "scratch.db"
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    for one in before:
        if not one.is_symlink():
            one.chmod(0o600)
    fails(path, READING + WRITING, tmp_path)
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == before


@pytest.mark.parametrize("fault", ["locked", "full", "read-only"])
def test_commands_that_read_go_on_where_those_that_write_fail_in_one_line(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.01)
    with ExitStack() as stack:
        if fault == "locked":
            path = tmp_path / "scratch.db"
            make_store(path)
            stack.enter_context(locked(path))
        else:
            disk = stack.enter_context(small_disk(tmp_path / "disk"))
            path = disk / "scratch.db"
            make_store(path)
            stack.enter_context(filled(disk) if fault == "full" else read_only_disk(disk))
        succeed(path, READING, tmp_path)
        (tmp_path / "copy.db").unlink()
        fails(path, WRITING, tmp_path)
    if fault == "locked":
        succeed(path, (*READING, *WRITING), tmp_path)


# --- the daemon


def test_the_daemon_tells_each_fault_in_a_line_and_sweeps_the_others(tmp_path: Path) -> None:
    good, newer, damaged, foreign = (tmp_path / f"{name}.db" for name in ("good", "newer", "damaged", "foreign"))
    for path in (good, newer, damaged):
        make_store(path)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version=99")
    with damaged.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xff" * 8_192)
    foreign.write_bytes(b"theirs" * 1_000)
    foreign.chmod(0o600)
    paths = [newer, damaged, foreign, tmp_path / "none.db", good]
    command = [sys.executable, "-m", "scratch.sweeper.daemon", "--once", "--log-format", "json"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SCRATCH_DB": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    errors = {Path(line["db"]).name: line["error"] for line in lines if "error" in line}
    assert errors == {"newer.db": "schema_too_new", "foreign.db": "foreign_database"}
    assert [line["entries"] for line in lines if line.get("db") == str(good)] == [3]
    (aside,) = [line["message"] for line in lines if "damaged-1" in line["message"]]
    assert "damaged.db is damaged: set aside as damaged.db.damaged-1" in aside
    assert foreign.read_bytes() == b"theirs" * 1_000
