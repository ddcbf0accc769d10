"""Windows into a stored content: byte ranges and the surroundings of matches. Pure functions over bytes.

All offsets and lengths are bytes from the start of the content, and every range is half-open. In text no window
cuts a character: a character starts at every byte that is not ``10xxxxxx``.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import AnyStr, Literal

from scratch.entries import decode_text
from scratch.errors import InvalidArgument
from scratch.jsontext import dumps

DEFAULT_LENGTH = 4_096
MAX_LENGTH = 32_768
DEFAULT_CONTEXT = 200
MAX_CONTEXT = 4_096
DEFAULT_WINDOWS = 10
MAX_WINDOWS = 50
MAX_MATCHES_SHOWN = 100
MAX_PATTERN_BYTES = 1_024
SLICE = 512 * 1024
"""Bytes searched in one step; a slice that is not the last must be longer than ``MAX_PATTERN_BYTES * 4``."""
_COUNTED_AT_ONCE = 64 * 1024
_CONTINUES = 0x80  # 10xxxxxx: inside a character
MARGIN = 4
"""Bytes needed before and after a range to find the characters that its ends lie in."""

Encoding = Literal["utf-8", "base64"]


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes ``[offset, end)`` of a content of ``size`` bytes.

    ``text`` is those bytes as text, or as base64 where the content is not UTF-8 (``encoding`` says which).
    ``next_offset`` is where to go on and None at the end; ``note`` says what was not done as asked.
    """

    offset: int
    end: int
    size: int
    text: str = field(repr=False)
    next_offset: int | None
    eof: bool
    encoding: Encoding = "utf-8"
    note: str | None = None

    @property
    def data(self) -> bytes:
        """The exact bytes of the window."""
        if self.encoding == "base64":
            return base64.b64decode(self.text)
        return self.text.encode("utf-8", "surrogatepass")

    def fields(self) -> dict[str, object]:
        """What a model is told, by name."""
        return _telling(
            {
                "offset": self.offset,
                "end": self.end,
                "size": self.size,
                "next_offset": self.next_offset,
                "eof": self.eof,
                "encoding": self.encoding,
                "note": self.note,
                "text": self.text,
            }
        )

    def to_json(self) -> str:
        """One line of JSON for the model."""
        return dumps(self.fields())


@dataclass(frozen=True, slots=True)
class MatchWindow:
    """The bytes ``[offset, end)`` around the matches that start at the ``matches`` offsets."""

    offset: int
    end: int
    matches: tuple[int, ...]
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Matches:
    """What a search found from ``offset`` to the end of the content.

    ``total_matches`` counts all, shown or not (they do not overlap). ``complete`` says that all are shown; if not,
    ``next_offset`` is the first one that is not.
    """

    windows: tuple[MatchWindow, ...]
    total_matches: int
    searched_bytes: int
    size: int
    complete: bool
    next_offset: int | None
    encoding: Encoding = "utf-8"
    note: str | None = None

    def to_json(self) -> str:
        """One line of JSON for the model."""
        return dumps(
            _telling(
                {
                    "total_matches": self.total_matches,
                    "searched_bytes": self.searched_bytes,
                    "size": self.size,
                    "complete": self.complete,
                    "next_offset": self.next_offset,
                    "encoding": self.encoding,
                    "note": self.note,
                    "windows": [
                        {"offset": w.offset, "end": w.end, "matches": list(w.matches), "text": w.text}
                        for w in self.windows
                    ],
                }
            )
        )


def _telling(fields: dict[str, object]) -> dict[str, object]:
    """Without what says nothing: no note, and the usual encoding."""
    if fields["note"] is None:
        del fields["note"]
    if fields["encoding"] == "utf-8":
        del fields["encoding"]
    return fields


