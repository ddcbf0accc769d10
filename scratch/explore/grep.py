"""Searching the lines of a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from scratch.explore.lines import EMPTY, Page, cut_line, line_spans
from scratch.explore.look import Call, ExploreError, Look, TooLarge
from scratch.explore.patterns import BLOCK, Matcher, compile_pattern
from scratch.explore.text import Text
from scratch.windows import check_count

SECONDS = 10.0
"""After that a search stops, and says so."""
_OFFSETS = 20
"""Matches of one line whose offsets are shown."""
_LEAST_BYTES = 3
"""Bytes that a match that is shown needs at least."""


@dataclass(slots=True)
class _Line:
    """A matching line that is to be shown: where its matches start, the first ones, and how many there are."""

    number: int
    offsets: list[int]
    matches: int = 1


@dataclass(frozen=True, slots=True)
class _Request:
    """A search as it was asked for."""

    pattern: str
    literal: bool
    ignore_case: bool
    context: int
    max_matches: int

    def call(self, **changes: object) -> Call:
        """The same search, but for the changes."""
        arguments: dict[str, object] = {"pattern": self.pattern}
        if self.literal:
            arguments["literal"] = True
        if self.ignore_case:
            arguments["ignore_case"] = True
        return Call("grep", {**arguments, "context": self.context, "max_matches": self.max_matches, **changes})

    def smaller(self, shown: int) -> tuple[Call, ...]:
        """Searches that show less than this one, which shows ``shown`` matches."""
        calls = []
        if shown > 1:
            calls.append(self.call(max_matches=shown // 2))
        if self.context:
            calls.append(self.call(max_matches=shown, context=0))
        return tuple(calls)


class _TimeUp(Exception):
    """The search has taken too long."""


@dataclass(slots=True)
class _Found:
    """What a search found: all is counted, the first ``max_matches`` matches are kept."""

    request: _Request
    room: int
    deadline: float
    lines: int = 0
    matches: int = 0
    regions: int = 0
    shown: list[_Line] = field(default_factory=list)
    shown_matches: int = 0
    shown_regions: int = 0
    next_line: int | None = None
    """The first matching line that is not shown."""
    searched: int = 0
    """Bytes up to which all was searched, when time was up."""
    too_long: list[int] = field(default_factory=list)
    """Lines in which a match could have been missed."""
    last_line: int = 0
    """Where the last match was."""

    def add(self, number: int, offset: int) -> None:
        """A match in line ``number`` at byte ``offset``.

        Raises:
            TooLarge: what is kept up to now has no room.
        """
        self.matches += 1
        if number == self.last_line:
            if self.next_line is None:
                line = self.shown[-1]
                line.matches += 1
                if self.shown_matches < self.request.max_matches and len(line.offsets) < _OFFSETS:
                    line.offsets.append(offset)
                    self.shown_matches += 1
            self.check_time(offset)
            return
        self.lines += 1
        if self.last_line == 0 or number - self.last_line > 2 * self.request.context + 1:
            self.regions += 1
        self.last_line = number
        if self.shown_matches < self.request.max_matches:
            self.shown.append(_Line(number, [offset]))
            self.shown_matches += 1
            self.shown_regions = self.regions
            if self.shown_matches * _LEAST_BYTES > self.room:
                raise TooLarge(self.shown_matches * _LEAST_BYTES, self.request.smaller(self.shown_matches))
        elif self.next_line is None:
            self.next_line = number
        self.check_time(offset)

    def check_time(self, offset: int) -> None:
        """Stop the search when it has taken too long; up to byte ``offset`` all was searched."""
        if monotonic() > self.deadline:
            self.searched = offset
            raise _TimeUp


def grep(
    text: Text, *, pattern: str, literal: bool, ignore_case: bool, context: int, max_matches: int, room: int
) -> Look:
    """The lines that match, with the lines around them. A match lies within one line.

    Args:
        text: Where to search. All of it is searched, whatever is shown.
        pattern: A regular expression (RE2) of 1 to 1,024 bytes, or a text.
        literal: ``pattern`` is the text to search for.
        ignore_case: Letters match in either case.
        context: Lines shown before and after a matching line, 0 or more.
        max_matches: Matches shown, 1 or more; all are counted. Matches that are empty count once a line.
        room: Bytes that the answer may have.

    Raises:
        InvalidArgument: a number is none.
        ExploreError: ``invalid_argument``, ``bad_pattern`` or ``pattern_too_slow``.
        TooLarge: more than ``room`` bytes are needed.
    """
    check_count(context, "context", least=0)
    check_count(max_matches, "max_matches", least=1)
    request = _Request(pattern, literal, ignore_case, context, max_matches)
    as_literal = request.call(literal=True)
    matcher = compile_pattern(pattern, literal=literal, ignore_case=ignore_case, as_literal=as_literal)
    if text.size == 0:
        return Look("", EMPTY)
    found = _Found(request, room, monotonic() + SECONDS)
    stopped = False
    try:
        _search(text, matcher, found)
    except _TimeUp:
        stopped = True
        if not found.matches:
            raise ExploreError(
                "pattern_too_slow",
                f"no match in the first {found.searched:,} of {text.size:,} bytes, searched for {SECONDS:g} s; "
                "use a simpler pattern or literal=true",
                (as_literal,),
                searched_bytes=found.searched,
            ) from None
    smaller = request.smaller(found.shown_matches) if found.matches else ()
    return Look(_render(text, found, smaller), _covered(text, found, stopped=stopped), smaller)


def _search(text: Text, matcher: Matcher, found: _Found) -> None:
    """Search all of a text, by whole lines."""
    block_size = min(BLOCK, matcher.window)
    start, number = 0, 1
    while start < text.size:
        found.check_time(start)
        block = text.read(start, start + block_size)
        if start + len(block) < text.size:
            block = block[: block.rfind(b"\n") + 1]
        if not block:  # a line longer than that
            end = text.line_end(start)
            _search_long_line(text, (start, end, number), matcher, found)
            start = end + (2 if text.read(end, end + 1) == b"\r" else 1)
            number += 1
            continue
        if matcher.by_line:
            _search_each_line(block, start, number, matcher, found)
        else:
            _search_block(block, start, number, matcher, found)
        start += len(block)
        number += block.count(b"\n")


def _search_block(block: bytes, base: int, number: int, matcher: Matcher, found: _Found) -> None:
    """Search whole lines at once; the first is line ``number`` and starts at byte ``base``.

    Python is entered for matches only.
    """
    # A carriage return before a newline is no part of its line. Another newline in its place keeps all offsets, and
    # makes an empty line that is none.
    returns = b"\r\n" in block
    data = block.replace(b"\r\n", b"\n\n") if returns else block
    stop = len(data) - data.endswith(b"\n")  # nor does a line start after the last newline
    counted = 0
    line_end = -1
    start = 0
    while start <= stop:
        for first, end in matcher.hits(data, start, stop):
            if first > line_end:
                if first == end and returns and block[first - 1 : first + 1] == b"\r\n":
                    continue
                number += block.count(b"\n", counted, first)
                counted = first
                line_end = block.find(b"\n", end)
                if line_end < 0:
                    line_end = len(block)
            elif first == end:
                break
            found.add(number, base + first)
            if first == end:
                break
        else:
            return
        start = line_end + 1  # an empty match could be had at each of its characters: go on with the next line


def _search_each_line(block: bytes, base: int, number: int, matcher: Matcher, found: _Found) -> None:
    """Search lines one by one, for patterns that speak of the whole text and mean the line."""
    start = 0
    for line in block.removesuffix(b"\n").split(b"\n"):
        end = start + len(line)
        data = line.removesuffix(b"\r") if end < len(block) else line
        _search_block(data, base + start, number, matcher, found)
        start = end + 1
        number += 1


def _search_long_line(text: Text, line: tuple[int, int, int], matcher: Matcher, found: _Found) -> None:
    """Search a line (its start, end and number) in pieces that overlap."""
    line_start, line_end, number = line
    if line_end - line_start > matcher.window and not matcher.bounded:
        found.too_long.append(number)
    start = line_start
    while True:
        found.check_time(start)
        # with a byte on either side, where there is one, so that ^, $ and \b see what they stand beside
        base = max(line_start, start - 1)
        stop = min(line_end, start + matcher.window)
        data = text.read(base, min(line_end, stop + 1))
        last = stop == line_end
        limit = stop if last else stop - matcher.overlap
        resume = limit
        for first, end in matcher.hits(data, start - base, stop - base):
            if not last and base + first >= limit:
                break  # the next piece has all of it
            if first == end and found.last_line == number:
                return
            found.add(number, base + first)
            if first == end:
                return
            resume = max(resume, base + end)
        if last:
            return
        start = resume


def _render(text: Text, found: _Found, smaller: tuple[Call, ...]) -> str:
    page = Page(found.room, smaller)
    context = found.request.context
    last_line = text.line_count if found.next_line is None else found.next_line - 1
    shown_up_to = 0
    for index, line in enumerate(found.shown):
        first = max(line.number - context, shown_up_to + 1)
        following = found.shown[index + 1].number if index + 1 < len(found.shown) else last_line + 1
        stop = min(line.number + context + 1, following)
        if shown_up_to and first > shown_up_to + 1:
            page.add("---", done=index, total=len(found.shown))
        for number, start, end in line_spans(text, first, stop):
            if number == line.number:
                shown = f">{number}\t{cut_line(text, start, end, around=line.offsets[0])}  {_mark(text, line)}"
            else:
                shown = f" {number}\t{cut_line(text, start, end)}"
            page.add(shown, done=index, total=len(found.shown))
        shown_up_to = stop - 1
    return page.text()


def _mark(text: Text, line: _Line) -> str:
    """Where the matches of a line are."""
    offsets = ", ".join(str(text.origin(offset)) for offset in line.offsets)
    more = line.matches - len(line.offsets)
    if more:
        return f"[bytes {offsets}, and {more:,} more]"
    return f"[byte{'s' if line.matches > 1 else ''} {offsets}]"


def _covered(text: Text, found: _Found, *, stopped: bool) -> str:
    total = _count(text.line_count, "line")
    parts = []
    if found.matches:
        parts.append(
            f"{_count(found.matches, 'match', 'es')} in {found.lines:,} of {total}, {_count(found.regions, 'region')}"
        )
        hidden = found.matches - found.shown_matches
        if hidden:
            parts.append(
                f"not shown: {_count(hidden, 'match', 'es')}, {_count(found.regions - found.shown_regions, 'region')}"
            )
    else:
        parts.append(f"no match in {total}, all searched")
        if "\n" in found.request.pattern or (not found.request.literal and "\\n" in found.request.pattern):
            parts.append("a match lies within one line: a newline in the pattern matches nothing")
    if found.too_long:
        parts.append(
            f"line {found.too_long[0]:,} is so long that it was searched in pieces: "
            "a match of more than 64 KiB in it may be missed or cut"
        )
    if stopped:
        parts.append(
            f"stopped after {SECONDS:g} s at byte {found.searched:,} of {text.size:,}: "
            "what follows was not searched or counted"
        )
    return "; ".join(parts)


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"
