"""The exploration tools in a terminal, and what a model is told of all verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scratch import EntryInfo, Kind, ScratchStore
from scratch.budget import MAX_EXTRACTION_TOKENS
from scratch.cli.session import (
    EXIT_FAILED,
    agent_option,
    checked_name,
    examples,
    failure,
    open_to_read,
    run,
)
from scratch.cli.text import print_json, print_json_text, write
from scratch.spill import OwnText
from scratch.tools import CLIENTS, GROUPS, VERBS, Client, Group, Parameter, Toolset, Verb
from scratch.tools.exploring import EXPLORING
from scratch.tools.notes import READ_HANDLE
from scratch.visible import escape_block


@click.group(
    epilog=examples(
        "scratch explore r_4k7hq2m9xwzt schema",
        "scratch explore r_4k7hq2m9xwzt grep ERROR --context 1 --max-matches 5",
        "scratch explore r_4k7hq2m9xwzt iterate_over '$.items' id name --limit 10",
        "scratch explore --run run-42 coordinator-plan.md head",
    ),
    subcommand_metavar="TOOL ...",
)
@click.argument("handle")
@click.option("--run", "run_id", metavar="RUN", callback=checked_name, help="Which run; needed for an artifact's name.")
@agent_option
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=MAX_EXTRACTION_TOKENS,
    show_default=True,
    metavar="N",
    help="The most tokens (estimated) that an answer may have.",
)
@click.pass_context
def explore(context: click.Context, handle: str, run_id: str | None, agent: str | None, max_tokens: int) -> None:
    """Look into a stored result with the tools that a model has.

    The answer is what the model would get. An answer that is refused is JSON with what to do instead, and the exit
    code is 1.
    """
    context.obj = _Target(context.obj, handle, run_id, agent, max_tokens)


class _Target:
    """What is explored."""

    def __init__(self, path: Path, handle: str, run_id: str | None, agent: str | None, max_tokens: int) -> None:
        self.path = path
        self.handle = handle
        self.run_id = run_id
        self.agent = agent
        self.max_tokens = max_tokens

    async def call(self, tool: str, arguments: dict[str, Any]) -> OwnText:
        async with open_to_read(self.path) as store:
            info = await self._find(store)
            scope = await store.run(info.run_id, agent_id=self.agent or info.agent_id)
            tools = Toolset(scope, groups=["explore"], max_extraction_tokens=self.max_tokens)
            return await tools.call(tool, {"handle": self.handle, **arguments})

    async def _find(self, store: ScratchStore) -> EntryInfo:
        runs = [self.run_id] if self.run_id is not None else [one.run_id for one in await store.list_runs()]
        for run_id in runs:
            for info in await store.list_scratch_entries_for_run(run_id):
                if info.key == self.handle and info.kind is not Kind.NOTE:
                    return info
        where = "in this store" if self.run_id is None else f"in run {self.run_id!r}"
        raise failure(f"there is no live result or artifact {self.handle!r} {where}: it is unknown or has expired")


def _command(verb: Verb) -> click.Command:
    """A tool as a command: what it needs are arguments, what it can take are options."""

    def callback(**given: Any) -> None:  # noqa: ANN401 - what click read
        target = click.get_current_context().obj
        arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        answer = run(target.call(verb.name, arguments))
        if answer.is_error:
            print_json_text(answer)
            raise click.exceptions.Exit(EXIT_FAILED)
        write(escape_block(answer) + "\n" * (not answer.endswith("\n")))

    parameters = [_parameter(parameter) for parameter in verb.parameters if parameter.name != "handle"]
    return click.Command(verb.name, callback=callback, params=parameters, help=verb.description)


def _parameter(parameter: Parameter) -> click.Parameter:
    kind: Any = int if parameter.kind == "integer" else str
    if parameter.required:
        return click.Argument(
            [parameter.name], type=kind, nargs=-1 if parameter.kind == "strings" else 1, required=True
        )
    option = "--" + parameter.name.replace("_", "-")
    if parameter.kind == "boolean":
        return click.Option([option], is_flag=True, help=parameter.description)
    return click.Option(
        [option],
        type=kind,
        default=parameter.default,
        show_default=parameter.default is not None,
        help=parameter.description,
    )


for one in (*EXPLORING, READ_HANDLE):
    explore.add_command(_command(one))


@click.command(
    epilog=examples("scratch tools --format mcp", "scratch tools --format openai --group explore --prefix sp_")
)
@click.option(
    "--format", "client", type=click.Choice(CLIENTS), default="anthropic", show_default=True, help="For whom."
)
@click.option(
    "--group", "groups", type=click.Choice(sorted(GROUPS)), multiple=True, help="Which groups; all by default."
)
@click.option("--prefix", default="", metavar="TEXT", help="Stands before each name.")
def tools(client: Client, groups: tuple[Group, ...], prefix: str) -> None:
    """Print the definitions of the model's tools: names, descriptions, JSON Schemas."""
    chosen = frozenset(groups) or GROUPS
    print_json([verb.definition(client, prefix) for verb in VERBS if verb.group is None or verb.group in chosen])
