"""Finding a value by its path, and saying what is there instead, and what to try, when it is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice

from scratch.explore.jsoncheck import Document, examine
from scratch.explore.lines import EMPTY, GREP_ERRORS
from scratch.explore.look import Call, ExploreError, named
from scratch.explore.path import (
    MAX_PATH_BYTES,
    Kind,
    Node,
    Segment,
    as_index,
    child,
    children,
    content_of,
    entered,
    item_index,
    kind_of,
    object_members,
    parse,
    render,
    root_of,
    shortened,
)
from scratch.explore.text import Text
from scratch.windows import DEFAULT_LENGTH, check_count

LISTED = 40
"""Keys that an error or an outline lists."""
_LOOKED_AT = 50_000
"""Keys that are looked at for one that is written a little differently."""
_COMPARED_KEYS = 2_000
"""Keys that are compared with a misspelt one, and how long they may be: each takes about 20 microseconds."""
_COMPARED_LENGTH = 64


def document(text: Text) -> Document:
    """What the text is as JSON.

    Raises:
        ExploreError: ``not_json``, with the reason and where.
    """
    found = examine(text)
    if isinstance(found, Document):
        return found
    if text.size == 0:
        raise ExploreError("not_json", EMPTY, reason="empty", offset=0)
    line = text.line_of(found.offset)
    raise ExploreError(
        "not_json",
        f"the content is not JSON: {found.reason} at byte {text.origin(found.offset)} (line {line}); read it as text",
        (Call("head", {"lines": 50}), GREP_ERRORS),
        reason=found.reason,
        offset=text.origin(found.offset),
        line=line,
    )


def resolve(text: Text, path: object) -> Node:
    """The value at ``path``.

    Raises:
        ExploreError: ``invalid_argument`` for the path; ``not_json``; ``key_path_not_found`` with how far it goes and
            what is there instead.
    """
    segments = parse(path)
    node = root_of(text, document(text))
    for position in range(len(segments)):
        found = step(node, segments[position])
        if found is None:
            raise _not_found(node, segments, position)
        node = found
    return node


def step(node: Node, segment: Segment) -> Node | None:
    """The member or item of that name, also inside a string that holds JSON."""
    node = entered(node)
    if node.kind == "object":
        found = object_members(node)
        start = found.starts.get(str(segment))
        if start is None:
            return None
        if found.duplicates:
            node = replace(node, notes=(*node.notes, duplicates_note(found.duplicates)))
        return child(node, str(segment), start)
    if node.kind == "array":
        index = as_index(segment)
        if index is not None and index < 0:
            index += item_index(node).count
        if index is not None and index >= 0:
            return next(children(node, index, index + 1), None)
    return None


def open_path(text: Text, path: object) -> tuple[Text, str]:
    """The string value at ``path`` as a text, and a word for the footer. A root that is no string is the whole content.

    Raises:
        ExploreError: as :func:`resolve`; ``invalid_argument`` when the value is no string.
    """
    if not parse(path):
        found = examine(text)
        if not isinstance(found, Document) or root_of(text, found).kind != "string":
            return text, "the whole content"
    node = resolve(text, path)
    if node.kind != "string":
        raise ExploreError(
            "invalid_argument",
            f"{shortened(node.path)} is no string but {with_article(node.kind)}: it has no lines of its own; "
            f"leave path out, or read it with {named('get_in')}",
            (call_on(node, "get_in"), call_on(node, "schema")),
            argument="path",
            value_type=node.kind,
        )
    return content_of(node), "; ".join((f"the string at {shortened(node.path)}", *node.notes))


def array_at(text: Text, path: object, over: Callable[[Node], Call]) -> Node:
    """The array at ``path``, or in the JSON in the string there. ``over`` makes the same call for another array.

    Raises:
        ExploreError: ``not_an_array``, with the arrays that are in it; or as :func:`resolve`.
    """
    node = entered(resolve(text, path))
    if node.kind == "array":
        return node
    what = f"{shortened(node.path)} is no array but {with_article(node.kind)}"
    if node.kind != "object":
        raise ExploreError(
            "not_an_array", f"{what}; read it with {named('get_in')}", (call_on(node, "get_in"),), value_type=node.kind
        )
    starts = object_members(node).starts.items()
    of_arrays = islice((member for member in starts if kind_of(node.text.data[member[1]]) == "array"), LISTED)
    arrays = [child(node, key, start) for key, start in of_arrays]
    raise ExploreError(
        "not_an_array",
        f"{what}; name one of its arrays" if arrays else f"{what}, and none of its values is an array; see its schema",
        (*map(over, arrays[:3]), call_on(node, "schema")),
        value_type=node.kind,
        available_arrays=[shortened(array.path) for array in arrays],
    )


def _not_found(node: Node, segments: Sequence[Segment], position: int) -> ExploreError:
    """Why ``segments[position]`` is not in ``node``, and what is."""
    node = entered(node)
    wanted, rest = str(segments[position]), segments[position + 1 :]
    reason = f"there is no {shortened(wanted)!r} in {shortened(node.path)}"
    data: dict[str, object] = {
        "requested_path": shortened(render((*node.segments, *segments[position:]))),
        "failed_segment": shortened(wanted),
        "valid_prefix": shortened(node.path),
    }
    calls = [call_on(node, "schema")]
    if node.kind == "object":
        keys = list(object_members(node).starts)
        near = like(wanted, keys, LISTED)
        listed = islice(dict.fromkeys([*near, *keys[: 2 * LISTED]]), LISTED)
        data["available_keys"] = [shortened(key) for key in listed]
        if len(keys) > LISTED:
            data["available_keys_omitted"] = len(keys) - LISTED
        if near:
            calls.insert(0, call_on(_as_far_as_it_leads(node, (near[0], *rest)), "get_in"))
        reason += f", an object with {counted(len(keys), 'key')}"
    elif node.kind == "array":
        data["array_length"] = item_index(node).count
        reason += f", an array of {counted(item_index(node).count, 'item')}"
        if as_index(segments[position]) is None:
            fields = rest if wanted == "*" else segments[position:]
            if fields:
                field = render(fields).removeprefix("$.").removeprefix("$")
                calls.insert(0, call_on(node, "iterate_over", fields=[field], limit=20))
            reason += f"; give an index, or read a field of each item with {named('iterate_over')}"
    else:
        data["value_type"] = node.kind
        what = "a string that holds no JSON" if node.kind == "string" else with_article(node.kind)
        reason += f": that is {what}, and the path can only end there"
        calls.insert(0, call_on(node, "get_in"))
    return ExploreError("key_path_not_found", reason, tuple(calls), **data)


def _as_far_as_it_leads(node: Node, segments: Sequence[Segment]) -> Node:
    for segment in segments:
        further = step(node, segment)
        if further is None:
            return node
        node = further
    return node


def like(wanted: str, keys: Sequence[str], most: int) -> list[str]:
    """Those of ``keys`` that are spelt like ``wanted``, the closest first, ``most`` of them."""
    letters = _letters(wanted[:_COMPARED_LENGTH])
    compared: dict[str, str] = {}
    same = []
    for key in islice(keys, _LOOKED_AT):
        if len(key) <= _COMPARED_LENGTH:
            found = _letters(key)
            if found == letters:
                same.append(key)
            elif len(compared) < _COMPARED_KEYS:
                compared.setdefault(found, key)
    close = get_close_matches(letters, compared, n=most, cutoff=0.6)
    return [*same, *(compared[found] for found in close)][:most]


def _letters(key: str) -> str:
    """``key`` without what is easily written in another way: case, underscores, spaces."""
    return "".join(filter(str.isalnum, key)).casefold() or key


def checked(offset: int | None, limit: int | None) -> tuple[int, int]:
    """The first one and the most of a window; None: 0, and as many as there are.

    Raises:
        InvalidArgument: they are no counts.
    """
    first = 0 if offset is None else check_count(offset, "offset", least=0)
    return first, 2**63 if limit is None else check_count(limit, "limit", least=1)


def half(count: int, size: int, room: int) -> int:
    """At most half of ``count`` things that take ``size`` bytes: so many as should fit well, at least one."""
    return max(1, min(count // 2, count * room // (2 * max(1, size))))


def call_on(node: Node, tool: str, **arguments: object) -> Call:
    """The call of a tool on a value; where no path can lead, the bytes that it starts with."""
    path = node.path
    return Call(tool, {"path": path, **arguments}) if len(path.encode()) <= MAX_PATH_BYTES else read_at(node)


def read_at(node: Node) -> Call:
    """Read the source of a value."""
    return Call("read_handle", {"offset": node.text.origin(node.start), "length": DEFAULT_LENGTH})


def covered(node: Node, *notes: str) -> str:
    """What was looked at, for the footer."""
    first, *rest = notes
    return "; ".join([f"{shortened(node.path)} ({first})", *rest, *node.notes])


def window(first: int, stop: int, total: int, what: str, *, base: int = 0) -> str:
    """What of how many is shown: ``120 items``, ``items [3..7) of 120 total``; the first has the number ``base``."""
    if (first, stop) == (0, total):
        return counted(total, what)
    if first >= stop:
        return f"no {what}s there: {total:,} in total"
    return f"{what}s [{first + base}..{stop + base}) of {total:,} total"


def counted(count: int, what: str) -> str:
    """``1 item``, ``2,000 items``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def duplicates_note(count: int) -> str:
    """What the footer says about keys that come more than once."""
    return f"{counted(count, 'duplicate key')}: the last one counts"


def with_article(kind: Kind) -> str:
    """``an array``, ``a string``, ``null``."""
    if kind == "null":
        return kind
    return f"{'an' if kind[0] in 'ao' else 'a'} {kind}"
