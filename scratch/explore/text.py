"""A stored content in memory, with its lines.

A line is what stands between newlines; a carriage return just before one is not shown, a final newline makes no
extra line, and nothing else splits. Nothing here holds the GIL for more than a few milliseconds.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from scratch.entries import decode_text
from scratch.jsontext import encodable

BLOCK = 64 * 1024
"""Bytes for which the line index holds one number."""
_SHORT = 512
"""Bytes in which most lines end."""
_NEWLINE = ord("\n")
_RETURN = ord("\r")


class Text:
    """A stored content, or a string value inside it, in memory. One thread at a time may use it.

    Args:
        data: UTF-8, where a lone surrogate is three bytes. What is not UTF-8 is shown with replacement characters.
        origin: For a text that was taken out of a stored content: where in that content the byte of a given offset
            of ``data`` stands. For any offset from 0 to ``size``.
    """

    def __init__(self, data: bytes | mmap.mmap, *, origin: Callable[[int], int] | None = None) -> None:
        self.data = data
        self.size = len(data)
        self.memo: dict[str, Any] = {}
        """What was found out about this text; each module uses keys of its own."""
        self._origin = origin
        self._newlines: array[int] | None = None

    def read(self, start: int, stop: int) -> bytes:
        """The bytes ``[start, stop)``, as far as there are any. Ask for no more than a MiB at once."""
        return self.data[max(0, start) : max(0, stop)]

    def origin(self, offset: int) -> int:
        """Where in the stored content the byte ``offset`` of this text stands."""
        return offset if self._origin is None else self._origin(offset)

    @property
    def line_count(self) -> int:
        """How many lines there are; 0 when the text is empty."""
        if self.size == 0:
            return 0
        return self._index()[-1] + (self.data[self.size - 1] != _NEWLINE)

    def line_start(self, number: int) -> int:
        """Where line ``number`` starts, from 1 on; after the last line, the size."""
        if number <= 1:
            return 0
        index = self._index()
        if number > index[-1] + 1:
            return self.size
        newline = number - 1  # the line starts behind the newline of this number
        block = bisect_left(index, newline) - 1
        start = block * BLOCK
        return start + nth_newline(self.read(start, start + BLOCK), newline - index[block]) + 1

    def line_of(self, offset: int) -> int:
        """The number of the line that byte ``offset`` belongs to; the newline belongs to the line that it ends."""
        offset = min(max(0, offset), self.size)
        block = offset // BLOCK
        before = self._index()[block] + self.read(block * BLOCK, offset).count(b"\n")
        return max(1, min(before + 1, self.line_count))

    def line_end(self, start: int) -> int:
        """Where the shown text of the line that ``start`` lies in ends: its newline, or the carriage return before."""
        at, step = start, _SHORT
        while at < self.size:
            found = self.read(at, at + step).find(b"\n")
            if found >= 0:
                at += found
                return at - 1 if at > start and self.data[at - 1] == _RETURN else at
            at += step
            step = min(2 * step, BLOCK)
        return self.size

    def _index(self) -> array[int]:
        """How many newlines there are before each block, and in all."""
        if self._newlines is None:
            counts = array("Q", [0])
            for start in range(0, self.size, BLOCK):
                counts.append(counts[-1] + self.read(start, start + BLOCK).count(b"\n"))
            if self.size % BLOCK == 0:
                counts.append(counts[-1])  # the size itself is an offset, in a block of its own
            self._newlines = counts
        return self._newlines


def load(size: int, pieces: Iterable[bytes | memoryview]) -> Text:
    """A text of ``size`` bytes from its pieces in order.

    They go into a mapping one after the other: a join of all would hold the GIL for as long as the copy takes.

    Raises:
        ValueError: the pieces are not ``size`` bytes in all.
    """
    if size == 0:
        return Text(b"")  # there is no empty mapping
    data = mmap.mmap(-1, size)
    for piece in pieces:
        data.write(piece)  # a ValueError when it is too much
    if data.tell() != size:
        msg = f"{data.tell()} bytes came of {size}"
        raise ValueError(msg)
    return Text(data)


def shown(data: bytes) -> str:
    r"""``data`` as text that can be encoded: a lone surrogate as ``\udXXX``, what is not UTF-8 replaced."""
    return encodable(decode_text(data))


def nth_newline(block: bytes, number: int) -> int:
    """Where newline ``number`` (from 1 on) of a block stands; there must be as many."""
    low, high = 0, len(block)
    while high - low > 1:  # by halves and in C: a block may be all newlines
        middle = (low + high) // 2
        here = block.count(b"\n", low, middle)
        if here >= number:
            high = middle
        else:
            number -= here
            low = middle
    return low
