"""Paths, and the values of JSON that they lead to, also through strings that hold JSON themselves.

A path is written ``$``, ``$.a.b[0]``, ``a.b.0``, ``a[-1]``, ``["key.with.dots"]``; empty is the root.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from scratch.explore import jsonscan
from scratch.explore.jsoncheck import Document, examine
from scratch.explore.jsonscan import STRIDE, ItemIndex, Span
from scratch.explore.look import ExploreError, named
from scratch.explore.text import Text
from scratch.explore.values import key_text, parts, string_text
from scratch.jsontext import dumps
from scratch.regex import compiled

MAX_PATH_BYTES = 4_096
Segment = str | int
"""A key as text, or an index. On an object it is a key, on an array an index, whichever way it was written."""
Kind = Literal["object", "array", "string", "number", "boolean", "null"]

_EXAMPLE = 'for example $.results[0].title, or $["a key.with dots"][-1]'
_NAME = compiled(r"[^.\[\]]++")
_INDEX = compiled(r"\[\s*+(-?[0-9]++)\s*+\]")
_QUOTED = compiled(r"""\[\s*+("(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')\s*+\]""", re.DOTALL)
_PLAIN = compiled(r"[^\W\d][\w-]*+")
_INTEGER = compiled(r"0|-?[1-9][0-9]{0,17}")
_IN_SINGLE_QUOTES = compiled(r'\\.|"', re.DOTALL)
_SHOWN = 200
_KEPT_MEMBERS = 1_000_000
"""Objects with more members are walked again each time: each key takes about 200 bytes."""
_KINDS: Mapping[int, Kind] = {
    ord("{"): "object",
    ord("["): "array",
    ord('"'): "string",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
}
_ITEMS = "json.items"
_MEMBERS = "json.members"
_STRINGS = "json.strings"
_NAMES = "json.names"
_KEPT_NAMES = 4_096
_KEPT_NAME = 256
"""Bytes of a key; most objects have the keys of another."""


def parse(path: object) -> tuple[Segment, ...]:
    """The segments of a path, from the root on.

    Raises:
        ExploreError: ``invalid_argument``: no text, longer than 4,096 bytes, or not written like a path.
    """
    if not isinstance(path, str):
        raise _bad(f"path must be text, not {type(path).__name__}")
    if len(path[: MAX_PATH_BYTES + 1].encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise _bad(f"path must be at most {MAX_PATH_BYTES:,} bytes")
    segments: list[Segment] = []
    at = 0
    if path.startswith("$") and path[1:2] in {"", ".", "["}:
        at = 1
    elif path and path[0] not in ".[":
        path = "." + path
    while at < len(path):
        if path[at] == "." and (found := _NAME.match(path, at + 1)):
            segments.append(found[0])
        elif found := _INDEX.match(path, at):
            segments.append(int(found[1]) if _INTEGER.fullmatch(found[1]) else found[1])
        elif found := _QUOTED.match(path, at):
            segments.append(_unquoted(found[1], path))
        elif path.startswith("[*]", at):
            raise _bad(
                f"path {shortened(path)!r} has a wildcard, but names one value ({named('iterate_over')} lists items)"
            )
        else:
            raise _bad(f"path {shortened(path)!r} cannot be read from {shortened(path[at:])!r} on")
        at = found.end()
    return tuple(segments)


def render(segments: Iterable[Segment]) -> str:
    """The canonical path: :func:`parse` gives the same segments back. Longer ones than it takes can come out."""
    shown = ["$"]
    for segment in segments:
        if isinstance(segment, int):
            shown.append(f"[{segment}]")
        elif _PLAIN.fullmatch(segment):
            shown.append(f".{segment}")
        else:
            shown.append(f"[{dumps(segment)}]")
    return "".join(shown)


def as_index(segment: Segment) -> int | None:
    """The segment as an index of an array, or None."""
    if isinstance(segment, int):
        return segment
    return int(segment) if _INTEGER.fullmatch(segment) else None


def shortened(text: str) -> str:
    """A key or a path in a message: 200 characters at most."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _unquoted(quoted: str, path: str) -> str:
    if quoted[0] == "'":
        inner = _IN_SINGLE_QUOTES.sub(lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), quoted[1:-1])
        quoted = f'"{inner}"'
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        raise _bad(f"path {shortened(path)!r} has a key with a broken escape: {shortened(quoted)}") from None


def _bad(problem: str) -> ExploreError:
    return ExploreError("invalid_argument", f"{problem}; write it like {_EXAMPLE}", argument="path")


@dataclass(frozen=True, slots=True)
class Node:
    """A value: the bytes ``[start, end)`` of ``text``, and the way to it.

    ``lines``: it is the root of JSON Lines, an array without brackets. ``notes`` are for the footer.
    """

    text: Text
    start: int
    end: int
    kind: Kind
    segments: tuple[Segment, ...] = ()
    lines: bool = False
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The canonical path."""
        return render(self.segments)

    @property
    def is_container(self) -> bool:
        """Whether it is an array or an object."""
        return self.kind in {"array", "object"}

    @property
    def is_long(self) -> bool:
        """Whether it is worth keeping what was found out about it."""
        return self.end - self.start >= jsonscan.WINDOW


@dataclass(frozen=True, slots=True)
class Members:
    """An object's values by their keys, in order; of a key that comes again, the last value."""

    starts: Mapping[str, int]
    duplicates: int


def root_of(text: Text, found: Document) -> Node:
    """The root of a text that is JSON."""
    kind = "array" if found.lines else kind_of(text.data[found.start])
    return Node(text, found.start, found.end, kind, lines=found.lines)


def kind_of(first: int) -> Kind:
    """The kind of a value by its first byte."""
    return _KINDS.get(first, "number")


def item_index(node: Node) -> ItemIndex:
    """How many items an array has, and where they are; kept for the next time when it is long."""
    kept: dict[int, ItemIndex] = node.text.memo.setdefault(_ITEMS, {})
    key = -1 if node.lines else node.start  # the first line may be an array that starts at the same byte
    index = kept.get(key)
    if index is None:
        index = jsonscan.index_items(node.text, node.start, lines=node.lines)
        if node.is_long:
            kept[key] = index
    return index


def object_members(node: Node) -> Members:
    """The members of an object; kept for the next time when it is long."""
    kept: dict[int, Members] = node.text.memo.setdefault(_MEMBERS, {})
    if node.start in kept:
        return kept[node.start]
    # Numbers, not tuples: the garbage collector would walk over a million of them, again and again.
    starts: dict[str, int] = {}
    count = 0
    names: dict[bytes, str] = node.text.memo.setdefault(_NAMES, {})
    for raw, start in jsonscan.members(node.text, node.start):
        name = names.get(raw)
        if name is None:
            name = key_text(raw)
            if len(names) < _KEPT_NAMES and len(raw) < _KEPT_NAME:
                names[raw] = name
        starts[name] = start
        count += 1
    found = Members(starts, count - len(starts))
    if node.is_long and count <= _KEPT_MEMBERS:
        kept[node.start] = found
    return found


def child(node: Node, segment: Segment, start: int, end: int | None = None) -> Node:
    """The member or item of ``node`` that starts at ``start``; ``end`` when it is known."""
    if end is None:
        end = jsonscan.value_end(node.text, start)
    kind = kind_of(node.text.data[start])
    return Node(node.text, start, end, kind, (*node.segments, segment), notes=node.notes)


def item_spans(node: Node, first: int, stop: int) -> Iterator[Span]:
    """Where the items ``[first, stop)`` of an array are, as far as there are any."""
    index = item_index(node)
    stop = min(stop, index.count)
    if first < stop:
        at = first % STRIDE
        yield from islice(jsonscan.items(node.text, index.starts[first // STRIDE]), at, at + stop - first)


def children(node: Node, first: int, stop: int) -> Iterator[Node]:
    """The items of an array, or the members of an object, ``[first, stop)``, as far as there are any."""
    if node.kind == "object":
        for key, start in islice(object_members(node).starts.items(), first, max(first, stop)):
            yield child(node, key, start)
    elif node.kind == "array":
        for number, span in enumerate(item_spans(node, first, stop), first):
            yield child(node, number, span.start, span.end)


def counts(node: Node) -> tuple[int, int]:
    """How many children a value has, and how many keys of it come again."""
    if node.kind == "array":
        return item_index(node).count, 0
    if node.kind == "object":
        found = object_members(node)
        return len(found.starts), found.duplicates
    return 0, 0


def content_of(node: Node) -> Text:
    """What a string says, as a text of its own; kept for the next time when it is long."""
    kept: dict[int, Text] = node.text.memo.setdefault(_STRINGS, {})
    text = kept.get(node.start)
    if text is None:
        text = string_text(node.text, node.start, node.end)
        if node.is_long:
            kept[node.start] = text
    return text


def entered(node: Node) -> Node:
    """The array or object that a string holds as JSON, under the string's path; anything else as it is."""
    inner = node
    while inner.kind == "string":
        first = next((part for _, part in parts(inner.text.data, inner.start, inner.end)), b"")
        if first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in {b"{", b"[", b'"'}:
            return node
        text = content_of(inner)
        found = examine(text)
        if not isinstance(found, Document):
            return node
        inner = root_of(text, found)
    if inner is node or not inner.is_container:
        return node
    note = f"through the JSON in the string at {shortened(node.path)}"
    return replace(inner, segments=node.segments, notes=(*node.notes, note))
