"""JSON as run-scratch writes it: readable text that can always be encoded, made without holding the GIL for long."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SPACED = json.JSONEncoder(ensure_ascii=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ARRAYS = (list, tuple, set, frozenset)
"""What becomes an array."""
_CONTAINERS = (dict, *_ARRAYS)
_BYTES = (bytes, bytearray, memoryview)
_LIGHT = 4_000
"""Values, and characters divided by 32, that one uninterrupted call of the C encoder may handle (under 2 ms)."""
_PART = _LIGHT * 32
_BATCH = 256
"""Items of a heavy container that go to the encoder together, when they are light."""
_MAX_HEAVY_DEPTH = 64
_SMALL_INT_BITS = 2_000
"""Python refuses to write longer integers in decimal, from 640 digits on or more (sys.set_int_max_str_digits)."""
_MAX_INT_BITS = 300_000
"""About 90,000 digits, 30 ms; time grows with the square."""


def dumps(value: object, *, compact: bool = True) -> str:
    """One line of JSON for a model or a pipe.

    Non-ASCII text stays as it is; a lone surrogate, which no client can encode, is written as its escape,
    so that the text reads back to the same value.
    """
    return encodable((_COMPACT if compact else _SPACED).encode(value))


def encodable(json_text: str) -> str:
    """``json_text`` with each lone surrogate as its JSON escape."""
    if json_text.isascii():
        return json_text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def is_light(value: object) -> bool:
    """Whether ``json.dumps(value)`` takes so little that it needs no thread and no pieces."""
    left = _LIGHT
    items = [value]
    for item in items:  # it grows while it is walked
        if isinstance(item, str):
            left -= len(item) >> 5
        elif isinstance(item, int):
            if item.bit_length() > _SMALL_INT_BITS:
                return False
        elif item is None or isinstance(item, float):
            continue
        elif isinstance(item, _CONTAINERS):
            left -= len(item)
            if left < 0:
                return False
            items += item
            if isinstance(item, dict):
                items += item.values()
        elif isinstance(item, _BYTES):
            left -= len(item) >> 5
    return left >= 0


def dumps_in_pieces(value: object) -> Iterator[str]:
    """The pieces of ``json.dumps(value, ensure_ascii=False)``.

    The C encoder holds the GIL for a whole call (seconds for 50 MB), so a heavy container is walked here and
    only light parts are given to it. Values that JSON does not know become text (sets: arrays).

    Raises:
        TypeError, ValueError, RecursionError: what json.dumps raises: a key that is no key, a cycle, too deep.
    """
    return _pieces(value, 0)


def _pieces(value: object, depth: int) -> Iterator[str]:
    if is_light(value) or depth >= _MAX_HEAVY_DEPTH:
        yield _encode(value)
    elif isinstance(value, dict):
        yield from _container_pieces("{}", value.items(), depth)
    elif isinstance(value, _ARRAYS):
        yield from _container_pieces("[]", value, depth)
    elif isinstance(value, int):
        yield _decimal(value)
    elif isinstance(value, str):
        yield from _quoted(value[start : start + _PART] for start in range(0, len(value), _PART))
    else:
        assert isinstance(value, _BYTES)
        yield from _quoted(_decoded(value))


def _container_pieces(brackets: str, items: Iterable[Any], depth: int) -> Iterator[str]:
    """A container that is not empty."""
    rest = iter(items)
    separator = brackets[0]
    while batch := list(islice(rest, _BATCH)):
        yield separator
        yield from _batch_pieces(brackets, batch, depth)
        separator = ", "
    yield brackets[1]


def _batch_pieces(brackets: str, batch: list[Any], depth: int) -> Iterator[str]:
    """Neighbours in a container: light ones in one call of the encoder, the others half by half."""
    is_object = brackets == "{}"
    value = dict(batch) if is_object else batch
    if is_light(value):
        yield _encode(value)[1:-1]
    elif len(batch) > 1:
        middle = len(batch) // 2
        yield from _batch_pieces(brackets, batch[:middle], depth)
        yield ", "
        yield from _batch_pieces(brackets, batch[middle:], depth)
    elif is_object:
        key, item = batch[0]
        # the encoder turns the key into a string (or refuses it): it alone knows the rules
        yield _encode({key: 0})[1:-2]
        yield from _pieces(item, depth + 1)
    else:
        yield from _pieces(batch[0], depth + 1)


def _quoted(parts: Iterable[str]) -> Iterator[str]:
    yield '"'
    for part in parts:
        yield _encode(part)[1:-1]
    yield '"'


def _decoded(value: bytes | bytearray | memoryview) -> Iterator[str]:
    data = bytes(value)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(data), _PART):
        yield decoder.decode(data[start : start + _PART])
    yield decoder.decode(b"", final=True)


def _decimal(number: int) -> str:
    """``str(number)`` without its limit on digits, as far as that takes no more than a moment."""
    bits = number.bit_length()
    if number < 0:
        return f"-{_decimal(-number)}"
    if not _SMALL_INT_BITS < bits <= _MAX_INT_BITS:
        return str(number)
    digits = bits * 3 // 20  # about half of them
    high, low = divmod(number, 10**digits)
    return _decimal(high) + _decimal(low).zfill(digits)


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_foreign)


def _foreign(value: object) -> object:
    """What stands in JSON for a value that it has no form for."""
    if isinstance(value, _ARRAYS):
        return list(value)
    if isinstance(value, _BYTES):
        return "".join(_decoded(value))
    return str(value)
