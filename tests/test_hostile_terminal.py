"""No raw control byte reaches a terminal, whatever is stored, typed, named or wrong; in a pipe ``--json`` is JSON."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratch import Observation, ScratchStore, SpillPolicy
from scratch.cli.main import main
from scratch.cli.session import EXIT_FAILED, EXIT_MISUSE, EXIT_OK
from scratch.sweeper import daemon
from tests.hostile_support import NASTY, TEXTS, UNHEALTHY
from tests.support import cli_commands

# All of C0 but the newline and the tab, DEL, C1, and what turns the direction of writing.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
WORST = f"{NASTY}\x9d0;x\x9c\x1bP\x1b\\\x1b[31m"
HOSTILE = TEXTS | st.sampled_from([WORST, "\x1b[31mred", "a\tb\nc\rd"])
ALL = SpillPolicy(threshold_bytes=0, stub_must_be_smaller=False, internal_verbs=frozenset())


def bounded(examples: int) -> settings:
    """So many examples; more in the profile ``soak``."""
    more = max(1, settings().max_examples // 1_000)
    return settings(max_examples=examples * more, deadline=None, suppress_health_check=UNHEALTHY)


class Screen(io.TextIOWrapper):
    """A stream that says that it is a terminal, or a pipe."""

    def __init__(self, content: bytes, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", errors="strict")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def as_typed(argument: str) -> str:
    """An argument as the system hands it over: no NUL, and what is no text in the form of os.fsdecode."""
    return os.fsdecode(argument.replace("\0", "").encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Typed:
    code: int
    output: str
    errors: str


class Typist:
    """Types commands at one store, in this process, through the function that the installed command calls."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.patch = patch

    def __call__(
        self, *arguments: str, stdin: bytes = b"", terminal: bool = True, command: Callable[[], Any] = main
    ) -> Typed:
        output, errors = Screen(b"", terminal=terminal), Screen(b"", terminal=terminal)
        with self.patch.context() as patch:
            for name in ("scratch", None):  # what the command sets up for its process shall not stay
                patch.setattr(logging.getLogger(name), "handlers", [])
            patch.setattr(sys, "stdin", Screen(stdin, terminal=False))
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", errors)
            patch.setattr(sys, "argv", ["scratch", *map(as_typed, arguments)])
            patch.setenv("SCRATCH_DB", str(self.path))
            patch.setenv("TERM", "dumb")  # no styles: every escape character is somebody else's
            try:
                code = command()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else EXIT_OK
        return Typed(code, output.text(), errors.text())


@pytest.fixture
def typist(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typist]:
    yield Typist(path, monkeypatch)
    assert Typist(path, monkeypatch)("doctor").output.endswith("no problems\n")


def fill(path: Path, content: str | bytes, tool: str, note: str) -> str:
    """A run with a result, a note and an artifact; returns the handle."""

    async def work() -> str:
        async with ScratchStore.open(path, policy=ALL) as store:
            await store.delete_run("run")
            run = await store.run("run", agent_id="agent")
            captured = await run.capture(Observation(content or "x", tool=tool, tool_class="query"))
            await run.write("note", note)
            await run.write_artifact("artifact.md", content)
            return captured.handle or ""

    return asyncio.run(work())


