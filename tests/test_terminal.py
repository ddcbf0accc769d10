"""The commands on a real terminal: what a person sees, and that no content gets to control it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from scratch.cli.main import cli
from scratch.cli.session import EXIT_OK

ROOT = Path(__file__).resolve().parent.parent
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # colour and weight, the only sequences that we send
HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m \x7f \u202egnp.exe \u2066x\r[/red]\ttab\nsecond line"
SHOWN = r"\x1b[2J\x1b]0;owned\x07 \x9b31m \x7f \u202egnp.exe \u2066x\r[/red]"
PLAIN_ENVIRONMENT = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING", "LC_ALL", "TERM"}


class Terminal:
    """Runs commands with a pseudo terminal of a given width as standard output and error."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in PLAIN_ENVIRONMENT}
        return kept | {"PYTHONPATH": str(ROOT), "SCRATCH_DB": str(self.path), "TERM": "xterm-256color"} | more

    def run(self, *arguments: str, width: int = 120, stdin: bytes = b"", **env: str) -> tuple[int, str]:
        """The exit code, and all that came to the terminal."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST  # a newline stays one
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        with subprocess.Popen(
            [sys.executable, "-m", "scratch.cli.main", *arguments],
            stdin=subprocess.PIPE,
            stdout=slave,
            stderr=slave,
            env=self.environment(env),
        ) as process:
            os.close(slave)
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            output = b"".join(read_all(master))
        os.close(master)
        return process.returncode, output.decode("utf-8", "surrogateescape")

    def pipe(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """What comes out without a terminal, in this process."""
        result = CliRunner(env={"SCRATCH_DB": str(self.path)}).invoke(cli, list(arguments), input=stdin)
        assert result.exit_code == EXIT_OK, result.output
        return result.stdout_bytes

    def put(self, content: bytes, *arguments: str) -> str:
        return str(json.loads(self.pipe("put", "--run", "run-42", *arguments, stdin=content))["handle"])


def read_all(master: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # EIO: nobody has the other end open any more
        while data := os.read(master, 65_536):
            yield data


@pytest.fixture
def terminal(path: Path) -> Iterator[Terminal]:
    terminal = Terminal(path)
    yield terminal
    assert terminal.pipe("doctor").endswith(b"\nno problems\n")


def without_styles(output: str) -> str:
    return STYLE.sub("", output)


def assert_harmless(output: str) -> None:
    """Nothing but text, newlines, tabs and styles came to the terminal."""
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", without_styles(output)
    )


def cells(line: str) -> int:
    """How many columns a line takes."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def test_the_list_is_a_table_whose_lines_fit_the_window(terminal: Terminal) -> None:
    handle = terminal.put(b"x" * 1_234_567, "--tool", "kubectl")
    terminal.pipe("note", "run-42", "plan", "日本語のメモ😀 " * 30)
    for width in (200, 120, 100):
        code, output = terminal.run("list", "run-42", width=width)
        header, first, second = without_styles(output).splitlines()
        assert code == 0
        assert header.split() == ["kind", "key", "bytes", "tokens", "tool", "age", "expires", "in", "preview"]
        assert first.split()[:5] == ["handle", handle, "1,234,567", "308,642", "kubectl"]
        assert first.split()[6] == "59m"
        assert second.split()[:2] == ["note", "plan"]
        assert first[header.index("preview") :].startswith("xxxxxxx")
        assert first.rstrip().endswith("…")
        assert max(cells(line) for line in (header, first, second)) <= width
        assert_harmless(output)


@pytest.mark.parametrize("width", [80, 60, 20])
def test_a_narrow_window_gets_the_previews_on_lines_of_their_own_and_whole_handles(
    terminal: Terminal, width: int
) -> None:
    handle = terminal.put(b"preview of it", "--tool", "kubectl")
    terminal.pipe("note", "run-42", "K" * 50, "value of it")
    _, output = terminal.run("list", "run-42", width=width)
    lines = without_styles(output).splitlines()
    assert any(line.split()[:4] == ["handle", handle, "13", "4"] for line in lines)
    shown = [line.strip() for line in lines if line.startswith("  ") and " of it" in line]
    assert shown == ["preview of it", "value of it"]
    assert "".join(lines).count("K") == 50  # folded, not cut
    assert sum(line.startswith("kind") for line in lines) == 1
    if width == 80:
        assert max(len(line) for line in lines) <= width


def test_agents_are_shown_when_there_are_several(terminal: Terminal) -> None:
    terminal.pipe("note", "run-42", "plan", "x", "--agent", "researcher")
    assert "researcher" not in terminal.run("list", "run-42")[1]
    terminal.pipe("note", "run-42", "plan", "x", "--agent", "writer")
    lines = without_styles(terminal.run("list", "run-42")[1]).splitlines()
    assert lines[0].split()[2] == "agent"
    assert [line.split()[2] for line in lines[1:]] == ["researcher", "writer"]
    runs = without_styles(terminal.run("runs")[1]).splitlines()
    assert runs[0].split() == ["run", "agents", "age", "state", "entries", "bytes"]
    assert re.match(r"run-42  researcher, writer +\d+s  open +2 +2$", runs[1])


