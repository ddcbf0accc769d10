"""Lines as a model sees them: numbered, and cut where they are long."""

from __future__ import annotations

from collections.abc import Iterator

from scratch.entries import decode_text
from scratch.explore.look import Call, ExploreError, Look, TooLarge, written
from scratch.explore.text import Text, shown
from scratch.windows import MARGIN, check_count, is_boundary

MAX_LINE = 2_000
"""Characters of a line that are shown."""
_BEFORE = 500
"""Bytes shown before what a long line is shown for."""
_MAX_BYTES = 4 * MAX_LINE
EMPTY = "the content is empty, do not retry"
GREP_ERRORS = Call("grep", {"pattern": "error", "ignore_case": True, "max_matches": 20})
"""What is likely to help where there are too many lines."""


def head(text: Text, *, lines: int, room: int) -> Look:
    """The first ``lines`` lines (1 or more).

    Raises:
        InvalidArgument: ``lines`` is no such number.
        TooLarge: they need more than ``room`` bytes.
    """
    count = min(check_count(lines, "lines", least=1), text.line_count)
    if count == 0:
        return Look("", EMPTY)
    half = (Call("head", {"lines": count // 2}),) if count > 1 else ()
    smaller = (*half, GREP_ERRORS)
    return Look(numbered(text, 1, count + 1, room, smaller), covered_lines(text, 1, count + 1), smaller)


def slice_lines(text: Text, *, start: int, end: int, room: int) -> Look:
    """The lines ``start`` to ``end``, both included, from 1 on. What is past the last line is left out.

    Raises:
        InvalidArgument: ``start`` or ``end`` is no such number.
        ExploreError: ``invalid_argument``: ``start`` is after ``end``.
        TooLarge: they need more than ``room`` bytes.
    """
    check_count(start, "start", least=1)
    check_count(end, "end", least=1)
    if start > end:
        raise ExploreError(
            "invalid_argument",
            f"start ({start:,}) is after end ({end:,}); both are line numbers, and both lines are shown",
            (Call("slice", {"start": end, "end": start}),),
            argument="start",
        )
    total = text.line_count
    if total == 0:
        return Look("", EMPTY)
    if start > total:
        return Look("", f"no lines: {start:,} is past the last line, {total:,}")
    last = min(end, total)
    count = last - start + 1
    half = (Call("slice", {"start": start, "end": start + count // 2 - 1}),) if count > 1 else ()
    smaller = (*half, GREP_ERRORS)
    covered = covered_lines(text, start, last + 1)
    if end > total:
        covered += f" (there is no line {end:,})"
    return Look(numbered(text, start, last + 1, room, smaller), covered, smaller)


def covered_lines(text: Text, first: int, stop: int) -> str:
    """The lines ``[first, stop)`` as the footer says it."""
    return f"lines [{first}..{stop}) of {text.line_count:,}"


def numbered(text: Text, first: int, stop: int, room: int, smaller: tuple[Call, ...]) -> str:
    """The lines ``[first, stop)``, each with its number and a tab before it.

    Raises:
        TooLarge: they need more than ``room`` bytes.
    """
    page = Page(room, smaller)
    for number, start, end in line_spans(text, first, stop):
        page.add(f"{number}\t{cut_line(text, start, end)}", done=number - first, total=stop - first)
    return page.text()


def line_spans(text: Text, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end (of what is shown) of the lines ``[first, stop)``, as far as there are any."""
    start = text.line_start(first)
    for number in range(first, stop):
        if start >= text.size:
            return
        end = text.line_end(start)
        yield number, start, end
        start = end + (2 if text.read(end, end + 1) == b"\r" else 1)


def cut_line(text: Text, start: int, end: int, *, around: int | None = None) -> str:
    """The line from byte ``start`` to ``end``; where it is long, its first 2,000 characters.

    Args:
        text: Where the line is.
        start: Where it starts.
        end: Where it ends.
        around: The byte that shall be among the 2,000 characters, instead of the first ones.
    """
    if end - start <= MAX_LINE:
        return shown(text.read(start, end))
    if end - start <= _MAX_BYTES and len(decode_text(text.read(start, end))) <= MAX_LINE:
        return shown(text.read(start, end))
    first = start
    if around is not None:
        first = _boundary(text, max(start, min(around - _BEFORE, end - MAX_LINE)))
    read = min(end, first + _MAX_BYTES + MARGIN)
    part = _first_characters(text.read(first, read), to_the_end=read == end)
    stop = first + len(part)
    before, after = "", ""
    if first > start:
        offset = text.origin(start)
        before = f"[cut: the line starts at byte {offset}: {_read_on(offset)}] … "
    if stop < end:
        offset = text.origin(stop)
        after = f"… [cut: the line goes on at byte {offset}: {_read_on(offset)}]"
    return before + shown(part) + after


def _boundary(text: Text, offset: int) -> int:
    """``offset``, or where the character starts that it lies in."""
    for back in range(MARGIN):
        if is_boundary(text.read(offset - back, offset - back + 1), 0):
            return offset - back
    return offset  # this is not UTF-8


def _first_characters(data: bytes, *, to_the_end: bool) -> bytes:
    """The first 2,000 characters; where they are not UTF-8, the first 2,000 bytes."""
    stop = len(data)
    if not to_the_end:  # without the last character, which may be half of one: there are enough
        while stop > len(data) - MARGIN and not is_boundary(data, stop - 1):
            stop -= 1
        stop -= 1
    try:
        characters = data[:stop].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data[:MAX_LINE]
    return characters[:MAX_LINE].encode("utf-8", "surrogatepass")


def _read_on(offset: int) -> str:
    return written(Call("read_handle", {"offset": offset}))


class Page:
    """Lines of an answer, as long as there is room."""

    def __init__(self, room: int, smaller: tuple[Call, ...]) -> None:
        self._room = room
        self._smaller = smaller
        self._lines: list[str] = []
        self._size = -1  # no newline at the end

    def add(self, line: str, *, done: int, total: int) -> None:
        """Add a line, after ``done`` of ``total``.

        Raises:
            TooLarge: it does not fit; all of them are estimated from what was added up to now.
        """
        self._size += len(line.encode()) + 1
        if self._size > self._room:
            raise TooLarge(self._size * max(total, 1) // (done + 1), self._smaller)
        self._lines.append(line)

    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self._lines)
