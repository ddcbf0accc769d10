"""What of a content is shown in a stub: its shape, its head and its tail. Pure functions.

The budget counts bytes of the preview as they stand in the stub, that is, JSON-escaped UTF-8: control characters
cost six. So neither the preview nor the stub can grow over its limit, whatever the content is.
"""

from __future__ import annotations

import json
import re
from itertools import islice

from scratch.content import BINARY, Content

MAX_PREVIEW_BYTES = 1_024
_SAMPLE = 2 * MAX_PREVIEW_BYTES
"""Characters looked at on each end; what is longer than the preview was collapsed."""
_PARSED_AT_MOST = 512 * 1024
"""Bytes of JSON text that are parsed for their shape (a few milliseconds)."""
_ARRAYS = (list, tuple, set, frozenset)
_MAX_KEYS = 8
_MAX_KEY_CHARACTERS = 40

_SURROGATES = re.compile("[\ud800-\udfff]")
_DATA_URI = re.compile(r"data:[\w.+/\\-]{1,80}(?:;[\w=.-]{1,40})*;base64,[A-Za-z0-9+/_=\\-]{16,}")
_BASE64_LETTERS = (re.compile("[0-9]"), re.compile("[A-Z]"), re.compile("[a-z]"))
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
_BASE64_RUN = re.compile(r"[A-Za-z0-9+/_-]{160,}={0,2}")
_BASE64_REST = re.compile(r"\A[A-Za-z0-9+/_=\\-]{16,}")
_LEFT_OUT = "[base64 left out]"


def make_preview(content: Content, *, limit: int = MAX_PREVIEW_BYTES, already_truncated: bool = False) -> str:
    """A preview of at most ``limit`` bytes (JSON-escaped); empty when ``limit`` has no room for anything.

    Args:
        content: What is previewed.
        limit: Bytes.
        already_truncated: The tool had cut the content; the preview says so.
    """
    lines = []
    if already_truncated:
        lines.append("[the tool had already cut this output]")
    if content.media_type == BINARY:
        assert isinstance(content.body, bytes)
        lines.append(f"[binary, {content.size:,} bytes, first bytes in hex] {content.body[:32].hex(' ')}")
        return _take("\n".join(lines), limit)[0]
    if shape := _json_shape(content):
        lines.append(f"[{shape}]")
    first = "".join(line + "\n" for line in lines)
    if cost(first) > limit // 2:
        first = ""
    return first + _head_and_tail(content, limit - cost(first))


def cost(text: str) -> int:
    """Bytes of ``text`` inside a JSON string."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2


def _head_and_tail(content: Content, limit: int) -> str:
    sample = content.head(_SAMPLE)
    whole = len(sample.encode("utf-8", "surrogatepass")) == content.size
    head = _clean(sample)
    if whole and cost(head) <= limit:
        return head
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
    sample = _DATA_URI.sub(lambda uri: f"{uri[0].partition(',')[0]},{_LEFT_OUT}", sample)
    sample = _BASE64_RUN.sub(lambda run: _LEFT_OUT if _is_base64(run[0]) else run[0], sample)
    return _SURROGATES.sub("\ufffd", sample)


def _is_base64(run: str) -> bool:
    return all(pattern.search(run) for pattern in _BASE64_LETTERS)


def _take(text: str, limit: int) -> tuple[str, int]:
    """The longest start of ``text`` that costs at most ``limit``, and what it costs."""
    used = index = 0
    while index < len(text) and used < limit:
        plain = _PLAIN.match(text, index, index + limit - used)
        if plain is not None:  # a byte a character
            used += plain.end() - index
            index = plain.end()
            continue
        step = cost(text[index])
        if used + step > limit:
            break
        used += step
        index += 1
    return text[:index], used


def _json_shape(content: Content) -> str | None:
    """One line about a JSON content, or None where it is none."""
    if content.value is not None:
        return f"JSON {_describe(content.value)}"
    start = content.head(64).lstrip("\ufeff \t\r\n")[:1]
    # a large text is not parsed: for 50 MB that holds the GIL for seconds
    if not start or start not in "[{" or content.size > _PARSED_AT_MOST:
        return None
    try:
        value: object = json.loads(content.text().removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return f"JSON {_describe(value)}"


def _describe(value: object) -> str:
    if isinstance(value, dict):
        parts = [f"{_name(key)} ({_kind(item)})" for key, item in islice(value.items(), _MAX_KEYS)]
        return f"object: {_listed(parts, len(value))}" if parts else "object, empty"
    if not isinstance(value, _ARRAYS):
        return _kind(value)
    if not value:
        return "array, empty"
    first = next(iter(value))
    if not all(type(item) is type(first) for item in value):
        return f"array of {len(value):,} items of mixed kinds"
    if not isinstance(first, dict):
        return f"array of {len(value):,} items ({_kind(first)})"
    names = [_name(key) for key in islice(first, _MAX_KEYS)]
    keys = f"keys {_listed(names, len(first))}" if names else "no keys"
    return f"array of {len(value):,} objects, the first with {keys}"


def _listed(parts: list[str], of: int) -> str:
    more = f", and {of - len(parts):,} more" if of > len(parts) else ""
    return ", ".join(parts) + more


def _name(key: object) -> str:
    """A key in one line."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in str(key)[: _MAX_KEY_CHARACTERS + 1])
    return text if len(text) <= _MAX_KEY_CHARACTERS else f"{text[: _MAX_KEY_CHARACTERS - 1]}…"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case list() | tuple() | set() | frozenset():
            return f"array of {len(value):,}"
        case _:  # what JSON has no form for is written as text
            return "text"