def test_no_content_controls_the_terminal(terminal: Terminal) -> None:  # C197, C203
    handle = terminal.put(HOSTILE.encode(), "--tool", "\x1b]0;owned\x07[/red]")
    _, listed = terminal.run("list", "run-42", width=250)
    assert_harmless(listed)
    header, first, second = without_styles(listed).splitlines()
    place = slice(header.index("tool"), header.index("tool") + 16)
    assert first[place] + second[place].rstrip() == r"\x1b]0;owned\x07[/red]"  # folded
    assert SHOWN + r"\ttab\nsecond line" in without_styles(listed)
    _, shown = terminal.run("show", "run-42", handle)
    assert shown == SHOWN + "\ttab\nsecond line\n"
    _, found = terminal.run("find", "run-42", handle, "second")
    assert_harmless(found)
    assert SHOWN in without_styles(found)
    _, listed = terminal.run("list", "run-42", "--json")
    _, found = terminal.run("find", "run-42", handle, "x", "--json")
    assert_harmless(listed + found)
    assert [json.loads(listed)[0]["preview"], json.loads(found)["windows"][0]["text"]] == [HOSTILE, HOSTILE]
    code, error = terminal.run("show", "run-42", HOSTILE)
    assert code == 1
    assert_harmless(error)


def test_lone_surrogates_and_nul_are_visible(terminal: Terminal) -> None:  # C63, C66
    content = b"a\xed\xa0\xb5b\x00c"  # stored as bytes: not UTF-8, hence shown as base64
    handle = terminal.put(content)
    code, output = terminal.run("show", "run-42", handle)
    assert code == 0
    assert output.splitlines()[-1] == "Ye2gtWIAYw=="
    assert terminal.run("list", "run-42")[0] == 0
    note = terminal.put(b"a\x00b")
    assert terminal.run("show", "run-42", note)[1] == "a\\x00b\n"


def test_raw_reaches_the_terminal_as_it_is(terminal: Terminal) -> None:  # C203
    handle = terminal.put(b"\x1b[1mbold\x1b[0m no newline")
    assert terminal.run("show", "run-42", handle, "--raw") == (0, "\x1b[1mbold\x1b[0m no newline")
    assert terminal.run("show", "run-42", handle)[1] == "\\x1b[1mbold\\x1b[0m no newline\n"


def test_matches_stand_out(terminal: Terminal) -> None:
    content = "─ straße ERROR one, Error two\n" + "." * 1_000 + " error"
    handle = terminal.put(content.encode())
    _, output = terminal.run("find", "run-42", handle, "error", "--ignore-case", "--context", "10")
    marked = re.findall(r"\x1b\[1;31m(.*?)\x1b\[0m", output)
    assert marked == ["ERROR", "Error", "error"]
    first = content.encode().index(b"ERROR")
    lines = without_styles(output).splitlines()
    assert lines[0] == f"bytes [3, {first + 26}), found at {first}, {first + 11}"
    assert lines[1] == " straße ERROR one, Error two"
    assert lines[-1] == f"3 matches in the {len(content.encode()):,} bytes searched"
    assert not re.search(r"\x1b", terminal.run("find", "run-42", handle, "error", "--json")[1])


def test_colour_is_left_to_who_looks(terminal: Terminal) -> None:
    terminal.pipe("note", "run-42", "plan", "x")
    coloured = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])[0-9;]*m")
    assert coloured.search(terminal.run("list", "run-42")[1])
    assert not coloured.search(terminal.run("list", "run-42", NO_COLOR="1")[1])
    assert "\x1b" not in terminal.run("list", "run-42", TERM="dumb")[1]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_of_another_encoding_gets_aligned_escapes(terminal: Terminal, encoding: str) -> None:  # C204
    handle = terminal.put("→😀 and more".encode() + b" text" * 100, "--tool", "wörk→")
    code, output = terminal.run("list", "run-42", width=100, PYTHONIOENCODING=encoding)
    header, entry = without_styles(output).splitlines()
    assert code == 0
    assert entry[header.index("preview") :].startswith(r"\u2192\U0001f600 and more")
    assert max(len(header), len(entry)) <= 100
    code, output = terminal.run("show", "run-42", handle, "--length", "7", PYTHONIOENCODING=encoding)
    assert output.splitlines()[0] == r"\u2192\U0001f600"


def test_stats_are_aligned(terminal: Terminal) -> None:
    terminal.pipe("note", "run-42", "plan", "x" * 12_345)
    figures, _, counts = terminal.run("stats")[1].partition("\nsince ")
    assert re.fullmatch(r"notes written +1", next(line for line in counts.splitlines() if "notes" in line))
    lines = figures.splitlines()
    assert any(re.fullmatch(r"live content +12,345 bytes", line) for line in lines)
    assert len({len(re.sub(r" bytes$", "", line)) for line in lines}) == 1


def test_input_that_cannot_be_stored_is_shown_with_escapes(terminal: Terminal, tmp_path: Path) -> None:
    terminal.pipe("note", "run-42", "plan", "x")
    code, output = terminal.run("--db", str(tmp_path), "put", "--run", "r", stdin=HOSTILE.encode())
    assert code == 1
    assert_harmless(output)
    assert output.startswith(SHOWN)
    assert "Error: not stored: " in output


def test_the_demo_shows_the_same_table_as_list(terminal: Terminal) -> None:
    code, output = terminal.run("--db", str(terminal.path), "demo", width=130)
    assert code == 0
    assert_harmless(output)
    said = without_styles(output)
    table = said.partition("# scratch list demo\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split() == ["kind", "key", "bytes", "tokens", "tool", "age", "expires", "in", "preview"]
    assert [line.split()[0] for line in table[1:]] == ["handle", "handle", "note"]
    left = without_styles(terminal.run("list", "demo", width=130)[1]).splitlines()
    assert [line.split()[:4] for line in left[1:]] == [line.split()[:4] for line in table[2:]]