def check_count(value: object, argument: str, *, least: int, most: int = 2**63 - 1) -> int:
    """Return ``value`` when it is an integer from ``least`` to ``most``, strictly: no bool, float or text.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{argument} must be an integer, not {type(value).__name__}"
        raise InvalidArgument(msg, argument=argument)
    if value < least:
        msg = f"{argument} must be at least {least}"
        raise InvalidArgument(msg, argument=argument)
    if value > most:
        msg = f"{argument} must be at most {most}"
        raise InvalidArgument(msg, argument=argument)
    return value


def clamp(value: object, argument: str, *, least: int, most: int) -> tuple[int, str | None]:
    """Like :func:`check_count`, but what is over ``most`` becomes ``most``, with a sentence that says so.

    Raises:
        InvalidArgument: not an integer from ``least`` to 2**63 - 1.
    """
    count = check_count(value, argument, least=least)
    if count > most:
        return most, f"{argument} was cut to {most}, the most for one call."
    return count, None


def check_pattern(match: object) -> str:
    """Return ``match`` when it can be searched for.

    Raises:
        InvalidArgument: not text, empty, or over 1,024 bytes.
    """
    if not isinstance(match, str):
        msg = f"match must be text, not {type(match).__name__}"
        raise InvalidArgument(msg, argument="match")
    size = len(match[: MAX_PATTERN_BYTES + 1].encode("utf-8", "surrogatepass"))
    if not 0 < size <= MAX_PATTERN_BYTES:
        msg = f"match must be 1 to {MAX_PATTERN_BYTES} bytes of text"
        raise InvalidArgument(msg, argument="match")
    return match


def is_boundary(data: bytes, index: int) -> bool:
    """Whether a character starts (or the data ends) at ``index``."""
    return index >= len(data) or data[index] & 0xC0 != _CONTINUES


def _back(data: bytes, index: int) -> int:
    while index > 0 and not is_boundary(data, index):
        index -= 1
    return index


def _forward(data: bytes, index: int) -> int:
    while not is_boundary(data, index):
        index += 1
    return index


def _as_text(data: bytes, *, binary: bool) -> str:
    return base64.b64encode(data).decode("ascii") if binary else decode_text(data)


def cut_window(
    data: bytes, data_start: int, *, offset: int, length: int, size: int, binary: bool, note: str | None = None
) -> Window:
    """The window of ``length`` bytes from ``offset``.

    Args:
        data: The content's bytes from ``data_start`` on; they must cover the range and ``MARGIN`` bytes on either
            side of it, as far as the content goes.
        data_start: Where in the content ``data`` starts.
        offset: The first byte asked for, 0 or more.
        length: How many bytes, 1 or more.
        size: The content's size.
        binary: The content is not UTF-8: bytes are cut where asked, and given as base64.
        note: What the window shall say beside its text.
    """
    encoding: Encoding = "base64" if binary else "utf-8"
    if offset >= size:
        if size == 0:
            note = "The content is empty (0 bytes); there is nothing to read, do not retry."
        return Window(size, size, size, "", None, eof=True, encoding=encoding, note=note)
    start = offset - data_start
    if not binary:
        start = _back(data, start)
    stop = min(start + length, size - data_start)
    if not binary:
        stop = _back(data, stop)
        if stop <= start:  # the character is longer than the window: always get on
            stop = _forward(data, start + 1)
    end = data_start + stop
    return Window(
        offset=data_start + start,
        end=end,
        size=size,
        text=_as_text(data[start:stop], binary=binary),
        next_offset=None if end >= size else end,
        eof=end >= size,
        encoding=encoding,
        note=note,
    )


class MatchScan:
    """A search over a content that comes in slices; memory does not grow with the content.

    Feed slices from ``next_start`` on until it is None. Each slice must start there and be as long as fits; the scan
    overlaps them by itself, so that a match across a boundary is found, once.
    """

    def __init__(self, pattern: str, *, ignore_case: bool, offset: int, size: int, binary: bool, shown: int) -> None:
        self._needle = pattern.encode("utf-8", "surrogatepass")
        self._folded = fold(pattern) if ignore_case else None
        # a match in another case may be longer in bytes, by character at most four
        self._overlap = (len(pattern) * 4 if ignore_case else len(self._needle)) - 1
        self._binary = binary
        self._size = size
        self._shown = shown
        self.found: list[tuple[int, int]] = []
        """The first matches as byte ranges: up to ``shown``, and one more to know where to go on."""
        self.total = 0
        self.next_start: int | None = offset if offset < size else None

    def feed(self, data: bytes) -> None:
        """Search the slice that starts at ``next_start``."""
        start = self.next_start
        if start is None or not data:
            msg = "there is nothing left to search"
            raise ValueError(msg)
        if not self._binary:
            # only the first slice can start inside a character: no match starts before the next one
            inside = _forward(data, 0)
            start, data = start + inside, data[inside:]
        stop = start + len(data)
        if stop < self._size and not self._binary and data[-1:] >= b"\x80":
            # leave a cut character for the next slice
            cut = _back(data, len(data) - 1)
            data = data[:cut] if cut else data
            stop = start + len(data)
        used = start + self._search(data, start)
        if stop >= self._size:
            self.next_start = None
            return
        resume = max(used, stop - self._overlap)
        if not self._binary:
            resume = max(used, start + _back(data, resume - start))
        self.next_start = resume if resume > start else stop

    def _search(self, data: bytes, start: int) -> int:
        """Search one slice; return where its last match ends, from the slice's start."""
        if self._folded is None:
            return self._walk(data, self._needle, data, start)
        if self._binary or data.isascii():
            return self._walk(data.lower(), self._folded.encode("utf-8", "surrogatepass"), data, start)
        text = decode_text(data)
        return self._walk(fold(text), self._folded, text, start)

    def _walk(self, hay: AnyStr, needle: AnyStr, original: AnyStr, start: int) -> int:
        """Find ``needle`` in ``hay``, whose positions are those of ``original``; return where the last match ends."""
        position = 0  # in hay, where the last match ends
        in_bytes = 0  # the same in bytes
        while len(self.found) <= self._shown:
            at = hay.find(needle, position)
            if at < 0:
                return in_bytes
            first = in_bytes + _byte_length(original[position:at])
            position = at + len(needle)
            in_bytes = first + _byte_length(original[at:position])
            self.found.append((start + first, start + in_bytes))
            self.total += 1
        # Enough are known by place; the others are only counted. split() finds them as find() would, one after
        # the other, and its last part tells where the last one ends, even where the needle overlaps itself.
        last_end = position
        while True:
            block = hay[position : position + _COUNTED_AT_ONCE]
            parts = block.split(needle)
            self.total += len(parts) - 1
            stop = position + len(block)
            if len(parts) > 1:
                last_end = stop - len(parts[-1])
            if stop >= len(hay):
                return _byte_length(original[:last_end])
            position = max(last_end, stop - len(needle) + 1)


