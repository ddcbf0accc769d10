"""What the commands share: exit codes, opening a store, finding an entry, and errors as one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import platformdirs

from scratch import EntryInfo, InvalidArgument, Kind, ScratchError, ScratchStore
from scratch.clock import ttl_seconds
from scratch.entries import check_name
from scratch.store import Opening
from scratch.visible import escape

EXIT_OK = 0
EXIT_FAILED = 1
"""It was not done: no such run, entry or store; the disk is full; a check found problems."""
EXIT_MISUSE = 2
"""The command cannot be read, or an argument is not of its kind."""
EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells say it."""

TERMINAL_AGENT = "terminal"
"""Who writes when nobody is named."""

T = TypeVar("T")


def default_path() -> Path:
    """The store's place when neither --db nor SCRATCH_DB names one. Touches nothing."""
    return platformdirs.user_state_path("run-scratch") / "scratch.db"


def examples(*lines: str) -> str:
    """A command's epilog: what to type."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in a loop of its own.

    Raises:
        click.ClickException: it raised a ScratchError or an OSError; one line, safe on a terminal.
    """
    try:
        return asyncio.run(work)
    except InvalidArgument as error:
        raise click.UsageError(escape(error.message), click.get_current_context()) from error
    except ScratchError as error:
        raise failure(error.message) from error
    except OSError as error:
        raise failure(os_error_text(error)) from error


def os_error_text(error: OSError) -> str:
    """What the system says, in one line."""
    return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part is not None)


def failure(message: str) -> click.ClickException:
    """An error of one line that ends the command with EXIT_FAILED."""
    return click.ClickException(escape(message))


def open_to_read(path: Path) -> Opening:
    """The store for a command that only reads: nothing is made, nor left beside the file."""
    return ScratchStore.open(path, read_only=True)


def pick(entries: Sequence[EntryInfo], run_id: str, key: str, agent: str | None) -> EntryInfo:
    """The one handle or note of that name among the live entries of a run, whichever agent has it; else the artifact.

    Raises:
        click.ClickException: there is none.
        click.UsageError: several agents have one, and ``agent`` is None.
    """
    named = [info for info in entries if info.key == key and agent in (None, info.agent_id)]
    found = [info for info in named if info.kind is not Kind.ARTIFACT] or named
    if not found:
        whose = "" if agent is None else f" of agent {agent!r}"
        raise failure(f"run {run_id!r} has no live entry {key!r}{whose}: it is unknown or has expired")
    if len(found) > 1:
        agents = ", ".join(sorted(info.agent_id for info in found))
        message = f"{len(found)} agents of run {run_id!r} have {key!r}: choose one with --agent ({agents})"
        raise click.UsageError(escape(message), click.get_current_context())
    return found[0]


def _checked(check: Callable[[Any, str], T]) -> Callable[[click.Context, click.Parameter, Any], T | None]:
    def callback(_context: click.Context, parameter: click.Parameter, value: Any) -> T | None:  # noqa: ANN401
        if value is None:
            return None
        try:
            return check(value, parameter.name or "value")
        except InvalidArgument as error:
            raise click.BadParameter(escape(error.message)) from error

    return callback


checked_name = _checked(check_name)
"""For an option that names a run or an agent."""
run_argument = click.argument("run_id", metavar="RUN", callback=checked_name)
agent_option = click.option(
    "--agent", metavar="AGENT", callback=_checked(check_name), help="Whose entry; needed when several agents have it."
)
writing_agent_option = click.option(
    "--agent",
    metavar="AGENT",
    default=TERMINAL_AGENT,
    show_default=True,
    callback=_checked(check_name),
    help="Who writes it.",
)
run_option = click.option(
    "--run", "run_id", metavar="RUN", required=True, callback=_checked(check_name), help="Which run; made when new."
)
ttl_option = click.option(
    "--ttl",
    type=float,
    metavar="SECONDS",
    callback=_checked(ttl_seconds),
    help="How long it lives; an hour when not said.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON for machines; nothing is cut.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
