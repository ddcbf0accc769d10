"""README's code is run as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from scratch import ContextBudget, RunScratch, TokenCounter
from scratch.config import Config
from scratch.tools import Toolset
from tests.support import cli_commands, query

ROOT = Path(__file__).parent.parent
COMMANDS = cli_commands()
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_python_example_runs_word_for_word(tmp_path: Path) -> None:
    example, _ = blocks("python")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    stub, window, hits, note = done.stdout.splitlines()
    assert stub.startswith('{"handle":"r_')
    assert window == '[{"id": 0, "city": "Zürich", "status": "ok"}, {"id": 1, "city": "Zürich", "sta 80'
    assert hits.startswith("1 ")
    assert '"status": "ERROR"}' in hits
    assert note == "look at row 700"


def test_the_configuration_example_is_one() -> None:
    (example,) = blocks("toml")
    config = Config.parse(example)
    assert config.scratchpad.enabled
    assert config.policy().token_threshold("run_query") == 2_000
    assert config.llm.context_window == 128_000


async def test_the_lines_for_a_model_run_word_for_word(run: RunScratch) -> None:
    _, example = blocks("python")
    names: dict[str, Any] = {
        "Toolset": Toolset,
        "ContextBudget": ContextBudget,
        "TokenCounter": TokenCounter,
        "run": run,
        "observation": query("x" * 10_000),
        "name": "scratch_list",
        "arguments": {},
    }
    body = "".join(f"    {line}\n" for line in example.splitlines())
    exec(f"async def main():\n{body}    return captured, answer", names)  # noqa: S102 - README's own code
    captured, answer = await names["main"]()
    assert captured.handle in json.loads(answer)["handles"][0]["handle"]
    assert answer.is_error is False


def test_every_command_is_in_the_table_and_has_help_with_an_example() -> None:
    table = "".join(line for line in README.splitlines(keepends=True) if line.startswith("| `scratch "))
    assert set(re.findall(r"`scratch (\w+)", table)) == set(COMMANDS)
    for command in COMMANDS.values():
        with click.Context(command, info_name=command.name) as context:
            text = command.get_help(context)
        assert re.search(rf"(Example|Examples):\n(.*\n)*?.*scratch .*{command.name}", text), command.name


def test_every_option_that_the_table_names_exists() -> None:
    for name, rest in re.findall(r"^\| `scratch (\w+)(.*)$", README, re.MULTILINE):
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known


def test_both_commands_that_do_everything_are_named() -> None:
    console = "".join(blocks("console"))
    assert "$ make demo" in console
    assert "$ make test" in console


def test_the_tests_that_hold_the_promises_are_there() -> None:
    promises = README.partition("## What it promises")[2].partition("## How fast it is")[0]
    files = re.findall(r"`((?:\w+/)?test_\w+\.py)`", promises)
    assert len(files) > 10
    assert [file for file in files if not (ROOT / "tests" / file).is_file()] == []
