"""The commands that change a run: put, note, rm."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from scratch import Captured, Kind, Observation, ScratchStore, SpillPolicy
from scratch.cli.session import (
    EXIT_FAILED,
    agent_option,
    dry_run_option,
    examples,
    failure,
    open_to_read,
    pick,
    run,
    run_argument,
    run_option,
    ttl_option,
    writing_agent_option,
)
from scratch.cli.text import counted, on_terminal, print_json_text, print_line, print_note, write, write_bytes
from scratch.entries import MAX_NOTE_BYTES, decode_text
from scratch.store import MAX_ENTRY_BYTES
from scratch.visible import escape_block

# Whoever types `put` has decided already: everything is stored, whatever its size and its tool's name.
_STORE_ALL = SpillPolicy(threshold_bytes=0, stub_must_be_smaller=False, internal_verbs=frozenset())


@click.command(
    epilog=examples(
        "kubectl get pods -A -o json | scratch put --run run-42 --tool kubectl",
        "scratch put --run run-42 --ttl 86400 < build.log",
    )
)
@run_option
@click.option("--tool", default="", metavar="NAME", help="What made it; shown by `scratch list`.")
@writing_agent_option
@ttl_option
@click.pass_obj
def put(path: Path, run_id: str, tool: str, agent: str, ttl: float | None) -> None:
    """Store standard input as a result of a run.

    Prints the stub: what a model would get in its place. When it cannot be stored it goes to standard output as it
    came in, and the exit code is 1: nothing is lost.
    """
    data = _read_stdin(MAX_ENTRY_BYTES)
    if not data:
        raise failure("nothing was stored: standard input was empty")
    if len(data) > MAX_ENTRY_BYTES:
        _give_back(data)
        raise failure(f"not stored: over {MAX_ENTRY_BYTES:,} bytes. The input went to standard output")

    async def work() -> Captured:
        async with ScratchStore.open(path, policy=_STORE_ALL) as store:
            scope = await store.run(run_id, agent_id=agent)
            return await scope.capture(Observation(data, tool=tool, tool_class="query"), ttl=ttl)

    try:
        captured = run(work())
    except click.ClickException as error:
        _give_back(data)
        raise failure(f"not stored: {error.message}. The input went to standard output") from error
    if captured.handle is None:
        _give_back(data)
        raise failure("not stored, for the reason above. The input went to standard output")
    print_json_text(captured.text)


def _read_stdin(most: int) -> bytes:
    """Standard input, up to one byte more than ``most``."""
    if sys.stdin.isatty():
        print_note("reading standard input; end it with Ctrl-D")
    return sys.stdin.buffer.read(most + 1)


def _give_back(data: bytes) -> None:
    """All of standard input to standard output; on a terminal with escapes."""
    if on_terminal():
        write(escape_block(decode_text(data)) + "\n")
        return
    write_bytes(data)
    shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)


@click.command(
    epilog=examples(
        "scratch note run-42 plan 'look at the pods first'",
        "date | scratch note run-42 log - --append",
        "scratch note run-42 plan 'done' --if-version 3",
    )
)
@run_argument
@click.argument("key")
@click.argument("value", required=False)
@writing_agent_option
@click.option("--append", is_flag=True, help="Add to the end of the note.")
@click.option(
    "--if-version",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only when it has this version; 0: when there is none.",
)
@ttl_option
@click.pass_obj
def note(
    path: Path,
    run_id: str,
    key: str,
    value: str | None,
    agent: str,
    append: bool,
    if_version: int | None,
    ttl: float | None,
) -> None:
    """Write a note, and print its version.

    Up to 1 MiB, over the note that the agent has under KEY. Without VALUE, or with `-`, the note is what comes from
    standard input.
    """
    data = _read_stdin(MAX_NOTE_BYTES) if value is None or value == "-" else _argument_bytes(value)

    async def work() -> int:
        async with ScratchStore.open(path) as store:
            scope = await store.run(run_id, agent_id=agent)
            return await scope.write(key, data, append=append, if_version=if_version, ttl=ttl)

    print_line(str(run(work())))


def _argument_bytes(value: str) -> bytes:
    """An argument as UTF-8; what the shell passed that is no text goes back to the bytes that it was."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return os.fsencode(value)


@click.command(
    epilog=examples(
        "scratch rm run-42 r_4k7hq2m9xwzt plan",
        "scratch rm run-42 --all --dry-run",
        "scratch rm run-42 --all",
    )
)
@run_argument
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--all", "everything", is_flag=True, help="The run with everything in it, of all agents.")
@agent_option
@dry_run_option
@click.pass_obj
def rm(path: Path, run_id: str, keys: tuple[str, ...], everything: bool, agent: str | None, dry_run: bool) -> None:
    """Delete entries of a run, or all of the run.

    Names are exact: `%`, `_` and `*` are plain characters. When one of several does not exist, nothing is deleted.
    The next sweep gives the space back.
    """
    if everything == bool(keys):
        raise click.UsageError("give either keys or --all")
    if everything and agent is not None:
        raise click.UsageError("--all deletes what all agents have; leave --agent out")
    work = (
        _delete_run(path, run_id, dry_run=dry_run)
        if everything
        else _delete(path, run_id, keys, agent, dry_run=dry_run)
    )
    run(work)


async def _delete_run(path: Path, run_id: str, *, dry_run: bool) -> None:
    async with open_to_read(path) if dry_run else ScratchStore.open(path, create=False) as store:
        entries = await store.list_scratch_entries_for_run(run_id)
        live = counted(len(entries), "live entry", "live entries")
        what = f"run {run_id}: {live}, {sum(info.size for info in entries):,} bytes"
        if dry_run:
            print_line(f"would delete {what}")
        elif await store.delete_run(run_id):
            print_line(f"deleted {what}")
        else:
            raise failure(f"somebody else has deleted run {run_id!r} meanwhile")


async def _delete(path: Path, run_id: str, keys: tuple[str, ...], agent: str | None, *, dry_run: bool) -> None:
    async with open_to_read(path) if dry_run else ScratchStore.open(path, create=False) as store:
        entries = await store.list_scratch_entries_for_run(run_id)
        found = [pick(entries, run_id, key, agent) for key in dict.fromkeys(keys)]
        if artifact := next((info.key for info in found if info.kind is Kind.ARTIFACT), None):
            raise failure(f"{artifact!r} is an artifact: other agents may count on it, so it goes with its run")
        gone = 0
        for info in found:
            what = f"{info.kind} {info.key} ({info.size:,} bytes)"
            if dry_run:
                print_line(f"would delete {what}")
                continue
            scope = await store.run(run_id, agent_id=info.agent_id)
            if await scope.delete(info.key):
                print_line(f"deleted {what}")
            else:
                gone += 1
                print_note(f"{what} was gone already")
        if gone:
            click.get_current_context().exit(EXIT_FAILED)