def _byte_length(part: str | bytes) -> int:
    if isinstance(part, bytes):
        return len(part)
    return len(part.encode("utf-8", "surrogatepass"))


def fold(text: str) -> str:
    """``text`` in lower case, one character for one, so that positions stay."""
    return text.replace("İ", "i").lower().replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def plan_windows(
    matches: Sequence[tuple[int, int]], *, context: int, max_windows: int, size: int
) -> tuple[list[tuple[int, int, list[int]]], int | None]:
    """Which ranges to show around ``matches`` (byte ranges in order).

    Ranges that touch are merged. At most ``max_windows`` ranges, ``MAX_MATCHES_SHOWN`` matches and ``MAX_LENGTH`` bytes
    are shown (but always the first match).

    Returns:
        The ranges ``(start, end, starts of the matches in it)``, and the start of the first match not shown, or None.
    """
    planned: list[tuple[int, int, list[int]]] = []
    total = 0
    for count, (match_start, match_end) in enumerate(matches):
        start = max(0, match_start - context)
        end = min(size, match_end + context)
        merges = bool(planned) and start <= planned[-1][1]
        added = end - planned[-1][1] if merges else end - start
        full = count >= MAX_MATCHES_SHOWN or (not merges and len(planned) >= max_windows)
        if planned and (full or total + added > MAX_LENGTH):
            return planned, match_start
        total += added
        if merges:
            first, _, starts = planned[-1]
            planned[-1] = (first, end, [*starts, match_start])
        else:
            planned.append((start, end, [match_start]))
    return planned, None


def cut_match_window(
    data: bytes, data_start: int, planned: tuple[int, int, list[int]], *, size: int, binary: bool
) -> MatchWindow:
    """One planned range as a window; ``data`` as for :func:`cut_window`.

    A character that an end of the range lies in is left out, so that a window is never longer than planned.
    """
    start, end, starts = planned
    first, stop = start - data_start, min(end, size) - data_start
    if not binary:
        first, stop = _forward(data, first), _back(data, stop)
    return MatchWindow(data_start + first, data_start + stop, tuple(starts), _as_text(data[first:stop], binary=binary))