def rename(path: Path, key: str) -> None:
    """Give the note, its agent and its run a name that only another program can have written."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("DELETE FROM runs WHERE run_id NOT IN ('run')")
        connection.execute("DELETE FROM run_agents WHERE run_id NOT IN ('run')")
        connection.execute("INSERT INTO agents VALUES (?) ON CONFLICT DO NOTHING", (key,))
        connection.execute("INSERT INTO runs VALUES (?, ?, 0, NULL, 0) ON CONFLICT DO NOTHING", (key, key))
        connection.execute("INSERT INTO run_agents VALUES (?, ?), ('run', ?) ON CONFLICT DO NOTHING", (key, key, key))
        connection.execute("UPDATE scratch_entries SET agent_id = ?, key = ? WHERE kind = 'note'", (key, key))


def commands(handle: str, odd: str, folder: Path) -> list[tuple[str, ...]]:
    """What a person can type, with something hostile wherever something can be said."""
    return [
        ("list", "run"),
        ("list", odd),
        ("runs",),
        ("show", "run", handle),
        ("show", "run", "note"),
        ("show", "run", odd),
        ("show", odd, odd, "--agent", odd),
        ("find", "run", handle, odd),
        ("find", "run", "artifact.md", "e"),
        ("find", "run", odd, odd),
        ("note", "run", odd, odd),
        ("note", "run", "n", odd, "--agent", odd, "--if-version", "3"),
        ("put", "--run", "run", "--tool", odd),
        ("put", "--run", odd),
        ("rm", "run", odd),
        ("rm", "run", handle, "note", "--dry-run"),
        ("rm", odd, "--all"),
        ("stats",),
        ("sweep", "--dry-run"),
        ("doctor",),
        ("backup", odd),
        ("backup", str(folder / odd.replace("/", "")[:40])),
        ("export", "run", "--to", str(folder / "out" / odd.replace("/", "")[:40]), "--all", "--dry-run"),
        ("export", odd, "--to", odd),
        ("explore", handle, "head"),
        ("explore", handle, "schema"),
        ("explore", handle, "read"),
        ("explore", handle, "grep", odd),
        ("explore", handle, "get_in", odd),
        ("explore", handle, "iterate_over", "$", odd),
        ("explore", handle, "read_handle", "--match", odd),
        ("explore", "--run", "run", odd, "head"),
        ("explore", handle, odd),
        ("tools", "--prefix", odd),
        ("tokens", "count", odd),
        ("--db", odd, "list", "run"),
        ("--db", str(folder / "no" / odd.replace("/", "")[:40]), "stats"),
        (odd,),
        ("list", f"--{odd}"),
    ]


def assert_harmless(typist: Typist, arguments: tuple[str, ...], stdin: bytes) -> None:
    typed = typist(*arguments, stdin=stdin)
    assert not CONTROL.search(typed.output + typed.errors), (arguments, typed)
    assert typed.code in {EXIT_OK, EXIT_FAILED, EXIT_MISUSE}
    assert "unexpected: " not in typed.errors, (arguments, typed)


def test_no_command_sends_a_control_byte(typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handle = fill(typist.path, WORST, WORST, WORST)
    for arguments in commands(handle, WORST, tmp_path):
        assert_harmless(typist, arguments, WORST.encode("utf-8", "replace"))


@bounded(12)
@given(content=HOSTILE | st.binary(max_size=20), odd=HOSTILE, data=st.data())
def test_whatever_is_stored_or_typed_sends_no_control_byte(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes, odd: str, data: st.DataObject
) -> None:
    monkeypatch.chdir(tmp_path)
    handle = fill(typist.path, content, odd, odd)
    typed = st.sampled_from(commands(handle, odd[:200], tmp_path))
    for arguments in data.draw(st.lists(typed, min_size=6, max_size=6)):
        assert_harmless(typist, arguments, odd.encode("utf-8", "surrogatepass"))


@bounded(8)
@given(key=HOSTILE.map(lambda text: "".join(one for one in text if not "\ud800" <= one <= "\udfff")[:60] or "\x1b"))
def test_names_that_another_program_wrote_are_shown_with_escapes(typist: Typist, tmp_path: Path, key: str) -> None:
    fill(typist.path, "content", "tool", "note")
    rename(typist.path, key)
    for arguments in (
        ("list", "run"),
        ("runs",),
        ("rm", "run", key, "--dry-run"),
        ("show", "run", key),
        ("export", "run", "--to", str(tmp_path / "out"), "--all", "--dry-run"),
        ("doctor",),
    ):
        for terminal in (True, False):
            typed = typist(*arguments, terminal=terminal)
            assert not CONTROL.search(typed.output + typed.errors), (arguments, typed)
    assert key in {entry["key"] for entry in json.loads(typist("list", "run", "--json").output)}
    assert key in {run["run_id"] for run in json.loads(typist("runs", "--json").output)}


@bounded(8)
@given(content=HOSTILE | st.binary(max_size=20), odd=HOSTILE)
def test_json_in_a_pipe_is_json_with_every_value_whole(
    typist: Typist, tmp_path: Path, content: str | bytes, odd: str
) -> None:
    handle = fill(typist.path, content, odd, odd)

    def told(*arguments: str) -> Any:
        typed = typist(*arguments, terminal=False)
        assert typed.code == EXIT_OK, typed
        assert not CONTROL.search(typed.output), (arguments, typed)
        return json.loads(typed.output)

    listed = told("list", "run", "--json")
    assert [entry["key"] for entry in listed] == [handle, "note", "artifact.md"]
    assert listed[0]["source_tool"] == (odd[:256].encode("utf-8", "replace").decode() or None)
    assert [run["run_id"] for run in told("runs", "--json")] == ["run"]
    assert told("find", "run", handle, "e", "--json")["complete"] in {True, False}
    exported = told("export", "run", "--to", str(tmp_path / "out"), "--all", "--dry-run", "--json")
    assert [file["key"] for file in exported["files"]][-1] == "artifact.md"
    for name in ("stats", "doctor", "sweep"):
        assert told(name, "--json")
    assert told("tools", "--prefix", odd)


def test_every_command_is_typed_here(tmp_path: Path) -> None:
    typed = {arguments[0] for arguments in commands("h", "o", tmp_path)}
    assert set(cli_commands()) - typed == {"demo"}  # which takes nothing from anybody; tests/test_terminal.py has it


@pytest.mark.parametrize("more", [(), ("--log-format", "json")])
def test_the_sweepers_log_lines_are_safe_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    typist = Typist(tmp_path / "unused", monkeypatch)
    missing = str(tmp_path / "\x1b[2J\x9b\u202e\n.db")
    typed = typist("--db", missing, "--once", *more, command=daemon.main)
    assert typed.errors
    assert not CONTROL.search(typed.output + typed.errors), typed
    folder = tmp_path / "\x1b[2J"
    folder.mkdir()
    (folder / "x.db").write_bytes(b"no database" * 200)
    typed = typist("--db", str(folder / "x.db"), "--once", *more, command=daemon.main)
    assert "not a database" in typed.errors
    assert not CONTROL.search(typed.output + typed.errors), typed
