"""Walking over the bytes of JSON that was checked: where values, members and items start and end.

Nothing is decoded, nothing recurses, and no call of a pattern sees more than :data:`WINDOW` bytes, so that the GIL is
never held for long. Offsets are bytes of the buffer; ``start`` is a value's first byte, ``end`` the one after its last.
"""

from __future__ import annotations

import functools
import json
import mmap
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from scratch.explore.text import Text
from scratch.regex import compiled

Buffer = bytes | mmap.mmap
WINDOW = 64 * 1024
"""Bytes that one call of a pattern may look at: a millisecond or two."""
STRIDE = 16
"""Every item of this number is in an index; the others are found by walking on from there."""
LARGE = "json.large"
"""Where in a text's memo the ends of its values of a window or more, and of some deep ones, are, by their starts."""

MAX_NESTING = 6
"""Levels of objects in an object whose keys are counted."""
_MAX_KEYS = 1_000
"""Different keys that are counted: objects that serve as tables would have one for each row."""

QUOTE = ord('"')
CLOSERS: Mapping[int, int] = {ord("["): ord("]"), ord("{"): ord("}")}
_SPACES = b" \t\n\r"
_COMMA, _OBJECT = b",{"
_LAST = 3
"""The group of a member that is there in the last one."""
_LONGEST_KEY, _SHOWN_KEY = WINDOW, 200

# What was checked can be told apart by brackets and quotes alone.
_STRING = rb'"[^"\\]*+(?:"|(?:\\.[^"\\]*+)++")'
_CONTENT = rb'[^][{}"]++|%s' % _STRING
_NESTED = functools.reduce(lambda inner, _: rb"[\[{](?:%s|%s)*+[]}]" % (_CONTENT, inner), range(6), rb"[\[{][]}]")
_ITEM = rb'(?:%s|%s|[^][{}",:\s]++)' % (_STRING, _NESTED)

