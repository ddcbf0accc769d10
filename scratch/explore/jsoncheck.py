"""Whether a text is JSON: a strict check of its bytes that neither decodes nor recurses.

Flat runs are eaten in C by possessive patterns in windows of :data:`WINDOW` bytes, so that no call holds the GIL for
long; what is nested deeper, or longer than a window, is walked here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from scratch.explore.jsonscan import CLOSERS, LARGE, QUOTE, WINDOW, Buffer, run_end, space_end
from scratch.explore.text import Text
from scratch.regex import compiled

MAX_DEPTH = 512
_NESTED, _DEEPLY_NESTED = 2, 5
"""Levels that a pattern knows below its own. Its size doubles with each: five take 0.2 s to compile."""
_MANY = 2_000
"""Containers that were not flat enough until then: the deep patterns are worth it."""
_NOTED_LEVELS = 8
"""Of what is nested, the ends of every so many levels are noted too, or to walk over one level would walk over all."""
_MOST_NOTED = 100_000
_MEMO = "json.checked"
_BOM = b"\xef\xbb\xbf"
_COLON, _COMMA = b":,"

_STRING_PART = compiled(rb'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_DIGITS = compiled(rb"[0-9]*+")
_WORD = compiled(rb"true|false|null|NaN|-?Infinity")
_IN_LINE_SPACE = compiled(rb"[ \t\r]*+")


@dataclass(frozen=True, slots=True)
class Document:
    """JSON: the bytes ``[start, end)`` are one value or, with ``lines``, one value on each line that is not empty."""

    start: int
    end: int
    lines: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a text is not JSON, and at which of its bytes that shows."""

    offset: int
    reason: str


class _Broken(Exception):
    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.fault = Fault(offset, reason)


class _Patterns(NamedTuple):
    levels: int
    """How deep a container is that they know."""
    array_run: re.Pattern[bytes]
    """Items with the comma behind each."""
    object_run: re.Pattern[bytes]
    container: re.Pattern[bytes]
    """A whole array or object that is flat enough."""


@cache
def _patterns(levels: int) -> _Patterns:
    space = rb"[ \t\n\r]*+"
    string, container = _grammar(space, rb'[^"\\]', levels)
    item = rb"(?:%s|%s)" % (_scalar(string), container)
    return _Patterns(
        levels=levels,
        array_run=compiled(rb"(?:%s%s%s,)*+" % (space, item, space)),
        object_run=compiled(rb"(?:%s%s%s:%s%s%s,)*+" % (space, string, space, space, item, space)),
        container=compiled(container),
    )


@cache
def _lines_run() -> re.Pattern[bytes]:
    """Lines with the newline behind each."""
    space = rb"[ \t\r]*+"
    string, container = _grammar(space, rb'[^"\\\n]', _NESTED)
    return compiled(rb"(?:%s(?:%s|%s)%s\n)*+" % (space, _scalar(string), container, space))


def _grammar(space: bytes, character: bytes, levels: int) -> tuple[bytes, bytes]:
    """Patterns for a string, and for an array or object that is nested no deeper than ``levels``."""
    escape = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
    string = rb'"%s*+(?:"|(?:%s%s*+)++")' % (character, escape, character)
    item = _scalar(string)
    container = b""
    for _ in range(levels):
        container = (
            rb"(?:\{%(w)s(?:%(s)s%(w)s:%(w)s%(i)s%(w)s(?:,%(w)s(?!\})|(?=\})))*+\}"
            rb"|\[%(w)s(?:%(i)s%(w)s(?:,%(w)s(?!\])|(?=\])))*+\])"
        ) % {b"w": space, b"s": string, b"i": item}
        item = rb"(?:%s|%s)" % (_scalar(string), container)
    return string, container


def _scalar(string: bytes) -> bytes:
    # each alternative starts with a literal or a set: `re` then tells at once which one it is
    rest = rb"(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
    number = rb"[1-9][0-9]*+%s|0%s|-(?:0|[1-9][0-9]*+)%s" % (rest, rest, rest)
    return rb"(?:%s|%s|true|false|null|NaN|Infinity|-Infinity)" % (string, number)


def examine(text: Text) -> Document | Fault:
    """What the text is as JSON; checked once."""
    found: Document | Fault | None = text.memo.get(_MEMO)
    if found is None:
        try:
            found = _check(text.data, text.size, text.memo.setdefault(LARGE, {}))
        except _Broken as broken:
            found = broken.fault
        text.memo[_MEMO] = found
    return found


def _check(data: Buffer, size: int, large: dict[int, int]) -> Document:
    start = space_end(data, len(_BOM) if data[: len(_BOM)] == _BOM else 0, size)
    if start == size:
        raise _Broken(start, "there is nothing but white space")
    end = _value_end(data, start, size, large)
    if space_end(data, end, size) == size:
        return Document(start, end, lines=False)
    if not _ends_line(data, start, end, size):
        raise _Broken(end, "there is more text after the first value")
    return Document(start, _lines_end(data, start, size, large), lines=True)


def _lines_end(data: Buffer, at: int, size: int, large: dict[int, int]) -> int:
    run = _lines_run()
    while True:
        at = space_end(data, run.match(data, at, min(at + WINDOW, size)).end(), size)  # type: ignore[union-attr]  # a run may be empty
        if at == size:
            return size
        end = _value_end(data, at, size, large)
        if not _ends_line(data, at, end, size):
            raise _Broken(end, "this line is not one JSON value")
        at = end


def _ends_line(data: Buffer, start: int, end: int, size: int) -> bool:
    """Whether the value ``[start, end)`` is on one line, and the line ends after it."""
    for at in range(start, end, WINDOW):
        if data.find(b"\n", at, min(at + WINDOW, end)) >= 0:
            return False
    end = run_end(_IN_LINE_SPACE, data, end, size)
    return end == size or data[end] == ord("\n")


