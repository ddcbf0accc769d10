"""What of a content is shown in a stub: its shape, its head and its tail. Pure functions.

The budget counts bytes of the preview as they stand in the stub, that is, JSON-escaped UTF-8: control characters
cost six. So neither the preview nor the stub can grow over its limit, whatever the content is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from json import JSONEncoder

from scratch.content import BINARY, Content

MAX_PREVIEW_BYTES = 1_024
_SAMPLE = 2 * MAX_PREVIEW_BYTES
"""Characters looked at on each end; what is longer than the preview was collapsed."""
_SHAPE_ROOM = 160
"""Bytes that a shape is cut to at the least; where there are fewer, one that does not fit is left out."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_DATA_URI = re.compile(r"data:[\w.+/\\-]{1,80}(?:;[\w=.-]{1,40})*;base64,[A-Za-z0-9+/_=\\-]{16,}")
_BASE64_LETTERS = (re.compile("[0-9]"), re.compile("[A-Z]"), re.compile("[a-z]"))
_BASE64_RUN = re.compile(r"[A-Za-z0-9+/_-]{160,}={0,2}")
_HALF_RUN = re.compile(r"[A-Za-z0-9+/_-]{80}")
_BASE64_REST = re.compile(r"\A[A-Za-z0-9+/_=\\-]{16,}")
_LEFT_OUT = "[base64 left out]"
_encode = JSONEncoder(ensure_ascii=False).encode


def make_preview(content: Content, *, limit: int = MAX_PREVIEW_BYTES, already_truncated: bool = False) -> str:
    """A preview of at most ``limit`` bytes (JSON-escaped); empty when ``limit`` has no room for anything.

    Args:
        content: What is previewed.
        limit: Bytes.
        already_truncated: The tool had cut the content; the preview says so.
    """
    from scratch.shape import json_shape, text_shape  # noqa: PLC0415 - its patterns: only who spills needs them

    first = "[the tool had already cut this output]\n" if already_truncated else ""
    if content.media_type == BINARY:
        assert isinstance(content.body, bytes)
        first += f"[binary, {content.size:,} bytes, first bytes in hex] {content.body[:32].hex(' ')}"
        return _take(first, limit)[0]
    if cost(first) > limit // 2:
        first = ""
    shape = json_shape(content)
    # a text that is seen whole needs no word about it
    if shape is None and _whole(content, limit - cost(first)) is None:
        shape = text_shape(content)
    if shape is not None:
        first += _shape_line(_clean(shape), limit // 2 - cost(first))
    return first + _head_and_tail(content, limit - cost(first))


def cost(text: str) -> int:
    """Bytes of ``text`` inside a JSON string."""
    return len(_encode(text).encode("utf-8", "replace")) - 2


def _shape_line(shape: str, limit: int) -> str:
    line = f"[{shape}]\n"
    if cost(line) <= limit:
        return line
    end = "…]\n"
    return _take(line, limit - cost(end))[0] + end if limit >= _SHAPE_ROOM else ""


def _whole(content: Content, limit: int) -> str | None:
    """All of the content, when it takes at most ``limit``."""
    if len(content.body) > _SAMPLE:
        return None
    sample = content.head(_SAMPLE)
    if len(sample.encode("utf-8", "surrogatepass")) != content.size:
        return None
    text = _clean(sample)
    return text if cost(text) <= limit else None


def _head_and_tail(content: Content, limit: int) -> str:
    whole = _whole(content, limit)
    if whole is not None:
        return whole
    sample = content.head(_SAMPLE)
    head = _clean(sample)
    cut = f"\n[… cut: head and tail of {content.size:,} bytes …]\n"
    room = limit - cost(cut)
    if room < len(cut):  # too little for both ends and a notice
        return _take(_take(head, limit - cost("…"))[0] + "…", limit)[0]
    shown, used = _take(head, room * 3 // 5)
    end = content.tail(_SAMPLE)
    if any(uri.end() == len(sample) for uri in _DATA_URI.finditer(sample)):  # it may go on to here
        end = _BASE64_REST.sub(_LEFT_OUT, end)
    tail, _ = _take(_clean(end)[::-1], room - used)
    return shown + cut + tail[::-1]


def _clean(sample: str) -> str:
    """Without base64, which tells a reader nothing, and without lone surrogates, which no client can encode."""
    if "base64" in sample:
        sample = _DATA_URI.sub(lambda uri: f"{uri[0].partition(',')[0]},{_LEFT_OUT}", sample)
    if any(_HALF_RUN.match(sample, start) for start in range(0, len(sample), 80)):  # every run of 160 has one of these
        sample = _BASE64_RUN.sub(lambda run: _LEFT_OUT if _is_base64(run[0]) else run[0], sample)
    return sample if sample.isascii() else _SURROGATES.sub("\ufffd", sample)


def _is_base64(run: str) -> bool:
    return all(pattern.search(run) for pattern in _BASE64_LETTERS)


def _take(text: str, limit: int) -> tuple[str, int]:
    """The longest start of ``text`` that costs at most ``limit``, and what it costs."""
    text = text[: max(limit, 0)]  # a character costs a byte at least
    used = cost(text)
    if used > limit:  # and six at the most
        over = used - limit
        ends = range(max(0, len(text) - over), len(text) - over // 6 + 1)
        text = text[: ends[bisect_right(ends, limit, key=lambda end: cost(text[:end])) - 1]]
        used = cost(text)
    return text, used
