"""JSON as run-scratch writes it: readable text that can always be encoded, made without holding the GIL for long."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

_SURROGATE = re.compile("[\ud800-\udfff]")
_LIGHT = 2_000
"""Values, and characters divided by 32, that one uninterrupted call of the C encoder may handle (under 2 ms)."""
_MAX_HEAVY_DEPTH = 64


def dumps(value: object, *, compact: bool = True) -> str:
    """One line of JSON for a model or a pipe.

    Non-ASCII text stays as it is; a lone surrogate, which no client can encode, is written as its escape,
    so that the text reads back to the same value.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)
    return encodable(text)


def encodable(json_text: str) -> str:
    """``json_text`` with each lone surrogate as its JSON escape."""
    if json_text.isascii():
        return json_text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def is_light(value: object) -> bool:
    """Whether ``json.dumps(value)`` takes so little that it needs no thread and no pieces."""
    return _weigh(value, _LIGHT) >= 0


def _weigh(value: object, budget: int) -> int:
    """What is left of ``budget`` after ``value``; negative as soon as it is used up."""
    stack = [value]
    while stack and budget >= 0:
        item = stack.pop()
        budget -= 1
        if isinstance(item, str | bytes):
            budget -= len(item) // 32
        elif isinstance(item, dict):
            budget -= len(item)
            if budget >= 0:
                stack.extend(item.keys())
                stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            budget -= len(item)
            if budget >= 0:
                stack.extend(item)
        elif isinstance(item, int):
            budget -= item.bit_length() // 64
    return budget


def dumps_in_pieces(value: object) -> Iterator[str]:
    """The pieces of ``json.dumps(value, ensure_ascii=False)``.

    The C encoder holds the GIL for a whole call (seconds for 50 MB), so a heavy container is walked here and
    only light parts are given to it. Values that JSON does not know become text (sets: arrays).

    Raises:
        TypeError, ValueError, RecursionError: what json.dumps raises: a key that is no key, a cycle, too deep.
    """
    return _pieces(value, 0)


def _pieces(value: object, depth: int) -> Iterator[str]:
    if not isinstance(value, dict | list | tuple) or depth >= _MAX_HEAVY_DEPTH or is_light(value):
        if isinstance(value, str) and len(value) > _LIGHT * 32:
            yield from _string_pieces(value)
        else:
            yield json.dumps(value, ensure_ascii=False, default=_foreign)
        return
    is_object = isinstance(value, dict)
    items: Iterable[tuple[object, object]] = value.items() if isinstance(value, dict) else enumerate(value)
    yield "{" if is_object else "["
    separator = ""
    batch: list[tuple[object, object]] = []  # light neighbours go to the encoder in one call
    left = _LIGHT
    for key, item in items:
        left = _weigh(item, left)
        if left >= 0:
            batch.append((key, item))
            continue
        if batch:
            yield separator + _inner(batch, is_object=is_object)
            separator = ", "
        left = _weigh(item, _LIGHT)
        if left >= 0:
            batch = [(key, item)]
            continue
        batch = []
        left = _LIGHT
        # the encoder turns the key into a string (or refuses it): it alone knows the rules
        yield separator + (_inner([(key, 0)], is_object=True)[:-1] if is_object else "")
        yield from _pieces(item, depth + 1)
        separator = ", "
    if batch:
        yield separator + _inner(batch, is_object=is_object)
    yield "}" if is_object else "]"


def _inner(items: list[tuple[object, object]], *, is_object: bool) -> str:
    """The items as JSON, without the brackets around them."""
    value = dict(items) if is_object else [item for _, item in items]
    return json.dumps(value, ensure_ascii=False, default=_foreign)[1:-1]


def _string_pieces(text: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), _LIGHT * 32):
        yield json.dumps(text[start : start + _LIGHT * 32], ensure_ascii=False)[1:-1]
    yield '"'


def _foreign(value: object) -> object:
    """What stands in JSON for a value that it has no form for."""
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return str(value)
