"""JSON values as text: keys and strings without their escapes, strings as texts of their own, values on one line.

Works on the bytes of JSON that was checked. Numbers stay as they are written.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scratch.entries import decode_text
from scratch.explore.jsonscan import CLOSERS, QUOTE, Buffer, space_end, value_end
from scratch.explore.text import Text, load
from scratch.jsontext import dumps, encodable
from scratch.regex import compiled

PIECE = 16 * 1024
"""Bytes of a string that are decoded at once, and for which its origin map holds one pair of offsets."""
_SEPARATORS = b",:"
_OBJECT, _BACKSLASH = b"{\\"

_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE_CHARACTERS = compiled(
    # Half a pair is taken alone only where it can be seen that no other half follows.
    rb'(?:[^"\\]++|%s(?:%s|(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F]))|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+'
    % (_HIGH, _LOW),
    re.DOTALL,
)
_ESCAPE = compiled(rb"%s%s|\\u.{4}|\\." % (_HIGH, _LOW), re.DOTALL)
_TOKEN = compiled(rb"[^\\]++|%s" % _ESCAPE.pattern, re.DOTALL)
_NOT_AS_IT_IS = compiled(rb"[\x00-\x1f\\]")


class Overflow(Exception):
    """A value is longer on one line than the room for it."""


@dataclass(frozen=True, slots=True)
class OneLine:
    """A value on one line, and how many keys in it were left out because they come again later."""

    text: str
    duplicates: int


def unescaped(raw: bytes) -> bytes:
    """The bytes that a part of a string stands for; it must not end inside an escape or a pair of them."""
    if b"\\" not in raw:
        return raw
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # the bytes between the escapes stay as they are
        return _ESCAPE.sub(lambda escape: unescaped(escape[0]), raw)
    unquoted: str = json.loads(f'"{text}"', strict=False)
    return unquoted.encode("utf-8", "surrogatepass")


def parts(data: Buffer, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The string ``[start, end)`` without its escapes: where each part starts in ``data``, and its bytes.

    No part ends inside a character.
    """
    at, stop = start + 1, end - 1
    while at < stop:
        found = _WHOLE_CHARACTERS.match(data, at, min(at + PIECE, end))
        assert found
        cut = found.end()
        if cut == at + PIECE:
            back = cut
            while back > cut - 4 and data[back] & 0xC0 == 0x80:  # noqa: PLR2004  # 10xxxxxx: inside a character
                back -= 1
            if data[back] & 0xC0 != 0x80:  # noqa: PLR2004  # else it is not UTF-8 anyway
                cut = back
        yield at, unescaped(data[at:cut])
        at = cut


def string_text(text: Text, start: int, end: int) -> Text:
    """What the string ``[start, end)`` of ``text`` says, as a text of its own that knows where it comes from."""
    raw_starts, starts = array("Q"), array("Q")
    pieces: list[bytes] = []
    size = 0
    for at, piece in parts(text.data, start, end):
        raw_starts.append(at)
        starts.append(size)
        pieces.append(piece)
        size += len(piece)
    origin = _origin(text, end - 1, size, raw_starts, starts)
    if len(pieces) > 1:
        return _loaded(size, pieces, origin)
    return Text(pieces[0] if pieces else b"", origin=origin)


def _loaded(size: int, pieces: list[bytes], origin: Callable[[int], int]) -> Text:
    return Text(load(size, pieces).data, origin=origin)


def _origin(text: Text, raw_end: int, size: int, raw_starts: array[int], starts: array[int]) -> Callable[[int], int]:
    def origin(offset: int) -> int:
        if offset >= size:
            return text.origin(raw_end)
        piece = bisect_right(starts, offset) - 1
        raw, left = raw_starts[piece], offset - starts[piece]
        for token in _TOKEN.finditer(text.read(raw, min(raw + PIECE, raw_end))):
            length = len(unescaped(token[0]))
            if left < length:
                return text.origin(raw + token.start() + (left if token[0][0] != _BACKSLASH else 0))
            left -= length
        return text.origin(raw_end)

    return origin


def key_text(raw: bytes) -> str:
    """The key that is written as ``raw`` (with its quotes)."""
    return decode_text(unescaped(raw[1:-1]))


def quoted(data: Buffer, start: int, end: int) -> Iterator[str]:
    """The pieces of the string ``[start, end)`` in JSON, escaped only where it must be."""
    if end - start <= PIECE:
        yield one_string(data[start:end])
        return
    yield '"'
    for _, part in parts(data, start, end):
        yield dumps(decode_text(part))[1:-1]
    yield '"'


def one_string(raw: bytes) -> str:
    """A string, with its quotes, in JSON, escaped only where it must be."""
    if _NOT_AS_IT_IS.search(raw):
        return dumps(decode_text(unescaped(raw[1:-1])))
    return encodable(decode_text(raw))


@dataclass(slots=True)
class _Container:
    """An array or object that is being written."""

    is_object: bool
    items: list[str] = field(default_factory=list)
    members: dict[str, str] = field(default_factory=dict)
    key: str | None = None

    def add(self, value: str) -> int:
        """Add a value, or the key of the next one; returns 1 when the key was there before."""
        if not self.is_object:
            self.items.append(value)
            return 0
        if self.key is None:
            self.key = value
            return 0
        again = self.key in self.members
        self.members[self.key] = value
        self.key = None
        return int(again)

    def text(self) -> str:
        if self.is_object:
            return "".join(("{", ",".join([f"{key}:{value}" for key, value in self.members.items()]), "}"))
        return "".join(("[", ",".join(self.items), "]"))


def one_line(text: Text, start: int, room: int) -> OneLine:
    """The value that starts at ``start`` as compact JSON: keys in their order, of one that comes again the last value.

    Raises:
        Overflow: it is longer than ``room`` bytes.
    """
    data, size = text.data, text.size
    stack: list[_Container] = []
    duplicates = used = 0
    at = start
    while True:
        at = space_end(data, at, size)
        first = data[at]
        if first in _SEPARATORS:
            at += 1
            used += 1
            continue
        if first in CLOSERS:
            stack.append(_Container(first == _OBJECT))
            at += 1
            continue
        if first in CLOSERS.values():
            value = stack.pop().text()
            at += 1
            used += 2
        else:
            end = value_end(text, at)
            value = _scalar(data, at, end, room - used)
            at = end
            used += utf8_size(value)
        if used > room:
            raise Overflow
        if not stack:
            return OneLine(value, duplicates)
        duplicates += stack[-1].add(value)


def _scalar(data: Buffer, start: int, end: int, room: int) -> str:
    if data[start] == QUOTE:
        kept = []
        for piece in quoted(data, start, end):
            room -= utf8_size(piece)
            if room < 0:
                raise Overflow
            kept.append(piece)
        return "".join(kept)
    if end - start > room:
        raise Overflow
    return data[start:end].decode("ascii")


def utf8_size(text: str) -> int:
    """How many bytes a text has that can be encoded."""
    return len(text) if text.isascii() else len(text.encode())
