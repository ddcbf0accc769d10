"""What of a content is shown in a stub: its shape, its head and its tail. Pure functions.

The budget counts bytes of the preview as they stand in the stub, that is, JSON-escaped UTF-8: control characters
cost six. So neither the preview nor the stub can grow over its limit, whatever the content is.
"""

from __future__ import annotations

import json
import re

from scratch.content import BINARY, JSON, Content

MAX_PREVIEW_BYTES = 1_024
_SAMPLE = 2 * MAX_PREVIEW_BYTES
"""Characters looked at on each end; what is longer than the preview was collapsed."""
_PARSED_AT_MOST = 512 * 1024
"""Bytes of JSON text that are parsed for their shape (a few milliseconds)."""
_MAX_KEYS = 8
_MAX_KEY_CHARACTERS = 40

_SURROGATES = re.compile("[\ud800-\udfff]")
_DATA_URI = re.compile(r"data:[\w.+/-]{1,80}(?:;[\w=.-]{1,40})*;base64,[A-Za-z0-9+/_=\\-]{16,}")
_BASE64_LETTERS = (re.compile("[0-9]"), re.compile("[A-Z]"), re.compile("[a-z]"))
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
_BASE64_RUN = re.compile(r"[A-Za-z0-9+/_-]{160,}={0,2}")


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
        return _take(head, limit)[0]
    shown, used = _take(head, room * 3 // 5)
    tail, _ = _take(_clean(content.tail(_SAMPLE))[::-1], room - used)
    return shown + cut + tail[::-1]


def _clean(sample: str) -> str:
    """Without base64, which tells a reader nothing, and without lone surrogates, which no client can encode."""
    sample = _DATA_URI.sub(lambda uri: f"{uri[0].partition(',')[0]},[base64 left out]", sample)
    sample = _BASE64_RUN.sub(lambda run: "[base64 left out]" if _is_base64(run[0]) else run[0], sample)
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
    start = content.head(64).lstrip("\ufeff \t\r\n")[:1]
    if not start or start not in "[{":
        return "JSON" if content.media_type == JSON and content.size > _SAMPLE else None
    if content.size > _PARSED_AT_MOST:
        # not parsed: a parse of 50 MB holds the GIL for seconds
        return f"JSON {'array' if start == '[' else 'object'}" if content.media_type == JSON else None
    try:
        value: object = json.loads(content.text().removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return f"JSON {_describe(value)}"


def _describe(value: object) -> str:
    if isinstance(value, list):
        if not value:
            return "array, empty"
        same = all(type(item) is type(value[0]) for item in value)
        if isinstance(value[0], dict) and same:
            return f"array of {len(value):,} objects, the first with {_keys(value[0])}"
        return f"array of {len(value):,} " + (f"items ({_kind(value[0])})" if same else "items of mixed kinds")
    if isinstance(value, dict):
        parts = [f"{_name(key)} ({_kind(item)})" for key, item in list(value.items())[:_MAX_KEYS]]
        more = f", and {len(value) - _MAX_KEYS:,} more" if len(value) > _MAX_KEYS else ""
        return f"object: {', '.join(parts)}{more}" if parts else "object, empty"
    return _kind(value)


def _keys(value: dict[str, object]) -> str:
    names = ", ".join(_name(key) for key in list(value)[:_MAX_KEYS])
    more = f", and {len(value) - _MAX_KEYS:,} more" if len(value) > _MAX_KEYS else ""
    return f"keys {names}{more}" if names else "no keys"


def _name(key: str) -> str:
    key = _SURROGATES.sub("\ufffd", key)
    return key if len(key) <= _MAX_KEY_CHARACTERS else f"{key[: _MAX_KEY_CHARACTERS - 1]}…"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return f"array of {len(value):,}"
        case _:
            return "object"
