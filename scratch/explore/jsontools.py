"""Looks at the values of JSON: one value (``get_in``), and some fields of each item of an array (``iterate_over``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from scratch.entries import decode_text
from scratch.explore.lines import GREP_ERRORS, numbered
from scratch.explore.look import Call, ExploreError, Look, TooLarge, named, written
from scratch.explore.navigate import (
    array_at,
    call_on,
    checked,
    counted,
    covered,
    duplicates_note,
    half,
    like,
    read_at,
    resolve,
    step,
    window,
    with_article,
)
from scratch.explore.path import (
    Node,
    Segment,
    child,
    children,
    content_of,
    counts,
    entered,
    item_index,
    object_members,
    parse,
    shortened,
)
from scratch.explore.text import Text
from scratch.explore.values import Overflow, one_line, one_string, parts, utf8_size
from scratch.jsontext import dumps

MAX_FIELDS = 64
_KEYS_NAMED = 5
SHOWN_STRING = 200
"""Characters of a string that a row shows."""
SHOWN_VALUE = 500
"""Bytes of another value that a row shows; of a longer one it says what it is."""
_HOPELESS = 8
"""A source of so many times the room is too large, whatever white space and escapes are in it."""


def get_in(text: Text, *, path: str, offset: int | None = None, limit: int | None = None, room: int) -> Look:
    """The value at ``path``: compact JSON, or the numbered lines of a string.

    ``offset`` (0 by default) and ``limit`` (all) choose items of an array, keys of an object, lines of a string.

    Raises:
        ExploreError: as :func:`scratch.explore.navigate.resolve`.
        InvalidArgument: ``offset`` or ``limit`` is no count.
        TooLarge: more than ``room`` bytes.
    """
    first, most = checked(offset, limit)
    node = resolve(text, path)
    if node.kind == "string":
        return _string(node, first, most, room)
    if node.is_container:
        return _container(node, first, most, room, paged=offset is not None or limit is not None)
    try:
        return Look(one_line(node.text, node.start, room).text, covered(node, node.kind))
    except Overflow:
        raise TooLarge(node.end - node.start, (read_at(node),)) from None


def iterate_over(
    text: Text, *, path: str, fields: Sequence[str], offset: int = 0, limit: int | None = None, room: int
) -> Look:
    """A row of JSON for each item of the array at ``path``: its ``_index``, and those of the fields that it has.

    Args:
        text: The content.
        path: The array.
        fields: Keys, or paths inside an item; 1 to 64. An item that is no object gives its ``_value`` instead.
        offset: The first item, 0 or more.
        limit: How many items, 1 or more; all by default.
        room: Bytes that there are for the answer.

    Raises:
        ExploreError: ``not_an_array``, ``invalid_argument`` for the fields, or as
            :func:`scratch.explore.navigate.resolve`.
        InvalidArgument: ``offset`` or ``limit`` is no count.
        TooLarge: more than ``room`` bytes.
    """
    first, most = checked(offset, limit)
    wanted = _parsed(fields)
    node = array_at(text, path, lambda array: call_on(array, "iterate_over", fields=list(wanted)))
    total = item_index(node).count
    stop = min(total, first + most)
    weights = dict.fromkeys(("_value", *wanted), 0)
    rows: list[str] = []
    used = duplicates = 0
    for item in children(node, first, stop):
        row, repeated = _row(item, wanted)
        for name, value in row.items():
            weights[name] += len(value)
        index = str(item.segments[-1])
        # a field of the items that is named like our own is told apart by its path
        cells = ((dumps("$._index" if name == "_index" else name), value) for name, value in row.items())
        rows.append(_object((('"_index"', index), *cells)))
        duplicates += repeated
        used += utf8_size(rows[-1]) + 1
        if used > room + 1:
            estimated = used * (stop - first) // len(rows)
            raise TooLarge(estimated, _fewer_rows(node, first, stop, weights, wanted, estimated, room))
    notes = [f"{window(first, stop, total, 'item')}, fields: [{','.join(map(shortened, wanted))}]"]
    if rows and (missing := [shortened(name) for name in wanted if not weights[name]]):
        notes.append(f"none of them has {', '.join(missing)}{_spelt_like(node, first, missing[0])}")
    if duplicates:
        notes.append(duplicates_note(duplicates))
    smaller = _fewer_rows(node, first, stop, weights, wanted, used, room)
    return Look("\n".join(rows) or "[]", covered(node, *notes), smaller)


def _spelt_like(array: Node, index: int, name: str) -> str:
    """The keys of an item that ``name`` may stand for."""
    item = entered(next(children(array, index, index + 1)))
    keys = like(name, list(object_members(item).starts), _KEYS_NAMED) if item.kind == "object" else []
    return f"; did you mean {', '.join(map(shortened, keys))}?" if keys else ""


def _parsed(fields: Sequence[str]) -> dict[str, tuple[Segment, ...]]:
    names = list(fields) if isinstance(fields, list | tuple) else []
    if not 0 < len(names) <= MAX_FIELDS or not all(isinstance(name, str) for name in names):
        raise ExploreError(
            "invalid_argument",
            "fields must be a list of 1 to 64 keys or paths inside an item, for example ['id', 'author.name']",
            argument="fields",
        )
    return {name: parse(name) for name in names}


def _row(item: Node, wanted: Mapping[str, Sequence[Segment]]) -> tuple[dict[str, str], int]:
    """What of an item is shown, as JSON, and how many duplicate keys it has."""
    inner = entered(item)
    if not inner.is_container:
        return {"_value": _cell(item)}, 0
    found = object_members(inner) if inner.kind == "object" else None
    row: dict[str, str] = {}
    for name, segments in wanted.items():
        node: Node | None = inner
        for depth, segment in enumerate(segments):
            if node is None:
                break
            if depth == 0 and found is not None:  # the keys are known already
                key = str(segment)
                node = child(inner, key, found.starts[key]) if key in found.starts else None
            else:
                node = step(node, segment)
        if node is not None:
            row[name] = _cell(node)
    if found is None:  # an array whose items are not what was asked for
        return row or {"_value": _cell(item)}, 0
    return row, found.duplicates


def _cell(node: Node) -> str:
    """A value in a row, as JSON: cut when it is long, with the call for all of it."""
    if node.kind == "string":
        if node.end - node.start <= SHOWN_STRING:
            return one_string(node.text.read(node.start, node.end))
        first = list(islice(parts(node.text.data, node.start, node.end), 2))
        text = decode_text(first[0][1]) if first else ""
        if len(first) < 2 and len(text) <= SHOWN_STRING:  # noqa: PLR2004  # one part is all of it
            return dumps(text)
        return dumps(f"{text[:SHOWN_STRING]}… [cut: {written(call_on(node, 'get_in'))}]")
    try:
        return one_line(node.text, node.start, SHOWN_VALUE).text
    except Overflow:
        return dumps(f"… [cut: {with_article(node.kind)}, {written(call_on(node, 'get_in'))}]")


def _container(node: Node, first: int, most: int, room: int, *, paged: bool) -> Look:
    total, duplicates = counts(node)
    stop = min(total, first + most)
    size = _source_size(node, first, stop)
    smaller = _smaller_page(node, first, stop, size, room)
    if size > _HOPELESS * room:
        raise TooLarge(size, smaller)
    shown: list[tuple[str, str]] = []
    used = 2
    for value in children(node, first, stop):
        key = dumps(value.segments[-1]) if node.kind == "object" else ""
        used += utf8_size(key) + 1
        try:
            line = one_line(value.text, value.start, room - used)
        except Overflow:
            raise TooLarge(max(room + 1, size), smaller) from None
        shown.append((key, line.text))
        used += utf8_size(line.text) + 1
        duplicates += line.duplicates
    what = "item" if node.kind == "array" else "key"
    notes = [window(first, stop, total, what) if paged else counted(total, what)]
    if duplicates:
        notes.append(duplicates_note(duplicates))
    text = _object(shown) if node.kind == "object" else "".join(("[", ",".join([value for _, value in shown]), "]"))
    return Look(text, covered(node, *notes), smaller)


def _source_size(node: Node, first: int, stop: int) -> int:
    """Bytes that the children ``[first, stop)`` take in the source."""
    if node.kind == "object":
        return sum(value.end - value.start for value in children(node, first, stop))
    start = next(children(node, first, stop), None)
    last = next(children(node, max(first, stop - 1), stop), None)
    return last.end - start.start if start and last else 0


def _smaller_page(node: Node, first: int, stop: int, size: int, room: int) -> tuple[Call, ...]:
    if stop - first > 1:
        page = call_on(node, "get_in", offset=first, limit=half(stop - first, size, room))
        return (page, call_on(node, "schema"))
    value = next(children(node, first, stop), None)
    return () if value is None else (_smaller_value(value, room), call_on(value, "schema"))


def _smaller_value(node: Node, room: int) -> Call:
    """A call that shows less than the whole value."""
    while (count := counts(node)[0]) == 1:
        node = next(children(node, 0, 1))
    if node.kind == "string":
        count = content_of(node).line_count
    if count > 1:
        return call_on(node, "get_in", offset=0, limit=half(count, node.end - node.start, room))
    return read_at(node)


def _string(node: Node, first: int, most: int, room: int) -> Look:
    content = content_of(node)
    total = content.line_count
    stop = min(total, first + most)
    smaller: tuple[Call, ...] = (read_at(node),)
    if stop - first > 1:
        size = content.line_start(stop + 1) - content.line_start(first + 1)
        page = call_on(node, "get_in", offset=first, limit=half(stop - first, size, room))
        smaller = (page, call_on(node, "grep", **GREP_ERRORS.arguments))
    shown = numbered(content, first + 1, stop + 1, room, smaller)
    notes = [window(first, stop, total, "line", base=1) if total else "an empty string, do not retry"]
    if first < stop < total:
        notes.append(f"{named('get_in')} goes on with offset={stop}")
    if entered(node) is not node:
        notes.append("it holds JSON: a path can go on inside it")
    return Look(shown, covered(node, *notes), smaller)


def _fewer_rows(
    node: Node,
    first: int,
    stop: int,
    weights: Mapping[str, int],
    wanted: Iterable[str],
    size: int,
    room: int,
) -> tuple[Call, ...]:
    item = next(children(node, first, stop), None)
    if item is None:
        return ()
    calls = []
    fields, count = list(wanted), stop - first
    if count > 1:
        calls.append(call_on(node, "iterate_over", fields=fields, offset=first, limit=half(count, size, room)))
    if len(fields) > 1:
        light = set(sorted(fields, key=lambda name: weights[name] or math.inf)[: len(fields) // 2])
        fewer = [name for name in fields if name in light]
        calls.append(call_on(node, "iterate_over", fields=fewer, offset=first, limit=count))
    return (*calls, call_on(item, "get_in"), GREP_ERRORS)


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "".join(("{", ",".join([f"{key}:{value}" for key, value in members]), "}"))
