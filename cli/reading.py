"""The commands that only look: list, runs, show, find. They make nothing, and leave nothing beside the file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path

import click

from scratch import EntryInfo, Kind, RunInfo, RunScratch, Window
from scratch.cli.render import print_entries, print_matches, print_runs
from scratch.cli.session import agent_option, examples, failure, json_option, open_to_read, pick, run, run_argument
from scratch.cli.text import BASE64_BYTES, counted, print_json, print_note, write, write_base64, write_bytes
from scratch.clock import now_ms, system_clock
from scratch.content import BINARY
from scratch.visible import escape_block
from scratch.windows import (
    DEFAULT_CONTEXT,
    DEFAULT_WINDOWS,
    MARGIN,
    MAX_LENGTH,
    Matches,
    cut_window,
)

Read = Callable[[int, int], Awaitable[Window]]
"""Reads the window of so many bytes (at most MAX_LENGTH) from an offset."""


@click.command(
    "list",
    epilog=examples(
        "scratch list run-42",
        "scratch list run-42 | cut -f2,4     # key and bytes",
        "scratch list run-42 --json",
    ),
)
@run_argument
@json_option
@click.pass_obj
def list_entries(path: Path, run_id: str, as_json: bool) -> None:
    """List what is live in a run.

    Results, notes and artifacts of all its agents, the oldest first. A table on a terminal. In a pipe one line an
    entry, nothing cut, tabs between: kind, key, agent, bytes, tokens, tool, age and time left in seconds, preview.
    """

    async def work() -> list[EntryInfo]:
        async with open_to_read(path) as store:
            return await store.list_scratch_entries_for_run(run_id)

    entries = run(work())
    if as_json:
        print_json([asdict(info) for info in entries])
    elif entries:
        print_entries(entries, now_ms(system_clock))
    else:
        print_note(f"nothing is live in run {run_id!r}")


@click.command(epilog=examples("scratch runs", "scratch runs | sort -t '\t' -k7 -n     # the largest last"))
@json_option
@click.pass_obj
def runs(path: Path, as_json: bool) -> None:
    """List the runs, the newest first.

    With what is live in them. In a pipe: run, owner, all agents (commas between), seconds since it began and
    since it ended, entries, bytes.
    """

    async def work() -> list[RunInfo]:
        async with open_to_read(path) as store:
            return await store.list_runs()

    found = run(work())
    if as_json:
        print_json([asdict(info) for info in found])
    elif found:
        print_runs(found, now_ms(system_clock))
    else:
        print_note("there is no run in this store")


@click.command(
    epilog=examples(
        "scratch show run-42 plan",
        "scratch show run-42 r_4k7hq2m9xwzt --offset 4096 --length 1000",
        "scratch show run-42 r_4k7hq2m9xwzt --raw | jq '.items[0]'",
    )
)
@run_argument
@click.argument("key")
@agent_option
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Where to start; 0.")
@click.option("--length", type=click.IntRange(min=1), metavar="BYTES", help="How much; to the end when not said.")
@click.option("--raw", is_flag=True, help="Exactly the stored bytes, control characters included.")
@click.pass_obj
def show(path: Path, run_id: str, key: str, agent: str | None, offset: int, length: int | None, raw: bool) -> None:
    """Show a stored result, a note or an artifact.

    All of it, or a range of bytes. A range never cuts a character; with --raw it is exact. Without --raw what a
    terminal would obey is shown as an escape, and what is not UTF-8 as base64.
    """
    run(_show(path, run_id, key, agent, offset, length, raw=raw))


async def _show(
    path: Path, run_id: str, key: str, agent: str | None, offset: int, length: int | None, *, raw: bool
) -> None:
    async with open_to_read(path) as store:
        info = pick(await store.list_scratch_entries_for_run(run_id), run_id, key, agent)
        info, read = await _reader(await store.run(run_id, agent_id=info.agent_id), info)
        stop = info.size if length is None else min(info.size, offset + length)
        if raw:
            async with aclosing(_exact(read, offset, stop, MAX_LENGTH)) as pieces:
                async for data in pieces:
                    write_bytes(data)
            return
        if info.size == 0:
            print_note("the content is empty (0 bytes)")
        elif offset >= info.size:
            print_note(f"nothing there: the content ends at byte {info.size}")
        elif info.media_type == BINARY:
            print_note("this is not text: shown as base64; --raw gives the bytes")
            async with aclosing(_exact(read, offset, stop, BASE64_BYTES)) as pieces:
                async for data in pieces:
                    write_base64(data)
            _say_where(offset, stop, info.size)
        else:
            await _show_text(read, offset, stop, info.size)


async def _show_text(read: Read, offset: int, stop: int, size: int) -> None:
    first, end, last = None, offset, ""
    async with aclosing(_windows(read, offset, stop)) as windows:
        async for window in windows:
            first = window.offset if first is None else first
            end, last = window.end, window.text
            write(escape_block(last))
    if not last.endswith("\n"):
        write("\n")
    _say_where(offset if first is None else first, end, size)


def _say_where(start: int, end: int, size: int) -> None:
    """A piece must not be taken for the whole."""
    if start > 0 or end < size:
        more = f"; go on with --offset {end}" if end < size else ""
        print_note(f"bytes [{start}, {end}) of {size}{more}")


async def _reader(scope: RunScratch, info: EntryInfo) -> tuple[EntryInfo, Read]:
    """How to read windows of an entry. A note is read once, so that all windows are of one version."""
    if info.kind is not Kind.NOTE:
        return info, lambda offset, length: scope.read_handle(info.key, offset=offset, length=length)
    note = await scope.read(info.key)
    binary = note.info.media_type == BINARY

    async def read(offset: int, length: int) -> Window:
        return cut_window(note.content, 0, offset=offset, length=length, size=note.info.size, binary=binary)

    return note.info, read


async def _windows(read: Read, offset: int, stop: int) -> AsyncGenerator[Window, None]:
    """The windows of ``[offset, stop)``, whose ends move back to where a character starts."""
    while offset < stop:
        window = await read(offset, min(MAX_LENGTH, stop - offset))
        yield window
        if stop - offset <= MAX_LENGTH:
            return  # what is left are the first bytes of a character
        offset = window.end


async def _exact(read: Read, offset: int, stop: int, length: int) -> AsyncGenerator[bytes, None]:
    """The bytes of ``[offset, stop)`` in pieces of ``length`` (the last one shorter), inside characters too."""
    rest = b""
    while offset < stop:
        # a window may start before the offset and end before what was asked, by less than a character each
        window = await read(offset, min(MAX_LENGTH, stop - offset + MARGIN))
        rest += window.data[offset - window.offset : stop - window.offset]
        offset = window.end
        if len(rest) >= length:
            yield rest[:length]
            rest = rest[length:]
    while rest:
        yield rest[:length]
        rest = rest[length:]


@click.command(
    epilog=examples(
        "scratch find run-42 r_4k7hq2m9xwzt CrashLoopBackOff",
        "scratch find run-42 r_4k7hq2m9xwzt error --ignore-case --context 80 --max-windows 50",
        "scratch find run-42 r_4k7hq2m9xwzt error --json | jq .total_matches",
    )
)
@run_argument
@click.argument("handle")
@click.argument("text")
@agent_option
@click.option("--ignore-case", is_flag=True, help="Compare in lower case.")
@click.option(
    "--context",
    type=click.IntRange(min=0),
    default=DEFAULT_CONTEXT,
    show_default=True,
    metavar="BYTES",
    help="How much to show on either side.",
)
@click.option(
    "--max-windows",
    type=click.IntRange(min=1),
    default=DEFAULT_WINDOWS,
    show_default=True,
    metavar="N",
    help="How many places to show.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Where to start; 0.")
@json_option
@click.pass_obj
def find(
    path: Path,
    run_id: str,
    handle: str,
    text: str,
    agent: str | None,
    ignore_case: bool,
    context: int,
    max_windows: int,
    offset: int,
    as_json: bool,
) -> None:
    """Find TEXT in a stored result or an artifact.

    Literally, and with what stands around each match. The whole result is searched, whatever is shown. In a pipe one
    line a window: start, end, where the matches start (commas between), text. Finding nothing is no failure.
    """

    async def work() -> Matches:
        async with open_to_read(path) as store:
            info = pick(await store.list_scratch_entries_for_run(run_id), run_id, handle, agent)
            if info.kind is Kind.NOTE:
                raise failure(f"{handle!r} is a note, and these are shown whole: scratch show RUN KEY")
            scope = await store.run(run_id, agent_id=info.agent_id)
            return await scope.read_handle(
                handle,
                match=text,
                ignore_case=ignore_case,
                context=context,
                max_windows=max_windows,
                offset=offset,
            )

    matches = run(work())
    if as_json:
        print_json(asdict(matches))
        return
    print_matches(matches, text)
    shown = sum(len(window.matches) for window in matches.windows)
    said = f"{counted(matches.total_matches, 'match', 'matches')} in the {matches.searched_bytes:,} bytes searched"
    if matches.next_offset is not None:
        said += f", {shown} shown; go on with --offset {matches.next_offset}"
    print_note(f"{matches.note} {said}" if matches.note else said)
