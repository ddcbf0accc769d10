"""How what the store hands out looks, and the only module that touches rich.

On a terminal there are tables; in a pipe there is one line an entry, with tabs between whole, exact values. Content is
data: it gets to rich as escaped ``Text``, never as markup. ``FORCE_COLOR`` does not colour a pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, JustifyMethod, OverflowMethod
from rich.table import Table
from rich.text import Text

from scratch.cli.text import encodable, on_terminal, output_encoding, print_fields, print_line
from scratch.entries import EntryInfo, RunInfo, decode_text
from scratch.visible import escape, escape_block
from scratch.windows import Matches, MatchWindow

_GAP = 2
_HANDLE = 14
_LEAST_PREVIEW = 24
"""Columns of a terminal, like the two above."""


def print_entries(entries: Sequence[EntryInfo], now: int) -> None:
    """The live entries of a run.

    In a pipe each line has: kind, key, agent, bytes, tokens, tool, age and time left in seconds, preview.

    Args:
        entries: Of one run; their agents are shown when there are several.
        now: Milliseconds since the epoch.
    """
    if on_terminal():
        _print_entry_table(entries, now)
        return
    for info in entries:
        age, left = max(0, now - info.created_at) // 1000, max(0, info.expires_at - now) // 1000
        tool = info.source_tool
        print_fields(info.kind, info.key, info.agent_id, info.size, info.tokens, tool, age, left, info.preview)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    value: Callable[[EntryInfo], str]
    folded_at: int = 256
    justify: JustifyMethod = "left"
    style: str = ""


def _print_entry_table(entries: Sequence[EntryInfo], now: int) -> None:
    """As a table; the previews are its last column, or lines of their own where the window is too narrow for that."""
    columns = [
        _Column("kind", lambda info: info.kind),
        _Column("key", lambda info: info.key, 24, style="cyan"),
        _Column("agent", lambda info: info.agent_id, 16),
        _Column("bytes", lambda info: f"{info.size:,}", justify="right"),
        _Column("tokens", lambda info: "-" if info.tokens is None else f"{info.tokens:,}", justify="right"),
        _Column("tool", lambda info: info.source_tool or "-", 16),
        _Column("age", lambda info: duration(now - info.created_at), justify="right"),
        _Column("expires in", lambda info: duration(info.expires_at - now), justify="right"),
    ]
    if len({info.agent_id for info in entries}) == 1:
        columns = [column for column in columns if column.name != "agent"]
    rows = [[_cell(column.value(info), column.style) for column in columns] for info in entries]
    widths = [
        min(column.folded_at, max(len(column.name), *(row[index].cell_len for row in rows)))
        for index, column in enumerate(columns)
    ]
    console = _console()
    used = sum(widths) + _GAP * len(columns)
    if used > console.width:  # the key alone may be long: fold it harder, but never a handle
        used -= max(0, widths[1] - _HANDLE)
        widths[1] = min(widths[1], _HANDLE)
    # the ellipsis is rich's own character, which not every encoding has
    cut: OverflowMethod = "ellipsis" if output_encoding().lower().startswith("utf") else "crop"
    is_wide = console.width - used >= _LEAST_PREVIEW
    # a window that is even narrower breaks the lines by itself: better that than a handle that is cut
    fitting = _console(width=max(console.width, used))

    def new_table(*, header: bool) -> Table:
        table = _new_table(header=header)
        for column, width in zip(columns, widths, strict=True):
            table.add_column(column.name, width=width, justify=column.justify, overflow="fold")
        if is_wide:
            table.add_column("preview", width=console.width - used, no_wrap=True, overflow=cut)
        return table

    table = new_table(header=True)
    for row, info in zip(rows, entries, strict=True):
        preview = _cell(info.preview, "dim")
        if is_wide:
            table.add_row(*row, preview)
            continue
        table.add_row(*row)
        fitting.print(table)
        console.print(Text("  ").append_text(preview), no_wrap=True, overflow=cut)
        table = new_table(header=False)
    if is_wide:
        fitting.print(table)


def print_runs(runs: Sequence[RunInfo], now: int) -> None:
    """All runs. In a pipe: run, owner, all agents (commas), seconds since it began and ended, entries, bytes.

    Args:
        runs: As the store lists them.
        now: Milliseconds since the epoch.
    """
    if on_terminal():
        _console().print(_run_table(runs, now))
        return
    for run in runs:
        age = max(0, now - run.created_at) // 1000
        ended = None if run.completed_at is None else max(0, now - run.completed_at) // 1000
        print_fields(run.run_id, run.agent_id, ",".join(run.agents), age, ended, run.entries, run.size)


def _run_table(runs: Sequence[RunInfo], now: int) -> Table:
    table = _new_table()
    table.add_column("run", overflow="fold")
    table.add_column("agents", overflow="fold")
    table.add_column("age", justify="right", overflow="fold")
    table.add_column("state", overflow="fold")
    for name in ("entries", "bytes"):
        table.add_column(name, justify="right", overflow="fold")
    for run in runs:
        others = [agent for agent in run.agents if agent != run.agent_id]
        table.add_row(
            _cell(run.run_id, "cyan"),
            _cell(", ".join([run.agent_id, *others])),
            _cell(duration(now - run.created_at)),
            _cell("open" if run.completed_at is None else f"ended {duration(now - run.completed_at)} ago"),
            _cell(f"{run.entries:,}"),
            _cell(f"{run.size:,}"),
        )
    return table


def print_figures(figures: Sequence[tuple[str, int, str]]) -> None:
    """Named figures with their unit, one a line; in a pipe: name, exact figure, unit."""
    name_width = max(len(name) for name, _, _ in figures)
    width = max(len(f"{figure:,}") for _, figure, _ in figures)
    for name, figure, unit in figures:
        if on_terminal():
            print_line(f"{name:<{name_width}}  {figure:>{width},} {unit}".rstrip())
        else:
            print_fields(name, figure, unit)


def print_matches(matches: Matches, pattern: str) -> None:
    """The windows around matches. In a pipe one line each: start, end, starts of the matches (commas), text."""
    for window in matches.windows:
        starts = [str(start) for start in window.matches]
        if on_terminal():
            console = _console()
            place = f"bytes [{window.offset}, {window.end}), found at {', '.join(starts)}"
            console.print(_cell(place, "bold"), soft_wrap=True)
            console.print(_highlighted(window, pattern, binary=matches.encoding == "base64"), soft_wrap=True)
        else:
            print_fields(window.offset, window.end, ",".join(starts), window.text)


def _highlighted(window: MatchWindow, pattern: str, *, binary: bool) -> Text:
    text = Text()
    if binary:
        return text.append(window.text)
    data = window.text.encode("utf-8", "surrogatepass")
    position = 0  # in data
    for start in (start - window.offset for start in window.matches):
        # a match in another case has as many characters as the pattern, but perhaps not as many bytes
        match = decode_text(data[start:])[: len(pattern)]
        text.append(_block(decode_text(data[position:start]))).append(_block(match), style="bold red")
        position = start + len(match.encode("utf-8", "surrogatepass"))
    return text.append(_block(decode_text(data[position:])))


def duration(milliseconds: int) -> str:
    """How long, in its largest unit or two: 42s, 12m, 2h 5m, 3d 4h."""
    minutes, seconds = divmod(max(0, milliseconds // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m" if minutes else f"{seconds}s"


def _console(width: int | None = None) -> Console:
    # only for terminals: so rich need not guess, and FORCE_COLOR has nothing to say
    return Console(file=sys.stdout, width=width, force_terminal=True, highlight=False, markup=False, emoji=False)


def _new_table(*, header: bool = True) -> Table:
    return Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold", show_header=header)


def _cell(text: str, style: str = "") -> Text:
    return Text(encodable(escape(text)), style=style)


def _block(text: str) -> str:
    return encodable(escape_block(text))
