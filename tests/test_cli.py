"""The commands, through click's runner and through real pipes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from scratch import Observation, RunScratch, ScratchStore, SpillPolicy
from scratch.cli import demo, writing
from scratch.cli.main import cli
from scratch.cli.render import duration
from scratch.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISUSE, EXIT_OK, default_path
from scratch.visible import escape, escape_block
from tests.support import Clock, add_expired, cli_commands, count_entries, unhurried

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = cli_commands()
COMMAND = [sys.executable, "-m", "scratch.cli.main"]
READING = ("list", "runs", "show", "find", "stats", "doctor")
CONTROL = "\x1b[2J\x1b]0;x\x07 \x9b31m \x7f \u202eabc\u2066 \r\n"
SMALL = SpillPolicy(threshold_bytes=0, stub_must_be_smaller=False)


class Terminal:
    """Types commands at one store, in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result:
        environment = {"SCRATCH_DB": str(self.path), "FORCE_COLOR": "1", "COLUMNS": "20"}
        result = CliRunner(env=environment).invoke(cli, list(arguments), input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return result

    def put(self, content: bytes, *arguments: str) -> str:
        """Store a result in run-42; return its handle."""
        result = self("put", "--run", "run-42", *arguments, stdin=content)
        assert result.exit_code == EXIT_OK, result.stderr
        return str(json.loads(result.stdout)["handle"])

    def write(self, work: Callable[[ScratchStore], Awaitable[Any]], clock: Callable[[], float] = time.time) -> Any:
        """Let an agent do something in the store."""

        async def agent() -> Any:
            async with ScratchStore.open(self.path, policy=SMALL, clock=clock) as store:
                return await work(store)

        return asyncio.run(agent())

    def capture(self, content: object, tool: str = "run_query", agent: str = "researcher") -> str:
        """Let an agent capture a result in run-42; return its handle."""

        async def work(store: ScratchStore) -> str | None:
            run = await store.run("run-42", agent_id=agent)
            return (await run.capture(Observation(content, tool=tool, tool_class="query"))).handle

        handle = self.write(work)
        assert isinstance(handle, str)
        return handle

    def process(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Type a command in a process of its own, with pipes."""
        return subprocess.run(
            [*COMMAND, *arguments], input=stdin, capture_output=True, env=self.environment(env), timeout=60, check=False
        )

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "PYTHONIOENCODING"}}
        return kept | {"PYTHONPATH": str(ROOT), "SCRATCH_DB": str(self.path), "FORCE_COLOR": "1"} | (more or {})


@pytest.fixture
def terminal(path: Path) -> Terminal:
    return Terminal(path)


@pytest.fixture(autouse=True)
def soundness(path: Path, request: pytest.FixtureRequest) -> Any:
    """Whatever the commands did, the store is sound afterwards (but where a test damaged it)."""
    yield
    if path.is_file() and "damage" not in request.node.name and "orphan" not in request.node.name:
        assert Terminal(path)("doctor").stdout.endswith("\nno problems\n")


def folder_state(folder: Path) -> dict[str, tuple[int, int, str]]:
    return {
        file.name: (file.stat().st_mtime_ns, file.stat().st_mode, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in folder.iterdir()
    }


# --- help


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_every_command_has_help_with_an_example(name: str | None) -> None:
    command: click.Command = cli if name is None else COMMANDS[name]
    help_text = CliRunner().invoke(cli, [*([name] if name else []), "--help"]).stdout
    assert command.help
    examples = help_text.partition("\n  Examples:\n")[2]
    assert re.search(rf"^    .*\bscratch {name or ''}", examples, re.MULTILINE)
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_example_in_the_help_can_be_parsed(name: str) -> None:
    epilog = COMMANDS[name].epilog or ""
    lines = [line.strip() for line in epilog.splitlines() if "scratch" in line]
    assert lines
    for line in lines:
        for part in re.split(r"\s[|<>&#]+\s?", line):
            words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", part)]
            if not words or words[0] != "scratch":
                continue
            arguments = words[3:] if words[1] == "--db" else words[1:]
            COMMANDS[arguments[0]].make_context(arguments[0], arguments[1:], obj=Path("x"))


def test_help_touches_no_disk(tmp_path: Path) -> None:
    result = CliRunner(env={"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}).invoke(cli, ["list", "--help"])
    assert result.exit_code == EXIT_OK
    assert list(tmp_path.iterdir()) == []


def test_the_store_lies_in_the_users_state_folder_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path().name == "scratch.db"
    assert "run-scratch" in str(default_path())
    there, elsewhere = tmp_path / "there.db", tmp_path / "elsewhere.db"
    runner = CliRunner(env={"SCRATCH_DB": str(there)})
    assert runner.invoke(cli, ["note", "r", "k", "v"]).exit_code == EXIT_OK
    assert runner.invoke(cli, ["--db", str(elsewhere), "note", "r", "k", "v"]).exit_code == EXIT_OK
    assert there.exists()
    assert elsewhere.exists()


# --- list and runs


def test_a_pipe_gets_whole_lines_without_colour_or_cuts(terminal: Terminal) -> None:  # C199
    key, tool = "k" * 256, "a tool with a name of some length"
    terminal("note", "run-42", key, "value")
    handle = terminal.put(b"first\nsecond\tthird\n" + b"x" * 900, "--tool", tool)
    result = terminal("list", "run-42")  # with FORCE_COLOR and COLUMNS=20
    assert "\x1b" not in result.stdout
    note, stored = (line.split("\t") for line in result.stdout.splitlines())
    assert note[:6] == ["note", key, "terminal", "5", "2", ""]
    assert stored[:4] == ["handle", handle, "terminal", "919"]
    assert stored[5] == tool
    assert 0 <= int(stored[6]) < 60
    assert 3_500 < int(stored[7]) <= 3_600
    assert stored[8] == "first\\nsecond\\tthird\\n" + "x" * 900


def test_json_is_never_cut(terminal: Terminal) -> None:  # C201
    handle = terminal.put(b"y" * 1_000, "--tool", "t" * 200)
    (entry,) = json.loads(terminal("list", "run-42", "--json").stdout)
    assert (entry["key"], entry["source_tool"], entry["preview"]) == (handle, "t" * 200, "y" * 1_000)
    assert entry["size"] == 1_000
    assert entry["expires_at"] - entry["created_at"] == 3_600_000


def test_expired_entries_are_not_there_swept_or_not(terminal: Terminal) -> None:  # C101
    terminal.put(b"now")

    async def long_ago(store: ScratchStore) -> None:
        await (await store.run("run-42", agent_id="researcher")).write("gone", "x")

    terminal.write(long_ago, clock=Clock(time.time() - 4_000))
    assert [line.split("\t")[0] for line in terminal("list", "run-42").stdout.splitlines()] == ["handle"]
    shown = terminal("show", "run-42", "gone")
    assert shown.exit_code == EXIT_FAILED
    assert "unknown or has expired" in shown.stderr  # C103
    assert terminal("sweep", "--dry-run").stdout == "would delete 1 expired entry (1 bytes)\n"
    assert terminal("sweep").stdout.startswith("deleted 1 expired entry (1 bytes); ")
    assert terminal("sweep", "--json").stdout.startswith("{\n")


def test_runs_are_listed_with_their_agents_and_what_is_live(terminal: Terminal) -> None:
    terminal("note", "run-1", "k", "12345")
    terminal("note", "run-1", "k", "1", "--agent", "other")
    terminal.write(lambda store: store.complete_run("run-1"))
    fields = terminal("runs").stdout.rstrip("\n").split("\t")
    assert [fields[0], fields[1], fields[2], fields[5], fields[6]] == ["run-1", "terminal", "other,terminal", "2", "6"]
    assert int(fields[4]) < 60
    (run,) = json.loads(terminal("runs", "--json").stdout)
    assert run["agents"] == ["other", "terminal"]


def test_an_empty_run_and_an_empty_store_say_so_beside_the_output(terminal: Terminal) -> None:  # C51
    terminal.write(lambda store: store.run("run-42", agent_id="a"))
    result = terminal("list", "run-42")
    assert (result.exit_code, result.stdout) == (EXIT_OK, "")
    assert result.stderr == "nothing is live in run 'run-42'\n"
    assert terminal("list", "run-42", "--json").stdout == "[]\n"
    terminal("rm", "run-42", "--all")
    assert terminal("runs").stderr == "there is no run in this store\n"


# --- content is data


@pytest.mark.parametrize("text", ["[/red]", "[/]", "[bold]x", "[/a0/tests]", ":smile:"])
def test_markup_is_shown_as_it_is(terminal: Terminal, text: str) -> None:  # C197, C198
    terminal("note", "run-42", text, text)
    handle = terminal.put(text.encode(), "--tool", text)
    lines = [line.split("\t") for line in terminal("list", "run-42").stdout.splitlines()]
    assert [(fields[1], fields[5], fields[8]) for fields in lines] == [(text, "", text), (handle, text, text)]
    assert terminal("show", "run-42", text).stdout == text + "\n"
    assert repr(text) in terminal("show", "run-42", text + "?").stderr.replace("?", "")
    assert f"{text}" in terminal("find", "run-42", handle, text).stdout


def _texts(value: object) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_control_bytes_are_escaped_and_raw_is_exact(terminal: Terminal) -> None:  # C203
    handle = terminal.put(CONTROL.encode(), "--tool", "\x1b]0;tool\x07\n")
    visible = r"\x1b[2J\x1b]0;x\x07 \x9b31m \x7f \u202eabc\u2066 \r"
    assert terminal("show", "run-42", handle).stdout == visible + "\n"
    listed = terminal("list", "run-42").stdout
    assert listed.count("\n") == 1
    assert listed.rstrip("\n").split("\t")[5:9:3] == [r"\x1b]0;tool\x07\n", visible + r"\n"]
    found = terminal("find", "run-42", handle, "abc").stdout
    assert found == f"0\t{len(CONTROL.encode())}\t{CONTROL.encode().index(b'abc')}\t{visible}\\n\n"
    for result in (terminal("list", "run-42", "--json"), terminal("find", "run-42", handle, "abc", "--json")):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", result.stdout)
        assert CONTROL in _texts(json.loads(result.stdout))
    assert terminal("show", "run-42", handle, "--raw").stdout_bytes == CONTROL.encode()


def test_the_stub_is_json_with_escapes_for_what_a_terminal_obeys(terminal: Terminal) -> None:
    result = terminal("put", "--run", "run-42", stdin=CONTROL.encode())
    assert json.loads(result.stdout)["preview"] == CONTROL
    assert result.stdout.count("\n") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", result.stdout)


@pytest.mark.parametrize("content", ["a\ud835b" * 2_000, b"\xb2".decode("utf-8", "surrogateescape") + "x"])
def test_lone_surrogates_are_shown_and_come_back(terminal: Terminal, content: str) -> None:  # C63, C65, C66
    handle = terminal.capture(content)
    escaped = content.replace("\ud835", r"\ud835").replace("\udcb2", r"\udcb2")
    assert terminal("show", "run-42", handle).stdout == escaped + "\n"
    assert terminal("show", "run-42", handle, "--raw").stdout_bytes == content.encode("utf-8", "surrogatepass")
    assert terminal("find", "run-42", handle, content[1], "--max-windows", "1").exit_code == EXIT_OK
    found = json.loads(terminal("find", "run-42", handle, content[-1], "--context", "1", "--json").stdout)
    assert found["windows"][0]["text"][0] in content
    assert terminal("list", "run-42").exit_code == EXIT_OK
    assert terminal("list", "run-42", "--json").exit_code == EXIT_OK


def test_nul_and_what_stands_after_it_is_shown(terminal: Terminal) -> None:  # C72
    handle = terminal.put(b"ab\0cd")
    assert terminal("show", "run-42", handle).stdout == "ab\\x00cd\n"
    assert terminal("show", "run-42", handle, "--offset", "3", "--raw").stdout_bytes == b"cd"


@given(st.text(st.characters(codec=None), max_size=40))
def test_no_text_controls_a_terminal(text: str) -> None:
    for shown, kept in ((escape(text), ""), (escape_block(text), "\n\t")):
        assert all(c.isprintable() or c in kept or ord(c) > 0x9F for c in shown)
        assert not re.search("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", shown)
        assert shown.encode("utf-8") or not text
    assert len(escape(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m"), (7_500, "2h 5m"), (273_600, "3d 4h")]
)
def test_durations_have_one_unit_or_two(seconds: int, shown: str) -> None:
    assert duration(seconds * 1000 + 999) == (shown if seconds > 0 else "0s")


# --- show


def test_a_range_never_cuts_a_character(terminal: Terminal) -> None:  # C4
    handle = terminal.put("─".encode() * 100)
    result = terminal("show", "run-42", handle, "--length", "200")
    assert result.stdout == "─" * 66 + "\n"
    assert result.stderr == "bytes [0, 198) of 300; go on with --offset 198\n"  # C15
    assert terminal("show", "run-42", handle, "--offset", "198").stdout == "─" * 34 + "\n"
    assert terminal("show", "run-42", handle, "--offset", "199", "--length", "1").stdout == "─\n"


@pytest.mark.parametrize("kind", ["handle", "note"])
@pytest.mark.parametrize("content", ["aé─😀" * 10_000, "", "x" * 40_000, "a\ud835\n" * 8_000])
def test_all_of_it_is_shown_and_raw_ranges_are_exact(terminal: Terminal, content: str, kind: str) -> None:  # C9
    data = content.encode("utf-8", "surrogatepass")
    if kind == "note":
        key = "n"

        async def write(store: ScratchStore) -> None:
            await (await store.run("run-42", agent_id="a")).write(key, content)

        terminal.write(write)
    elif content:
        key = terminal.capture(content)
    else:
        pytest.fail("an empty result is kept in context") if terminal("put", "--run", "r").exit_code == 0 else None
        return
    shown = terminal("show", "run-42", key)
    assert shown.stdout == (escape_block(content) + "\n" * (not content.endswith("\n")) if content else "")
    assert shown.stderr == ("" if content else "the content is empty (0 bytes)\n")  # C50
    assert terminal("show", "run-42", key, "--raw").stdout_bytes == data
    for offset in (0, 1, 2, 3, 5, 32_767, len(data) - 1, len(data), len(data) + 5, 2**63 - 1):
        for length in (1, 2, 3, 4, 32_768, 32_770):
            arguments = ("--raw", "--offset", str(max(0, offset)), "--length", str(length))
            result = terminal("show", "run-42", key, *arguments)
            assert result.stdout_bytes == data[max(0, offset) : max(0, offset) + length]


def test_what_is_not_text_comes_as_base64_that_can_be_joined(terminal: Terminal) -> None:  # C58
    data = bytes(range(256)) * 1_000
    handle = terminal.put(data)
    result = terminal("show", "run-42", handle)
    assert result.stderr == "this is not text: shown as base64; --raw gives the bytes\n"
    assert max(len(line) for line in result.stdout.splitlines()) == 76
    decoded = subprocess.run(["base64", "-d"], input=result.stdout_bytes, capture_output=True, check=True).stdout
    assert decoded == data
    piece = terminal("show", "run-42", handle, "--offset", "3", "--length", "5")
    assert piece.stdout == "AwQFBgc=\n"
    assert piece.stderr.endswith("bytes [3, 8) of 256000; go on with --offset 8\n")


def test_raw_is_byte_exact_in_a_real_pipe(terminal: Terminal) -> None:  # C202
    data = b"\r\n\x00\xff\xfe\x1b[2J" + os.urandom(100_000)
    stored = terminal.process("put", "--run", "run-42", stdin=data)
    assert stored.returncode == EXIT_OK
    assert terminal.process("show", "run-42", json.loads(stored.stdout)["handle"], "--raw").stdout == data


def test_an_offset_past_the_end_says_where_the_end_is(terminal: Terminal) -> None:
    handle = terminal.put(b"12345")
    result = terminal("show", "run-42", handle, "--offset", "5")
    assert (result.exit_code, result.stdout) == (EXIT_OK, "")
    assert result.stderr == "nothing there: the content ends at byte 5\n"


# --- find


def test_matches_come_with_their_byte_offsets(terminal: Terminal) -> None:  # C13
    handle = terminal.put(b"a" * 60_000 + b"NEEDLE" + b"b" * 60_000)
    result = terminal("find", "run-42", handle, "needle", "--ignore-case", "--context", "3")
    assert result.stdout == "59997\t60009\t60000\taaaNEEDLEbbb\n"
    assert result.stderr == "1 match in the 120,006 bytes searched\n"
    assert terminal("show", "run-42", handle, "--offset", "60000", "--length", "6").stdout == "NEEDLE\n"
    nothing = terminal("find", "run-42", handle, "needle")
    assert (nothing.exit_code, nothing.stdout) == (EXIT_OK, "")
    assert nothing.stderr == "0 matches in the 120,006 bytes searched\n"


def test_context_never_cuts_a_character(terminal: Terminal) -> None:  # C5
    handle = terminal.put("─x─".encode())
    assert terminal("find", "run-42", handle, "x", "--context", "1").stdout == "3\t4\t3\tx\n"
    failed = terminal.process("find", "run-42", "r_222222222222", "x")  # in a pipe
    assert failed.returncode == EXIT_FAILED


def test_what_is_not_shown_is_counted_and_can_be_gone_on_with(terminal: Terminal) -> None:
    handle = terminal.put(b"x..........." * 5)
    result = terminal("find", "run-42", handle, "x", "--context", "0", "--max-windows", "2")
    assert [line.split("\t")[2] for line in result.stdout.splitlines()] == ["0", "12"]
    assert result.stderr == "5 matches in the 60 bytes searched, 2 shown; go on with --offset 24\n"
    rest = terminal("find", "run-42", handle, "x", "--context", "0", "--offset", "24", "--json")
    assert json.loads(rest.stdout)["total_matches"] == 3
    assert "context was cut to 4096" in terminal("find", "run-42", handle, "x", "--context", "9999").stderr


def test_a_note_is_not_searched(terminal: Terminal) -> None:
    terminal("note", "run-42", "k", "value")
    result = terminal("find", "run-42", "k", "v")
    assert result.exit_code == EXIT_FAILED
    assert "scratch show" in result.stderr


# --- put


@pytest.mark.parametrize("content", [b"x", b"tiny\n", b"z" * 8_192, b"\xff\x00", b'{"a": 1}' * 2_000])
def test_put_stores_always(terminal: Terminal, content: bytes) -> None:
    result = terminal("put", "--run", "run-42", "--tool", "read_handle", "--agent", "me", stdin=content)
    stub = json.loads(result.stdout)
    assert list(stub) == ["handle", "preview", "size", "note"]
    assert stub["size"] == len(content)
    (entry,) = json.loads(terminal("list", "run-42", "--json").stdout)
    assert (entry["key"], entry["agent_id"], entry["source_tool"]) == (stub["handle"], "me", "read_handle")
    assert terminal("show", "run-42", stub["handle"], "--raw").stdout_bytes == content


def test_put_can_say_how_long_it_lives(terminal: Terminal) -> None:
    terminal.put(b"x", "--ttl", "90.5")
    (entry,) = json.loads(terminal("list", "run-42", "--json").stdout)
    assert entry["expires_at"] - entry["created_at"] == 90_500


@pytest.mark.parametrize("ttl", ["0", "-1", "nan", "inf", "1e99", "soon"])
def test_a_bad_ttl_is_misuse_and_stores_nothing(terminal: Terminal, ttl: str) -> None:
    assert terminal("put", "--run", "run-42", "--ttl", ttl, stdin=b"x").exit_code == EXIT_MISUSE
    assert not terminal.path.exists()


def test_what_cannot_be_stored_goes_to_standard_output(terminal: Terminal, tmp_path: Path) -> None:
    data = b"\xff precious \x00\r\n" * 10_000
    file = tmp_path / "file"
    file.write_bytes(b"somebody else's")
    for path in (file, file / "scratch.db", tmp_path):
        result = terminal.process("--db", str(path), "put", "--run", "run-42", stdin=data)
        assert result.returncode == EXIT_FAILED
        assert result.stdout == data
        assert b"Error: not stored: " in result.stderr
        assert b"The input went to standard output" in result.stderr
        assert b"Traceback" not in result.stderr
    assert file.read_bytes() == b"somebody else's"


def test_what_is_too_large_goes_to_standard_output_whole(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:  # C128
    monkeypatch.setattr(writing, "MAX_ENTRY_BYTES", 1_000)
    data = os.urandom(5_000)
    result = terminal("put", "--run", "run-42", stdin=data)
    assert result.exit_code == EXIT_FAILED
    assert result.stdout_bytes == data
    assert result.stderr == "Error: not stored: over 1,000 bytes. The input went to standard output\n"


def test_a_store_that_fails_meanwhile_loses_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_arguments: object) -> None:
        message = "the disk is on fire"
        raise OSError(message)

    monkeypatch.setattr(RunScratch, "_insert", fail)
    result = terminal("put", "--run", "run-42", stdin=b"data\xff")
    assert (result.exit_code, result.stdout_bytes) == (EXIT_FAILED, b"data\xff")


def test_nothing_is_no_result(terminal: Terminal) -> None:
    result = terminal("put", "--run", "run-42")
    assert result.exit_code == EXIT_FAILED
    assert result.stderr == "Error: nothing was stored: standard input was empty\n"
    assert not terminal.path.exists()


# --- notes


def test_a_note_is_written_appended_to_and_read(terminal: Terminal) -> None:
    assert terminal("note", "run-42", "plan", "one\n").stdout == "1\n"
    assert terminal("note", "run-42", "plan", "-", "--append", stdin=b"two\n").stdout == "2\n"
    assert terminal("note", "run-42", "plan", "--append", stdin=b"\xc3\xa9\n").stdout == "3\n"
    assert terminal("show", "run-42", "plan").stdout == "one\ntwo\né\n"
    assert terminal("show", "run-42", "plan", "--offset", "4", "--length", "3").stdout == "two\n"


def test_a_stale_version_is_a_conflict_that_names_the_current_one(terminal: Terminal) -> None:  # C208
    assert terminal("note", "run-42", "plan", "a", "--if-version", "0").stdout == "1\n"
    result = terminal("note", "run-42", "plan", "b", "--if-version", "0")
    assert result.exit_code == EXIT_FAILED
    assert result.stderr == "Error: the note has version 1, not version 0; read it and try again\n"
    assert terminal("show", "run-42", "plan").stdout == "a\n"


def test_a_note_of_bytes_and_one_that_is_too_large(terminal: Terminal) -> None:
    assert terminal("note", "run-42", "bytes", stdin=b"\xff\x00").exit_code == EXIT_OK
    assert terminal("show", "run-42", "bytes", "--raw").stdout_bytes == b"\xff\x00"
    large = terminal("note", "run-42", "large", stdin=b"x" * (1024 * 1024 + 1))
    assert large.exit_code == EXIT_FAILED
    assert "at most 1,048,576 bytes" in large.stderr


def test_arguments_that_are_not_utf8_do_no_harm(terminal: Terminal) -> None:  # C65
    odd = os.fsdecode(b"\xb2")
    assert terminal.process("note", "run-42", "k", odd).returncode == EXIT_OK
    assert terminal("show", "run-42", "k", "--raw").stdout_bytes == b"\xb2"
    for arguments in (("show", "run-42", odd), ("rm", "run-42", odd), ("find", "run-42", odd, odd)):
        result = terminal.process(*arguments)
        assert result.returncode == EXIT_FAILED
        assert rb"'\udcb2'" in result.stderr
    for misused in (("list", odd), ("note", odd, "k", "v"), ("note", "run-42", odd, "v")):
        assert terminal.process(*misused).returncode == EXIT_MISUSE


# --- rm


def test_rm_takes_names_as_they_are(terminal: Terminal) -> None:  # C82, C83, C85
    for run in ("user_auth", "userXauth"):
        terminal("note", run, "k%", "v")
        terminal("note", run, "k1", "v")
    for pattern in ("%", "k_", "*", "k"):
        result = terminal("rm", "user_auth", pattern)
        assert (result.exit_code, result.stdout) == (EXIT_FAILED, "")
    assert terminal("rm", "user_auth", "k%").stdout == "deleted note k% (1 bytes)\n"
    assert count_entries(terminal.path) == 3
    assert terminal("rm", "user_auth", "--all").stdout == "deleted run user_auth: 1 live entry, 1 bytes\n"
    assert count_entries(terminal.path) == 2
    assert terminal("rm", "user_auth", "--all").exit_code == EXIT_FAILED
    assert terminal("rm", "%", "--all").exit_code == EXIT_FAILED
    assert count_entries(terminal.path) == 2


def test_a_dry_run_changes_nothing(terminal: Terminal) -> None:  # C83
    handle = terminal.put(b"12345")
    terminal("note", "run-42", "k", "v")
    before = folder_state(terminal.path.parent)
    would = terminal("rm", "run-42", handle, "k", "--dry-run").stdout
    assert would == f"would delete handle {handle} (5 bytes)\nwould delete note k (1 bytes)\n"
    assert terminal("rm", "run-42", "--all", "--dry-run").stdout.startswith("would delete run run-42: 2 live entries")
    assert terminal("sweep", "--dry-run").exit_code == EXIT_OK
    assert terminal("rm", "run-42", "%", "--dry-run").exit_code == EXIT_FAILED
    assert folder_state(terminal.path.parent) == before


def test_rm_deletes_all_that_is_named_or_nothing(terminal: Terminal) -> None:
    handle = terminal.put(b"12345")
    terminal("note", "run-42", "k", "v", "--agent", "other")
    assert terminal("rm", "run-42", handle, "missing").exit_code == EXIT_FAILED
    assert count_entries(terminal.path) == 2
    result = terminal("rm", "run-42", handle, "k", handle)
    assert result.exit_code == EXIT_OK
    assert count_entries(terminal.path) == 0
    for arguments in ((), ("--all", "k"), ("--all", "--agent", "other")):
        assert terminal("rm", "run-42", *arguments).exit_code == EXIT_MISUSE


def test_the_agent_is_asked_for_only_where_several_have_the_entry(terminal: Terminal) -> None:
    for agent in ("a", "b"):
        terminal("note", "run-42", "both", agent, "--agent", agent)
    terminal("note", "run-42", "one", "1", "--agent", "b")
    assert terminal("show", "run-42", "one").stdout == "1\n"
    for command in ("show", "rm"):
        result = terminal(command, "run-42", "both")
        assert result.exit_code == EXIT_MISUSE
        assert "2 agents of run 'run-42' have 'both': choose one with --agent (a, b)" in result.stderr
    assert terminal("show", "run-42", "both", "--agent", "b").stdout == "b\n"
    assert terminal("rm", "run-42", "both", "--agent", "a").exit_code == EXIT_OK
    assert terminal("show", "run-42", "both").stdout == "b\n"
    missing = terminal("show", "run-42", "one", "--agent", "a")
    assert missing.stderr == "Error: run 'run-42' has no live entry 'one' of agent 'a': it is unknown or has expired\n"


# --- upkeep


def test_stats_are_exact_figures_in_a_pipe(terminal: Terminal) -> None:
    terminal.put(b"x" * 10_000)
    add_expired(terminal.path, 3, size=7)
    figures = {name: int(figure) for name, figure, _ in csv(terminal("stats").stdout)}
    assert figures["live content"] == 10_000
    assert figures["expired entries"] == 3
    assert figures["expired content"] == 21
    assert figures["file"] == terminal.path.stat().st_size
    assert json.loads(terminal("stats", "--json").stdout)["live_bytes"] == 10_000


def csv(text: str) -> list[Sequence[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_the_doctor_finds_orphans_and_a_sweep_removes_them(terminal: Terminal) -> None:  # C123, C127
    terminal.put(b"x")
    with closing(sqlite3.connect(terminal.path)) as connection, connection:
        connection.execute("INSERT INTO scratch_chunks VALUES (77, 0, x'00')")
    result = terminal("doctor")
    assert result.exit_code == EXIT_FAILED
    assert "problem: 1 rows point to a row that is gone" in result.stdout
    assert result.stdout.endswith("\n1 problem\n")
    assert json.loads(terminal("doctor", "--json").stdout)["problems"]
    assert terminal("sweep").exit_code == EXIT_OK
    sound = terminal("doctor")
    assert sound.exit_code == EXIT_OK
    assert re.fullmatch(r"disk: [\d,]+ bytes free where the store lies\nno problems\n", sound.stdout)


def test_the_doctor_sees_who_may_read_the_file(terminal: Terminal) -> None:  # C95
    terminal.put(b"x")
    terminal.path.chmod(0o644)
    assert "problem: others can read the file (mode 644)" in terminal("doctor").stdout
    terminal.path.chmod(0o600)


def test_a_damaged_store_is_reported_and_left_alone_by_who_only_reads(terminal: Terminal, tmp_path: Path) -> None:
    for _ in range(20):
        terminal.put(os.urandom(50_000))
    with terminal.path.open("r+b") as file:
        file.seek(8_192 * 3)
        file.write(b"\xff" * 8_192 * 10)
    before = folder_state(tmp_path)
    doctor = terminal.process("doctor")
    assert doctor.returncode == EXIT_FAILED
    assert b"damaged" in doctor.stdout + doctor.stderr
    for arguments in (("list", "run-42"), ("runs",), ("stats",), ("backup", str(tmp_path / "copy.db"))):
        result = terminal.process(*arguments)
        assert b"Traceback" not in result.stderr
        assert result.returncode in (EXIT_OK, EXIT_FAILED)
    assert folder_state(tmp_path) == before  # C142: no new store, and no copy of half a store


def test_a_damaged_store_is_set_aside_by_who_writes_in_one_line(terminal: Terminal) -> None:  # C142, C167
    terminal.put(os.urandom(100_000))
    with terminal.path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xff" * 8_192 * 8)
    result = terminal.process("put", "--run", "run-42", stdin=b"goes on")
    assert result.returncode == EXIT_OK
    assert b"is damaged: set aside as scratch.db.damaged-1" in result.stderr
    assert result.stderr.count(b"\n") == 1
    assert terminal("doctor").exit_code == EXIT_OK


def test_a_backup_has_what_is_in_the_write_ahead_log(terminal: Terminal, tmp_path: Path) -> None:  # C96, C143
    copy = tmp_path / "copy.db"

    async def while_open(store: ScratchStore) -> bytes:
        await (await store.run("run-42", agent_id="a")).write("newest", "here")
        arguments = [*COMMAND, "backup", str(copy)]
        process = await asyncio.create_subprocess_exec(
            *arguments, env=terminal.environment(), stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0]

    said = terminal.write(while_open)
    assert said.decode() == f"wrote {copy} ({copy.stat().st_size:,} bytes)\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert Terminal(copy)("show", "run-42", "newest").stdout == "here\n"
    again = terminal("backup", str(copy))
    assert again.exit_code == EXIT_FAILED
    assert again.stderr == f"Error: {copy}: File exists\n"
    assert terminal("backup", str(tmp_path / "no" / "folder")).exit_code == EXIT_FAILED


def test_a_deleted_run_gives_its_space_back_at_the_next_sweep(terminal: Terminal) -> None:  # C144
    terminal.put(os.urandom(20_000_000))
    assert terminal.path.stat().st_size > 20_000_000
    terminal("rm", "run-42", "--all")
    assert terminal("sweep").exit_code == EXIT_OK
    assert sum(file.stat().st_size for file in terminal.path.parent.iterdir()) < 2_000_000


# --- files


def test_reading_commands_leave_the_folder_as_it_is(terminal: Terminal) -> None:  # C164
    handle = terminal.put(b"content")
    before = folder_state(terminal.path.parent)
    assert list(before) == ["scratch.db"]
    for arguments in (
        ("list", "run-42"),
        ("runs",),
        ("show", "run-42", handle),
        ("find", "run-42", handle, "content"),
        ("stats",),
        ("doctor",),
    ):
        assert terminal(*arguments).exit_code == EXIT_OK
        assert folder_state(terminal.path.parent) == before


@pytest.mark.parametrize("arguments", [*READING, "rm", "sweep", "backup"])
def test_what_is_not_there_is_not_made_by_looking(terminal: Terminal, arguments: str) -> None:
    rest = {"list": ["r"], "show": ["r", "k"], "find": ["r", "h", "t"], "rm": ["r", "k"], "backup": ["t.db"]}
    result = terminal(arguments, *rest.get(arguments, []))
    assert result.exit_code == EXIT_FAILED
    assert result.stderr == f"Error: there is no store at {terminal.path}\n"
    assert list(terminal.path.parent.iterdir()) == []


def test_a_new_store_and_its_folder_are_private(tmp_path: Path) -> None:  # C95, C96
    inside = Terminal(tmp_path / "new" / "scratch.db")
    old = os.umask(0)
    try:
        inside.put(b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(inside.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(inside.path.parent.stat().st_mode) == 0o700
    link = tmp_path / "link.db"
    link.symlink_to(inside.path)
    result = Terminal(link)("list", "run-42")
    assert result.exit_code == EXIT_FAILED
    assert "symbolic link" in result.stderr


def test_a_folder_that_cannot_be_written_can_be_read_and_is_named_clearly(terminal: Terminal) -> None:  # C166
    terminal("note", "run-42", "k", "v")
    folder = terminal.path.parent
    # Root may write anywhere, so the process gives that up first: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    humble = (
        "import ctypes, os, sys; drop = ctypes.CDLL(None).prctl; drop(24, 1, 0, 0, 0); drop(24, 2, 0, 0, 0); "
        "os.execv(sys.executable, [sys.executable, '-m', 'scratch.cli.main', *sys.argv[1:]])"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", humble, *arguments]
        return subprocess.run(
            command, env=terminal.environment(), capture_output=True, text=True, input="v", timeout=60, check=False
        )

    terminal.path.chmod(0o400)
    folder.chmod(0o500)
    try:
        shown = run("show", "run-42", "k")
        written = [run("note", "run-42", "k", "v"), run("put", "--run", "run-42"), run("rm", "run-42", "k")]
    finally:
        folder.chmod(0o700)
        terminal.path.chmod(0o600)
    assert (shown.stdout, shown.stderr) == ("v\n", "")
    for result in written:
        assert result.returncode == EXIT_FAILED
        assert "cannot be written: check the rights of the file and of its folder" in result.stderr
        assert "Traceback" not in result.stderr


# --- exit codes, errors, pipes


def test_the_exit_codes_are_as_documented(terminal: Terminal) -> None:
    assert (EXIT_OK, EXIT_FAILED, EXIT_MISUSE, EXIT_INTERRUPTED) == (0, 1, 2, 130)
    terminal("note", "run-42", "k", "v")
    failed = [("list", "other"), ("show", "other", "k"), ("show", "run-42", "k2"), ("rm", "other", "--all")]
    for arguments in failed:
        result = terminal.process(*arguments)
        assert result.returncode == EXIT_FAILED
        assert re.fullmatch(rb"Error: .*\n", result.stderr)
    misused = [(), ("list",), ("lst",), ("list", ""), ("list", "a\nb"), ("show", "run-42", "k", "--offset", "-1")]
    for arguments in misused:
        result = terminal.process(*arguments)
        assert result.returncode == EXIT_MISUSE
        assert b"Usage: scratch" in result.stderr
        assert b"Traceback" not in result.stderr
    assert terminal("find", "run-42", "k", "").exit_code == EXIT_FAILED
    handle = terminal.put(b"x")
    assert terminal("find", "run-42", handle, "").exit_code == EXIT_MISUSE


def test_errors_are_safe_on_a_terminal(terminal: Terminal) -> None:  # C198
    terminal("note", "run-42", "k", "v")
    for arguments in (
        ("show", "run-42", CONTROL),
        ("show", "run-42", "k", CONTROL),
        (CONTROL,),
        ("list", CONTROL),
        ("show", "run-42", "k", "--" + CONTROL),
        ("--db", CONTROL, "runs"),
    ):
        result = terminal.process(*arguments)
        assert result.returncode != EXIT_OK
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", result.stderr.decode())


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8", "utf-16"])
def test_no_encoding_of_the_pipe_fails(terminal: Terminal, encoding: str) -> None:  # C204
    key, text = "schlüssel→", "→😀ä\n"
    terminal("note", "run-42", key, text)
    env = {"PYTHONIOENCODING": encoding}
    shown = terminal.process("show", "run-42", key, env=env)
    assert (shown.returncode, shown.stderr) == (EXIT_OK, b"")
    assert shown.stdout.decode(encoding) == text.encode(encoding, "backslashreplace").decode(encoding)
    assert terminal.process("list", "run-42", env=env).returncode == EXIT_OK
    (entry,) = json.loads(terminal.process("list", "run-42", "--json", env=env).stdout.decode(encoding))
    assert (entry["key"], entry["preview"]) == (key, text)
    assert terminal.process("show", "run-42", "→", env=env).returncode == EXIT_FAILED
    assert terminal.process("show", "run-42", key, "--raw", env=env).stdout == text.encode()


@pytest.mark.parametrize("more", [[], ["--raw"], ["--length", "5"]])
def test_a_pipe_whose_reader_has_gone_ends_quietly(terminal: Terminal, more: list[str]) -> None:
    handle = terminal.put(b"line\n" * 200_000)
    reading, writing_end = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [*COMMAND, "show", "run-42", handle, *more],
            stdout=writing_end,
            stderr=subprocess.PIPE,
            env=terminal.environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing_end)
    assert result.returncode == EXIT_OK
    assert b"rror" not in result.stderr
    assert b"Traceback" not in result.stderr


def test_output_that_cannot_be_written_is_a_failure(terminal: Terminal) -> None:
    terminal("note", "run-42", "k", "v")
    for more in ([], ["--raw"]):
        with Path("/dev/full").open("wb") as full:
            result = subprocess.run(
                [*COMMAND, "show", "run-42", "k", *more],
                stdout=full,
                stderr=subprocess.PIPE,
                env=terminal.environment(),
                timeout=60,
                check=False,
            )
        assert result.returncode == EXIT_FAILED
        assert re.fullmatch(rb"Error: .*No space left on device\n", result.stderr)


def test_streams_that_are_closed_do_no_harm(terminal: Terminal) -> None:
    terminal("note", "run-42", "k", "v")
    for shell, code in (("list run-42 >&-", EXIT_OK), ("put --run r <&-", EXIT_FAILED), ("list x 2>&-", EXIT_FAILED)):
        command = f"{' '.join(COMMAND)} {shell}"
        result = subprocess.run(["sh", "-c", command], env=terminal.environment(), timeout=60, check=False)
        assert result.returncode == code


def test_an_interrupt_ends_it_without_a_traceback(terminal: Terminal) -> None:
    code = """
import io, os, signal, sys
import scratch.cli.main as main
class Interrupted(io.RawIOBase):
    def readable(self):
        return True
    def readinto(self, buffer):
        os.kill(os.getpid(), signal.SIGINT)  # as if somebody pressed Ctrl-C while it waits for input
        return 0
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
sys.stdin = io.TextIOWrapper(io.BufferedReader(Interrupted()))
sys.exit(main.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "put", "--run", "run-42"],
        capture_output=True,
        env=terminal.environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == EXIT_INTERRUPTED
    assert b"Traceback" not in done.stderr


def test_a_bug_shows_no_traceback_and_fails(terminal: Terminal) -> None:
    code = (
        "import sys, scratch.cli.reading as r, scratch.cli.main as m; "
        "r.print_runs = lambda *a: 1 / 0; sys.argv = ['scratch', 'runs']; sys.exit(m.main())"
    )
    terminal("note", "run-42", "k", "v")
    result = subprocess.run(
        [sys.executable, "-c", code], env=terminal.environment(), capture_output=True, timeout=60, check=False
    )
    assert result.returncode == EXIT_FAILED
    assert result.stderr == b"Error: unexpected: ZeroDivisionError: division by zero\n"


def test_nothing_is_left_open(terminal: Terminal) -> None:
    env = {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}
    stored = terminal.process("put", "--run", "run-42", stdin=b"x" * 10_000, env=env)
    assert (stored.returncode, unhurried(stored.stderr.decode())) == (EXIT_OK, "")
    handle = json.loads(stored.stdout)["handle"]
    for arguments in (("list", "run-42"), ("show", "run-42", handle), ("rm", "run-42", handle), ("sweep",)):
        result = terminal.process(*arguments, env=env)
        assert (result.returncode, unhurried(result.stderr.decode())) == (EXIT_OK, "")


# --- demo


def test_the_demo_does_the_main_job_and_leaves_a_store_where_it_was_told(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    runner = CliRunner()
    result = runner.invoke(cli, ["--db", str(path), "demo"])
    assert result.exit_code == EXIT_OK, result.output
    said = result.stdout
    captured = re.findall(r"^(\w+) +([\d,]+) bytes -> +([\d,]+) bytes  (r_\w{12})", said, re.MULTILINE)
    assert [tool for tool, *_ in captured] == ["pip_inspect", "list_files"]
    sizes = [int(size.replace(",", "")) for _, size, *_ in captured]
    stubs = [int(stub.replace(",", "")) for _, _, stub, _ in captured]
    assert f"have paid {sum(sizes):,} bytes; now it pays {sum(stubs):,}\n" in said
    assert max(stubs) < 2_000 < min(sizes)
    assert "1. look at the packages\n2. look at the files\n" in said
    assert re.search(r"\n[1-9]\d* matches in the", said)
    assert f"no live handle '{captured[0][3]}' here" in said
    assert f"deleted 1 expired entry ({sizes[0]:,} bytes)" in said
    file_sizes = [int(size.replace(",", "")) for size in re.findall(r"on disk: ([\d,]+) bytes of file, 0 bytes", said)]
    assert len(file_sizes) == 2
    assert file_sizes[0] - file_sizes[1] >= sizes[0]
    assert path.stat().st_size == file_sizes[1]
    left = [line.split("\t") for line in Terminal(path)("list", "demo").stdout.splitlines()]
    assert [(fields[0], fields[1]) for fields in left] == [("handle", captured[1][3]), ("note", "plan")]
    again = runner.invoke(cli, ["--db", str(path), "demo"])
    assert again.exit_code == EXIT_MISUSE
    assert Terminal(path)("doctor").exit_code == EXIT_OK


def test_the_demo_touches_no_store_that_it_was_not_told_of(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "installed_packages", lambda: "package\n" * 5_000)
    result = terminal("demo")
    assert result.exit_code == EXIT_OK
    assert f"# a store: {tmp_path}/scratch-demo-" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_pip_the_packages_come_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pip(*_arguments: object, **_options: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 1, b"", b"No module named pip")

    monkeypatch.setattr("subprocess.run", no_pip)
    installed = json.loads(demo.installed_packages())["installed"]
    assert "click" in {package["metadata"]["name"] for package in installed}
