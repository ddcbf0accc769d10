"""`scratch explore`, `scratch tools`, `scratch tokens` and `scratch demo --explore`, on real stores."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scratch import RunScratch, ScratchStore
from scratch.artifacts import write_artifact
from scratch.cli import demo, proof
from scratch.cli.main import cli
from scratch.cli.session import EXIT_FAILED, EXIT_MISUSE, EXIT_OK
from scratch.tools import VERBS
from scratch.tools.exploring import EXPLORING
from tests.support import query

ROWS = [{"id": n, "name": f"row {n}", "tags": ["[red]", "\x1b[2J"]} for n in range(500)]


@pytest.fixture
async def handle(path: Path) -> str:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="a")
        captured = await run.capture(query({"items": ROWS}))
        await write_artifact(run, "plan.md", "# Plan\n\nfirst\n")
        assert captured.handle is not None
        return captured.handle


def scratch(path: Path, *arguments: str) -> Result:
    return CliRunner(env={"SCRATCH_DB": str(path)}).invoke(cli, arguments)


ARGUMENTS = {
    "head": ["--lines", "3"],
    "slice": ["1", "1"],
    "grep": ["row 7", "--literal", "--context", "0", "--max-matches", "2"],
    "schema": ["--max-depth", "2"],
    "item_schema": ["$.items"],
    "get_in": ["$.items[7].name"],
    "iterate_over": ["$.items", "id", "name", "--offset", "5", "--limit", "2"],
    "read": [],
}


@pytest.mark.parametrize("verb", EXPLORING, ids=lambda verb: verb.name)
def test_every_tool_can_be_used(path: Path, handle: str, verb: Any) -> None:
    before = sorted(path.parent.iterdir())
    result = scratch(path, "explore", "--max-tokens", "20000", handle, verb.name, *ARGUMENTS[verb.name])
    assert result.exit_code == EXIT_OK, result.output
    assert f"\n{verb.name}: " in result.stdout
    assert " tokens\n" in result.stdout
    assert "\x1b" not in result.stdout
    assert sorted(path.parent.iterdir()) == before  # it only reads


def test_rows_and_values_are_as_a_model_gets_them(path: Path, handle: str) -> None:
    rows = scratch(path, "explore", handle, "iterate_over", *ARGUMENTS["iterate_over"]).stdout.splitlines()
    assert [json.loads(row) for row in rows[:2]] == [
        {"_index": 5, "id": 5, "name": "row 5"},
        {"_index": 6, "id": 6, "name": "row 6"},
    ]
    assert scratch(path, "explore", handle, "get_in", "$.items[7].name").stdout.startswith("1\trow 7\n")


def test_a_refusal_is_json_with_what_to_do_and_exit_code_1(path: Path, handle: str) -> None:
    result = scratch(path, "explore", "--max-tokens", "500", handle, "read")
    assert result.exit_code == EXIT_FAILED
    error = json.loads(result.stdout)
    assert (error["error"], error["per_call_limit"]) == ("read_too_large", 500)
    assert scratch(path, "explore", handle, "get_in", "$.no").exit_code == EXIT_FAILED


def test_an_artifact_is_explored_by_its_name(path: Path, handle: str) -> None:
    result = scratch(path, "explore", "--run", "run-42", "coordinator-plan.md", "schema")
    assert result.exit_code == EXIT_OK
    assert "Plan" in result.stdout


def test_misuse_and_what_is_not_there_are_told_apart(path: Path, handle: str) -> None:
    missing = scratch(path, "explore", "r_222222222222", "head")
    assert missing.exit_code == EXIT_FAILED
    assert "unknown or has expired" in missing.stderr
    for arguments in (
        ["explore"],
        ["explore", handle, "grep"],
        ["explore", handle, "hed"],
        ["explore", handle, "slice", "a", "b"],
    ):
        assert scratch(path, *arguments).exit_code == EXIT_MISUSE


@pytest.mark.parametrize("client", ["openai", "anthropic", "mcp"])
def test_the_definitions_are_printed_for_every_client(path: Path, client: str) -> None:
    result = scratch(path, "tools", "--format", client, "--prefix", "sp_")
    definitions = json.loads(result.stdout)
    names = [one["function"]["name"] if client == "openai" else one["name"] for one in definitions]
    assert names == [f"sp_{verb.name}" for verb in VERBS]
    few = json.loads(scratch(path, "tools", "--format", "mcp", "--group", "notes").stdout)
    assert "head" not in {one["name"] for one in few}
    assert not path.exists()


def test_tokens_of_a_file_are_counted_without_the_network(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes("Zürich <|endoftext|> ".encode() * 50 + b"\xff\xed\xa0\x80")
    counted = json.loads(scratch(path, "tokens", "count", str(file), "--json").stdout)
    assert 100 < counted["tokens"] < 1_300
    claude = scratch(path, "tokens", "count", str(file), "--provider", "anthropic", "--model", "claude-x")
    assert claude.stdout.startswith("about ")
    assert scratch(path, "tokens", "count", str(tmp_path / "no")).exit_code == EXIT_MISUSE


async def test_the_proof_answers_are_right_and_cost_little(store: ScratchStore) -> None:
    packages = demo.installed_packages()
    answers = await proof.prove(store, packages)
    without, version, level, value = answers
    installed = [one["metadata"] for one in json.loads(packages)["installed"]]
    missing = sorted(one["name"] for one in installed if "requires_python" not in one)
    assert without.answer == f"{len(missing)} of {len(installed)}: {', '.join(missing) or 'none'}"
    assert version.answer == importlib.metadata.version(proof.DISTRIBUTION)
    entries = await store.list_scratch_entries_for_run(proof.EXPLORED_RUN)
    run: RunScratch = await store.run(proof.EXPLORED_RUN, agent_id="demo")
    log, tree = [
        b"".join([piece async for piece in run.pieces(info)]).decode()
        for info in entries
        if info.source_tool != "pip_inspect"
    ]
    warnings = [
        f"line {number}: {line}" for number, line in enumerate(log.splitlines(), 1) if line.split(" ")[1] == "WARNING"
    ]
    assert level.answer == f"{len(warnings):,}; first {warnings[0]}; last {warnings[-1]}"
    assert len(tree) > 600_000
    assert "\n" not in tree
    files = json.loads(tree)["files"]
    assert value.answer in {str(one["bytes"]) for name, one in files.items() if name.endswith(proof.FILE)}
    for answer in answers:
        assert 0 < answer.tokens <= 10_000 < answer.inlined


def test_the_demo_explores(path: Path) -> None:
    result = scratch(path, "demo", "--explore")
    assert result.exit_code == EXIT_OK, result.output
    assert result.stdout.count(" tokens with the tools, ") == 4


def test_an_artifact_is_shown_found_and_not_removed_alone(path: Path, handle: str) -> None:
    assert scratch(path, "show", "run-42", "coordinator-plan.md").stdout == "# Plan\n\nfirst\n"
    assert "1 match in" in scratch(path, "find", "run-42", "coordinator-plan.md", "first").stderr
    for more in ([], ["--dry-run"]):
        removed = scratch(path, "rm", "run-42", "coordinator-plan.md", *more)
        assert removed.exit_code == EXIT_FAILED
        assert "is an artifact" in removed.stderr
    assert scratch(path, "show", "run-42", "coordinator-plan.md").exit_code == EXIT_OK
