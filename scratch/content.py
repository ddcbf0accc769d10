"""A content of any kind as bytes: its size, its media type and its pieces, without a second copy.

Nothing here holds the GIL for more than a few milliseconds: a large content is worked on in pieces, so that a
worker thread can do it while the event loop goes on.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scratch.jsontext import dumps_in_pieces, is_light

PIECE = 64 * 1024
"""Characters or bytes handled in one step; of ASCII, what a row holds."""
_BLOCK = 32 * PIECE
"""Characters joined in one step."""
AT_ONCE = 1024 * 1024
"""Characters or bytes that need no thread: what is done with them takes a few milliseconds at most."""

TEXT = "text/plain"
JSON = "application/json"
BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Content:
    """What a tool returned, ready to be stored or shown.

    ``body`` is the text, or the bytes where bytes were given; ``size`` counts bytes as they are stored (UTF-8,
    lone surrogates as three bytes each).
    """

    body: str | bytes = field(repr=False)
    size: int
    media_type: str
    value: object = field(default=None, repr=False, compare=False)
    """What JSON was made from, where it was: tells its shape without a parse."""
    encoded: bytes | None = field(default=None, repr=False, compare=False)
    """The stored bytes of a text that is not long: then they are made once."""

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The stored bytes in order, each piece at most 1 MiB."""
        data = self.body if isinstance(self.body, bytes) else self.encoded
        if data is not None:
            view = memoryview(data)
            for start in range(0, len(view), PIECE):
                yield view[start : start + PIECE]
            return
        assert isinstance(self.body, str)
        for start in range(0, len(self.body), PIECE):
            yield self.body[start : start + PIECE].encode("utf-8", "surrogatepass")

    def text(self) -> str:
        """All of it as text for a context; bytes that are not UTF-8 as base64."""
        if isinstance(self.body, str):
            return self.body
        if self.media_type == BINARY:
            step = PIECE * 3  # whole groups of three bytes, so that no padding comes in between
            parts = (self.body[start : start + step] for start in range(0, len(self.body), step))
            return _joined(base64.b64encode(part).decode("ascii") for part in parts)
        return _joined(self.texts())

    def texts(self) -> Iterator[str]:
        """The text of bytes that are UTF-8, in pieces."""
        assert isinstance(self.body, bytes)
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(self.body), PIECE):
            yield decoder.decode(self.body[start : start + PIECE])

    def head(self, characters: int) -> str:
        """The first characters, for a preview."""
        if isinstance(self.body, str):
            return self.body[:characters]
        return self.body[:characters].decode("utf-8", "ignore")

    def tail(self, characters: int) -> str:
        """The last characters, for a preview."""
        if isinstance(self.body, str):
            return self.body[-characters:]
        return self.body[-characters:].decode("utf-8", "ignore")


def is_heavy(value: object) -> bool:
    """Whether :func:`read_content` should be called in a thread."""
    if isinstance(value, str):
        return len(value) > AT_ONCE
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value) > AT_ONCE
    return not is_light(value)


def read_content(value: object) -> Content:
    """Take any value: text, bytes, or what JSON can express.

    Values inside a JSON structure that JSON has no form for (dates, decimals, objects) become their ``str()``.

    Raises:
        TypeError, ValueError, RecursionError: a cycle, a key that JSON does not allow, too deep. A failing
            ``__str__`` raises what it raises.
    """
    if isinstance(value, str):
        text = str.__str__(value)  # frees a subclass of its overridden methods
        return _text_content(text, TEXT)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return Content(data, len(data), TEXT if _is_utf8(data) else BINARY)
    return _text_content(_joined(dumps_in_pieces(value)), JSON, value)


def _text_content(text: str, media_type: str, value: object = None) -> Content:
    if len(text) <= AT_ONCE:
        encoded = text.encode("utf-8", "surrogatepass")
        return Content(text, len(encoded), media_type, value, encoded)
    return Content(text, _utf8_size(text), media_type, value)


def _joined(pieces: Iterable[str]) -> str:
    """The pieces as one text.

    One join of all would hold the GIL for about a millisecond a megabyte (the memory is new). CPython lengthens a
    text in place; the blocks are large, so that one that does not stays quick enough.
    """
    text = ""
    block: list[str] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            text += "".join(block)
            block.clear()
            size = 0
    text += "".join(block)
    return text


def _utf8_size(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        len(text[start : start + PIECE].encode("utf-8", "surrogatepass")) for start in range(0, len(text), PIECE)
    )


def _is_utf8(data: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), PIECE):
            decoder.decode(data[start : start + PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