def _value_end(data: Buffer, at: int, size: int, large: dict[int, int]) -> int:
    """Where the value that starts at ``at`` ends. Notes the ends of long and of deep ones in ``large``."""
    patterns, pushed = _patterns(_NESTED), 0
    stack: list[tuple[int, int]] = []  # where each open container starts, and with which byte
    while True:
        if stack:
            at = _next_value(data, at, size, stack, patterns)
        first = data[at] if at < size else 0
        if first in CLOSERS:
            shallow = len(stack) + patterns.levels <= MAX_DEPTH
            if shallow and (found := patterns.container.match(data, at, min(at + WINDOW, size))):
                at = found.end()
            else:
                if len(stack) == MAX_DEPTH:
                    raise _Broken(at, f"nested deeper than {MAX_DEPTH} levels")
                stack.append((at, first))
                pushed += 1
                if pushed == _MANY:
                    patterns = _patterns(_DEEPLY_NESTED)
                at = space_end(data, at + 1, size)
                if at == size or data[at] != CLOSERS[first]:
                    continue
        else:
            start, at = at, _scalar_end(data, at, size, stack)
            if at - start >= WINDOW:
                large[start] = at
        at = _closed(data, at, size, stack, large)
        if not stack:
            return at


def _next_value(data: Buffer, at: int, size: int, stack: list[tuple[int, int]], patterns: _Patterns) -> int:
    """Go past the values that the patterns know, and past the key, to the next value of the innermost container."""
    kind = stack[-1][1]
    if len(stack) + patterns.levels <= MAX_DEPTH:
        run = patterns.array_run if kind == ord("[") else patterns.object_run
        if (found := run.match(data, at, min(at + WINDOW, size))) and found.end() > at:
            at = _after_comma(data, found.end(), size, kind)
    return _key_end(data, at, size) if kind == ord("{") else at


def _closed(data: Buffer, at: int, size: int, stack: list[tuple[int, int]], large: dict[int, int]) -> int:
    """Go past what follows a value, or an opening bracket: closing brackets, and the comma before the next value."""
    while stack:
        at = space_end(data, at, size)
        start, kind = stack[-1]
        following = data[at] if at < size else 0
        if following == _COMMA:
            return _after_comma(data, at + 1, size, kind)
        if following != CLOSERS[kind]:
            raise _broken(data, at, size, f"a comma or {chr(CLOSERS[kind])!r}", stack)
        at += 1
        stack.pop()
        if at - start >= WINDOW or (stack and len(stack) % _NOTED_LEVELS == 0 and len(large) < _MOST_NOTED):
            large[start] = at
    return at


def _after_comma(data: Buffer, at: int, size: int, kind: int) -> int:
    at = space_end(data, at, size)
    if at < size and data[at] == CLOSERS[kind]:
        raise _Broken(at, f"a comma before {chr(data[at])!r}")
    return at


def _key_end(data: Buffer, at: int, size: int) -> int:
    """Go past a key and its colon to the value."""
    if at == size or data[at] != QUOTE:
        raise _broken(data, at, size, "a key in double quotes")
    at = space_end(data, _string_end(data, at, size), size)
    if at == size or data[at] != _COLON:
        raise _broken(data, at, size, "a colon after the key")
    return space_end(data, at + 1, size)


def _scalar_end(data: Buffer, at: int, size: int, stack: list[tuple[int, int]]) -> int:
    if at < size and data[at] == QUOTE:
        return _string_end(data, at, size)
    if word := _WORD.match(data, at, size):
        return word.end()
    return _number_end(data, at, size, stack)


def _number_end(data: Buffer, at: int, size: int, stack: list[tuple[int, int]]) -> int:
    """A number of any length, part by part."""
    start = at
    at += data[at : at + 1] == b"-"
    end = run_end(_DIGITS, data, at, size)
    if end == at:
        raise _broken(data, start, size, "a value", stack)
    if data[at] == ord("0"):
        end = at + 1
    if data[end : end + 1] == b".":
        at, end = end + 1, run_end(_DIGITS, data, end + 1, size)
        if end == at:
            raise _broken(data, end, size, "a digit")
    if data[end : end + 1] in {b"e", b"E"}:
        at = end + 1 + (data[end + 1 : end + 2] in {b"+", b"-"})
        end = run_end(_DIGITS, data, at, size)
        if end == at:
            raise _broken(data, end, size, "a digit")
    return end


def _string_end(data: Buffer, start: int, size: int) -> int:
    at = start + 1
    while at < size:
        end = _STRING_PART.match(data, at, min(at + WINDOW, size)).end()  # type: ignore[union-attr]  # a part may be empty
        if end < size and data[end] == QUOTE:
            return end + 1
        if end == at:
            raise _Broken(at, "an escape that JSON does not have" if at + 1 < size else "the text ends in a string")
        at = end
    raise _Broken(size, f"the text ends in the string that starts at byte {start}")


def _broken(data: Buffer, at: int, size: int, expected: str, stack: list[tuple[int, int]] | None = None) -> _Broken:
    if at < size:
        return _Broken(at, f"{_shown(data[at])} where {expected} should be")
    if stack:
        start, kind = stack[-1]
        what = "array" if kind == ord("[") else "object"
        return _Broken(at, f"the text ends in the {what} that starts at byte {start}")
    return _Broken(at, f"the text ends where {expected} should be")


def _shown(byte: int) -> str:
    return repr(chr(byte)) if ord(" ") <= byte < 127 else f"the byte 0x{byte:02x}"  # noqa: PLR2004  # ASCII
