"""What is where in a content (``schema``), and what the items of an array have in common (``item_schema``)."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterator

from scratch.explore.jsoncheck import Fault, examine
from scratch.explore.jsonscan import STRIDE, WINDOW, Tally
from scratch.explore.lines import EMPTY, GREP_ERRORS, MAX_LINE, Page
from scratch.explore.look import Call, Look, TooLarge
from scratch.explore.navigate import (
    LISTED,
    array_at,
    call_on,
    checked,
    counted,
    covered,
    duplicates_note,
    read_at,
    resolve,
    window,
)
from scratch.explore.path import (
    Kind,
    Node,
    child,
    children,
    content_of,
    counts,
    entered,
    item_index,
    item_spans,
    kind_of,
    object_members,
    parse,
    render,
    shortened,
)
from scratch.explore.text import Text, shown
from scratch.explore.values import key_text
from scratch.windows import check_count

_SAMPLE = 500
"""Items of an array that are looked at to say how uniform it is."""
_KEYS_SHOWN = 200
_LONG_STRING = 1_000
"""Bytes from which on a string is measured."""
_CSV_LINES = 20
"""Lines that must have as many fields as the first."""
_READ_FIRST = (Call("head", {"lines": 50}), GREP_ERRORS)
_HEADING = re.compile(rb"^ {0,3}(?:(`{3,}|~{3,})|(#{1,6})[ \t]+\S[^\n]*)", re.MULTILINE)


def schema(text: Text, *, path: str = "$", max_depth: int = 4, room: int) -> Look:
    """What is where: the outline of JSON, the headings of markdown, the columns of CSV, or what kind of text it is.

    ``max_depth`` (1 or more) is how many levels below ``path``, or of headings, are shown.

    Raises:
        ExploreError: as :func:`scratch.explore.navigate.resolve`; a root that is not JSON is no error.
        InvalidArgument: ``max_depth`` is no such number.
        TooLarge: more than ``room`` bytes.
    """
    check_count(max_depth, "max_depth", least=1)
    found = examine(text)
    if isinstance(found, Fault) and not parse(path):
        return _plain(text, found, max_depth, room)
    node = resolve(text, path)
    page = Page(room, ())
    deepest = 0
    try:
        for number, (line, depth) in enumerate(_outline(node, max_depth)):
            deepest = max(deepest, depth)
            page.add(line, done=number, total=number + 1)
    except TooLarge as error:
        raise TooLarge(error.estimated_bytes, _shallower(node, max_depth, deepest)) from None
    smaller = _shallower(node, max_depth, deepest)
    notes = [f"depth {max_depth}"]
    if duplicates := counts(entered(node))[1]:
        notes.append(duplicates_note(duplicates))
    return Look(page.text(), covered(node, *notes), smaller)


def _shallower(node: Node, max_depth: int, deepest: int) -> tuple[Call, ...]:
    """What shows less than an outline that went ``deepest`` levels down: not half of what was only allowed."""
    less = min(max_depth // 2, deepest - 1)
    return (*((call_on(node, "schema", max_depth=less),) if less > 0 else ()), read_at(node))


def _outline(root: Node, max_depth: int) -> Iterator[tuple[str, int]]:
    """The lines, and how far down each is."""
    stack: list[tuple[Node | str, int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, str):
            yield node, depth
            continue
        inner = entered(node)
        holds = "" if inner is node else "string that holds JSON: "
        yield f"{node.path}: {holds}{_described(inner)}", depth
        if not inner.is_container or depth == max_depth:
            continue
        if inner.kind == "object":
            below: list[tuple[Node | str, int]] = [(value, depth + 1) for value in children(inner, 0, LISTED)]
            if (more := counts(inner)[0] - LISTED) > 0:
                below.append((f"{node.path}: … {counted(more, 'more key')}", depth))
            stack += reversed(below)
        else:
            # items that are neither objects nor arrays are described with their array
            first = next((item for item in _sample(inner) if entered(item).is_container), None)
            if first is not None:
                stack.append((first, depth + 1))


def _described(node: Node) -> str:
    if node.kind == "string":
        size = node.end - node.start - 2
        if size <= _LONG_STRING:
            return "string"
        content = content_of(node)
        return f"string, {counted(content.size, 'byte')}, {counted(content.line_count, 'line')}"
    if not node.is_container:
        return node.kind
    if node.kind == "object":
        what = f"object, {counted(counts(node)[0], 'key')}"
    else:
        what = f"{'JSON Lines, an ' if node.lines else ''}array, {_described_items(node)}"
    first, last = node.text.line_of(node.start), node.text.line_of(node.end - 1)
    return f"{what}, lines {first:,} to {last:,}" if last > first else what


def _described_items(node: Node) -> str:
    """How many items, of what kinds, and how many of them have the keys of the first."""
    total = item_index(node).count
    kinds: Counter[Kind] = Counter()
    keys: Counter[frozenset[str]] = Counter()
    for item in _sample(node):
        kinds[item.kind] += 1
        if item.kind == "object":
            keys[frozenset(object_members(item).starts)] += 1
    if not total:
        return "empty"
    what = f"{counted(total, 'item')}: "
    if kinds.total() < total:
        what += f"of {kinds.total()} looked at "
    if len(kinds) > 1:
        what += ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    else:
        what += f"all {next(iter(kinds))}"
    if keys.total() > 1:
        common, count = keys.most_common(1)[0]
        same = "all" if count == keys.total() else f"{count:,} of {keys.total():,}"
        what += f", {same} with the same {counted(len(common), 'key')}"
    return what


def _sample(node: Node) -> Iterator[Node]:
    """The items of an array; of a long one some from its start and then some evenly spaced."""
    total = item_index(node).count
    if total <= _SAMPLE:
        yield from children(node, 0, total)
        return
    yield from children(node, 0, STRIDE)
    step = -(-(total - STRIDE) // (_SAMPLE - STRIDE))
    for at in range(STRIDE, total, step):
        yield from children(node, at, at + 1)


def item_schema(text: Text, *, path: str, offset: int = 0, limit: int | None = None, room: int) -> Look:
    """The keys of the objects in a window of an array: of which types, present in how many of how many.

    Keys of objects in them are dotted. ``offset`` and ``limit`` (all) choose the items.

    Raises:
        ExploreError: ``not_an_array``, or as :func:`scratch.explore.navigate.resolve`.
        InvalidArgument: ``offset`` or ``limit`` is no count.
        TooLarge: more than ``room`` bytes.
    """
    first, most = checked(offset, limit)
    node = array_at(text, path, lambda array: call_on(array, "item_schema"))
    total = item_index(node).count
    stop = min(total, first + most)
    tally = Tally()
    others: Counter[Kind] = Counter()
    for number, span in enumerate(item_spans(node, first, stop), first):
        kind = kind_of(node.text.data[span.start])
        if kind == "object":
            tally.add(node.text, span.start)
        elif kind == "string" and (item := entered(child(node, number, span.start, span.end))).kind == "object":
            tally.add(item.text, item.start)
        else:
            others[kind] += 1
    objects = max(0, stop - first) - others.total()
    fewer = (call_on(node, "item_schema", offset=first, limit=(stop - first) // 2),) if stop - first > 1 else ()
    smaller = (*fewer, *(call_on(item, "schema", max_depth=1) for item in children(node, first, min(stop, first + 1))))
    page = Page(room, smaller)
    for number, key in enumerate(tally.keys[:_KEYS_SHOWN]):
        kinds = " | ".join(dict.fromkeys(kind_of(byte) for byte, _ in key.firsts.most_common()))
        name = render(map(key_text, key.path)).removeprefix("$").removeprefix(".")
        row = f"{shortened(name)}: {kinds}, in {key.firsts.total():,} of {objects:,}"
        page.add(row, done=number, total=len(tally.keys))
    notes = [window(first, stop, total, "item")]
    if others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common())
        notes.append(f"{others.total():,} of them no objects: {kinds}")
    if (more := len(tally.keys) - _KEYS_SHOWN) > 0:
        notes.append(f"{counted(more, 'more key')}{' at least' if tally.omitted else ''} not shown")
    if tally.duplicates:
        notes.append(duplicates_note(tally.duplicates))
    return Look(page.text() or "{}", covered(node, *notes), smaller)


def _plain(text: Text, fault: Fault, max_depth: int, room: int) -> Look:
    """What kind of text it is that is not JSON."""
    if text.size == 0:
        return Look("", EMPTY)
    start = text.read(0, MAX_LINE).lstrip(b"\xef\xbb\xbf \t\r\n")
    headings = list(_headings(text))
    rows = []
    kind = "text"
    if start[:1] in {b"{", b"["}:
        where = f"at byte {fault.offset} (line {text.line_of(fault.offset):,})"
        rows.append(f"It starts like JSON, but is not JSON: {fault.reason} {where}")
    if len(headings) > 1 or (headings and start[:1] == b"#"):
        kind = "markdown"
        rows += _sections(headings, text.line_count, max_depth)
    elif columns := _columns(text):
        kind = "CSV"
        rows.append(f"{counted(len(columns), 'column')} (line 1): {', '.join(columns)}")
    fewer = (Call("schema", {"max_depth": max_depth // 2}),) if max_depth > 1 and headings else ()
    page = Page(room, (*fewer, *_READ_FIRST))
    for number, row in enumerate((f"{kind}, {_measured(text)}", *rows)):
        page.add(row, done=number, total=len(rows) + 1)
    return Look(page.text(), f"{kind}, {counted(text.line_count, 'line')}", (*fewer, *_READ_FIRST))


def _measured(text: Text) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    encoding = "UTF-8"
    longest, at_line, line, before = 0, 1, 1, 0
    for start in range(0, text.size, WINDOW):
        block = text.read(start, start + WINDOW)
        lengths = [len(part) for part in block.split(b"\n")]
        lengths[0] += before
        if (most := max(lengths)) > longest:
            longest, at_line = most, line + lengths.index(most)
        line, before = line + len(lengths) - 1, lengths[-1]
        if encoding == "UTF-8":
            try:
                decoder.decode(block, final=start + WINDOW >= text.size)
            except UnicodeDecodeError:
                encoding = "not UTF-8"
    return f"{counted(text.line_count, 'line')}, longest line {longest:,} bytes (line {at_line:,}), {encoding}"


def _headings(text: Text) -> Iterator[tuple[int, int, str]]:
    """Line, level and text of each heading of markdown that is not in fenced code."""
    fence = b""
    for start, stop in _blocks_of_lines(text):
        for found in _HEADING.finditer(text.data, start, stop):
            if found[1]:
                if not fence:
                    fence = found[1]
                elif found[1].startswith(fence):
                    fence = b""
            elif not fence:
                title = shortened(shown(found[0].strip()[:_LONG_STRING]))
                yield text.line_of(found.start()), len(found[2]), title


def _blocks_of_lines(text: Text) -> Iterator[tuple[int, int]]:
    """The text in parts that end with a line, but for lines that are longer than a part."""
    start = 0
    while start < text.size:
        stop = min(start + WINDOW, text.size)
        if stop < text.size and (newline := text.data.rfind(b"\n", start, stop)) >= 0:
            stop = newline + 1
        yield start, stop
        start = stop


def _sections(headings: list[tuple[int, int, str]], line_count: int, max_depth: int) -> Iterator[str]:
    """Each heading with the lines up to the next one of its level or above."""
    ends: dict[int, int] = {}  # by level: the line before the next heading of that level or above
    rows = []
    for line, level, title in reversed(headings):
        if level <= max_depth:
            rows.append(f"lines {line:,} to {ends.get(level, line_count):,}: {title}")
        ends |= dict.fromkeys(range(level, 7), line - 1)
    return reversed(rows)


def _columns(text: Text) -> list[str]:
    """The names in the first line of a CSV, where the next lines have as many fields; else none."""
    stop = text.line_start(_CSV_LINES + 1)
    if text.line_count < 2 or stop > WINDOW:  # noqa: PLR2004  # a header and a row
        return []
    lines = [line.rstrip("\r") for line in shown(text.read(0, stop)).removeprefix("\ufeff").split("\n")]
    for delimiter in ",\t;|":
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:  # a carriage return in a field, or a field of 128 KiB
            continue
        if rows and len(rows[0]) > 1 and all(rows[0]) and {len(row) for row in rows} == {len(rows[0])}:
            return [shortened(name) for name in rows[0]]
    return []