_SPACE = compiled(rb"[ \t\n\r]*+")
_STRING_PART = compiled(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SCALAR = compiled(rb'[^][{}",:\s]*+')
_CONTAINER = compiled(_NESTED, re.DOTALL)
_BETWEEN_BRACKETS = compiled(rb'(?:[^][{}"]++|%s|%s)*+' % (_STRING, _NESTED), re.DOTALL)
# These match nothing where they do not match: `finditer` then stays at the place, instead of going on behind it.
_ITEM_AND_COMMA = compiled(rb"(?:(%s)\s*+,\s*+)?+" % _ITEM, re.DOTALL)
_MEMBER = compiled(rb"(?:(%s)\s*+:\s*+(%s)\s*+(?:,|(\}))\s*+)?+" % (_STRING, _ITEM), re.DOTALL)
_STRIDE_RUN = compiled(rb"(?:%s\s*+,\s*+){%d}" % (_ITEM, STRIDE), re.DOTALL)
_STRIDE_OF_LINES = compiled(rb"(?:%s[ \t\r]*+\n\s*+){%d}" % (_ITEM, STRIDE), re.DOTALL)


class Span(NamedTuple):
    """A value: the bytes ``[start, end)``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ItemIndex:
    """How many items an array has, and where every :data:`STRIDE`-th of them starts."""

    count: int
    starts: array[int]


def run_end(part: re.Pattern[bytes], data: Buffer, at: int, size: int) -> int:
    """Where a run of any length ends; ``part`` matches as much of it as a window holds, maybe nothing."""
    while found := part.match(data, at, min(at + WINDOW, size)):
        if found.end() < at + WINDOW:
            return found.end()
        at = found.end()
    return at


def space_end(data: Buffer, at: int, size: int) -> int:
    """The first byte from ``at`` on that is no white space."""
    if at < size and data[at] in _SPACES:
        return run_end(_SPACE, data, at, size)
    return at


def string_end(data: Buffer, start: int, size: int) -> int:
    """Where the string that starts at ``start`` ends."""
    at = start + 1
    while found := _STRING_PART.match(data, at, min(at + WINDOW, size)):
        at = found.end()
        if at >= size or data[at] == QUOTE:
            break
    return at + 1


def value_end(text: Text, start: int) -> int:
    """Where the value that starts at ``start`` ends."""
    data, size = text.data, text.size
    large: Mapping[int, int] = text.memo.get(LARGE, {})
    if start in large:
        return large[start]
    first = data[start]
    if first == QUOTE:
        return string_end(data, start, size)
    if first not in CLOSERS:
        return run_end(_SCALAR, data, start, size)
    if found := _CONTAINER.match(data, start, min(start + WINDOW, size)):
        return found.end()
    at, depth = start + 1, 1
    while depth:
        at = run_end(_BETWEEN_BRACKETS, data, at, size)
        if data[at] == QUOTE:  # too long for the pattern
            at = string_end(data, at, size)
        elif data[at] in CLOSERS:  # too long or too deep for it
            if at in large:
                at = large[at]
            else:
                at, depth = at + 1, depth + 1
        else:
            at, depth = at + 1, depth - 1
    return at


def members(text: Text, start: int) -> Iterator[tuple[bytes, int]]:
    """The members of the object that starts at ``start``: each key as it is written, and where its value starts.

    A key of more than 64 KiB is cut, and has its place in it so that it stays another one.
    """
    data, size = text.data, text.size
    at = space_end(data, start + 1, size)
    while data[at] == QUOTE:
        for found in _MEMBER.finditer(data, at, min(at + WINDOW, size)):
            if found.end() == at:
                break
            yield found[1], found.start(2)
            if found.lastindex == _LAST:
                return
            at = found.end()
        # the next one is not within the window, or nested deeper than the pattern
        at = space_end(data, at, size)
        key_end = string_end(data, at, size)
        value = space_end(data, space_end(data, key_end, size) + 1, size)
        yield _key(data, at, key_end), value
        at = space_end(data, value_end(text, value), size)
        if data[at] != _COMMA:
            return
        at = space_end(data, at + 1, size)


def _key(data: Buffer, start: int, end: int) -> bytes:
    if end - start <= _LONGEST_KEY:
        return data[start:end]
    found = _STRING_PART.match(data, start + 1, start + _SHOWN_KEY)
    assert found  # it may be empty
    return data[start : found.end()] + f'… [cut: a key of {end - start:,} bytes at byte {start}]"'.encode()


def items(text: Text, first: int) -> Iterator[Span]:
    """The items from the one that starts at ``first`` to the last of their array (or of the lines)."""
    data, size = text.data, text.size
    at = first
    while True:
        for found in _ITEM_AND_COMMA.finditer(data, at, min(at + WINDOW, size)):
            after = found.end()
            if after == at:
                break
            yield Span(at, found.end(1))
            at = after
        at = space_end(data, at, size)
        end = value_end(text, at)
        yield Span(at, end)
        at = space_end(data, end, size)
        if at == size or data[at] in CLOSERS.values():
            return
        if data[at] == _COMMA:  # else it is the start of the next line's value
            at = space_end(data, at + 1, size)


def index_items(text: Text, start: int, *, lines: bool) -> ItemIndex:
    """Count the items of the array that starts at ``start``, or of the lines of which the first starts there."""
    data, size = text.data, text.size
    stride = _STRIDE_OF_LINES if lines else _STRIDE_RUN
    starts = array("Q")
    at = start if lines else space_end(data, start + 1, size)
    if not lines and data[at] == CLOSERS[ord("[")]:
        return ItemIndex(0, starts)
    count = 0
    while at < size:  # the last line may end with a newline
        starts.append(at)
        if found := stride.match(data, at, min(at + WINDOW, size)):
            at = space_end(data, found.end(), size)
            count += STRIDE
            continue
        walked = list(islice(items(text, at), STRIDE + 1))  # at the end, or too long or too deep for the pattern
        count += min(len(walked), STRIDE)
        if len(walked) <= STRIDE:
            break
        at = walked[STRIDE].start
    return ItemIndex(count, starts)


@dataclass(slots=True)
class KeyCount:
    """How often a key was there, by the first byte of its value, and the keys of the objects that it held."""

    path: tuple[bytes, ...]
    """As it is written, with quotes, from the item on."""
    firsts: Counter[int] = field(default_factory=Counter)
    below: dict[bytes, KeyCount] = field(default_factory=dict)


def _plain(raw: bytes) -> bytes:
    """A key in the one spelling that has no needless escapes."""
    if b"\\" not in raw:
        return raw
    try:
        return json.dumps(json.loads(raw), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except ValueError:  # a key that is longer than any path: it was cut
        return raw


class Tally:
    """Counts the keys of objects, and of the objects in them."""

    def __init__(self) -> None:
        self.keys: list[KeyCount] = []
        """In the order in which they came first."""
        self.omitted = 0
        """How often a key came that was one too many to be counted."""
        self.duplicates = 0
        self._top: dict[bytes, KeyCount] = {}

    def add(self, text: Text, start: int) -> None:
        """Count the keys of the object that starts at ``start``; of one that comes again, the last value."""
        todo: list[tuple[int, dict[bytes, KeyCount], tuple[bytes, ...]]] = [(start, self._top, ())]
        for at, known, prefix in todo:  # it grows while it is walked
            found = [(_plain(raw), value) for raw, value in members(text, at)]
            starts = dict(found)
            self.duplicates += len(found) - len(starts)
            for raw, value in starts.items():
                key = known.get(raw)
                if key is None:
                    if len(self.keys) == _MAX_KEYS:
                        self.omitted += 1
                        continue
                    key = known[raw] = KeyCount((*prefix, raw))
                    self.keys.append(key)
                first = text.data[value]
                key.firsts[first] += 1
                if first == _OBJECT and len(key.path) < MAX_NESTING:
                    todo.append((value, key.below, key.path))
