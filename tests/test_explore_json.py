"""Looks into JSON by its bytes, with the parser of the standard library as the oracle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scratch.errors import InvalidArgument
from scratch.explore import jsoncheck, jsonscan, values
from scratch.explore.jsoncheck import MAX_DEPTH, Document, Fault, examine
from scratch.explore.jsontools import get_in, iterate_over
from scratch.explore.look import Call, ExploreError, Look, TooLarge
from scratch.explore.navigate import document, resolve
from scratch.explore.path import children, content_of, item_index, object_members, render, root_of
from scratch.explore.text import Text, load

ROOM = 1_000_000


@dataclass(frozen=True)
class Num:
    """A number as it is written."""

    source: str


def oracle(source: str) -> Any:
    return json.loads(source, strict=False, parse_int=Num, parse_float=Num, parse_constant=Num)


def compact(value: Any) -> str:
    if isinstance(value, Num):
        return value.source
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(key)}:{compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    written = json.dumps(value, ensure_ascii=False)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in written)


@contextmanager
def small_windows(window: int = 16) -> Iterator[None]:
    """So that values of a few bytes go over the ends of windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonscan, "WINDOW", window)
        patch.setattr(jsoncheck, "WINDOW", window)
        patch.setattr(jsoncheck, "_MANY", 3)  # the deep patterns as well
        patch.setattr(values, "PIECE", max(16, window))
        yield


windows = st.sampled_from([12, 13, 16, 23, 64, 131_072])
spaces = st.sampled_from(["", "", "", " ", "\n", "\r\n\t ", " " * 40])
characters = st.one_of(st.characters(), st.sampled_from('"\\/\n\x00\x7f\u2028é日😀\ud835\udc00{}[],:'))


def as_string(text: str, *, ascii_only: bool, odd: bool) -> str:
    written = json.dumps(text, ensure_ascii=ascii_only)
    # what may be escaped and what should not be there, but is tolerated
    return written.replace("/", "\\/").replace("\\u0000", "\x00") if odd else written


strings = st.builds(as_string, st.text(characters, max_size=30), ascii_only=st.booleans(), odd=st.booleans())
numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "1.10", "1E5", "0e-0", "1e+400", "NaN", "Infinity", "-Infinity", "1" * 50, "0." + "3" * 50]),
)
scalars = st.one_of(strings, numbers, st.sampled_from(["true", "false", "null"]))


@st.composite
def containers(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    def space() -> str:
        return draw(spaces)

    items = draw(st.lists(inner, max_size=5))
    if draw(st.booleans()):
        keys = st.one_of(st.sampled_from(['"a"', '"b"', '"\\u0061"']), strings)  # often one that was there before
        items = [f"{draw(keys)}{space()}:{space()}{item}" for item in items]
        left, right = "{}"
    else:
        left, right = "[]"
    return left + space() + ",".join(f"{space()}{item}{space()}" for item in items) + right


documents = st.recursive(scalars, containers, max_leaves=20)


def text_of(source: str) -> Text:
    return Text(source.encode("utf-8", "surrogatepass"))


def shown_value(text: Text) -> str:
    root = root_of(text, document(text))
    return values.one_line(text, root.start, ROOM).text


@settings(deadline=None)
@given(documents, windows)
@example('{"a": 1, "\\u0061": 2, "b": {"a": [], "a": {}}}', 12)
@example('"\\ud83d\\ude00 \\ud83d \\\\ud83d\\ude00"', 16)
@example('["' + "\\\\" * 30 + '"]', 13)
@example('"\udc00\\ud800"', 16)
def test_a_value_on_one_line_is_what_the_oracle_reads(source: str, window: int) -> None:
    with small_windows(window):
        assert shown_value(text_of(source)) == compact(oracle(source))


@st.composite
def walks(draw: st.DrawFn) -> tuple[str, list[str | int]]:
    source = draw(documents)
    value, path = oracle(source), list[str | int]()
    while isinstance(value, dict | list) and value and draw(st.integers(0, 3)):
        segment = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
        path.append(segment)
        value = value[segment]
    return source, path


@settings(deadline=None)
@given(walks(), windows)
def test_every_path_leads_to_the_value_that_the_oracle_has_there(
    walk: tuple[str, list[str | int]], window: int
) -> None:
    source, path = walk
    value = oracle(source)
    for segment in path:
        value = value[segment]
    with small_windows(window):
        node = resolve(text_of(source), render(path))
        assert node.path == render(path)
        assert values.one_line(node.text, node.start, ROOM).text == compact(value)
        assert oracle(node.text.read(node.start, node.end).decode("utf-8", "surrogatepass")) == value
        if isinstance(value, str):
            content = content_of(node)
            assert content.read(0, content.size).decode("utf-8", "surrogatepass") == value


@settings(deadline=None)
@given(documents, st.sampled_from(list('{}[],:"\\0aé')), st.data(), windows)
@example("[1]", ",", None, 16)
def test_what_is_json_is_told_as_the_oracle_tells_it(source: str, char: str, data: Any, window: int) -> None:
    at = data.draw(st.integers(0, len(source))) if data else 2
    cut = data.draw(st.integers(0, 2)) if data else 0
    changed = source[:at] + char + source[at + cut :]
    try:
        oracle(changed)
        valid = True
    except ValueError:
        valid = False
    with small_windows(window):
        found = examine(text_of(changed))
    assert (isinstance(found, Document) and not found.lines) == valid


@given(st.lists(documents, max_size=6), st.integers(0, 250), st.data(), windows)
@settings(max_examples=60, deadline=None)
def test_items_of_a_long_array_are_where_the_oracle_has_them(
    some: list[str], count: int, data: st.DataObject, window: int
) -> None:
    pool = [*some, "0", "-1.5", '"a,]"', "[1, [2]]", '{"a": {"b": [[[]]]}}']
    items = [pool[data.draw(st.integers(0, len(pool) - 1))] if i % 7 == 0 else str(i) for i in range(count)]
    text = text_of("[" + " ,\n ".join(items) + "]")
    first, stop = sorted((data.draw(st.integers(0, count + 3)), data.draw(st.integers(0, count + 3))))
    with small_windows(window):
        node = root_of(text, document(text))
        assert item_index(node).count == count
        found = [values.one_line(text, item.start, ROOM).text for item in children(node, first, stop)]
    assert found == [compact(oracle(item)) for item in items[first:stop]]


@given(
    st.lists(documents, min_size=2, max_size=5), st.integers(1, 40), st.sampled_from(["\n", "\r\n", "\n\n \n"]), windows
)
@settings(max_examples=60, deadline=None)
def test_json_lines_are_an_array_of_their_values(some: list[str], times: int, newline: str, window: int) -> None:
    lines = [line.replace("\n", " ").replace("\r", " ") for line in some] * times
    text = text_of(newline + newline.join(lines) + (newline if times % 2 else ""))
    with small_windows(window):
        node = root_of(text, document(text))
        assert node.lines
        assert node.kind == "array"
        assert item_index(node).count == len(lines)
        found = [values.one_line(text, item.start, ROOM).text for item in children(node, 0, len(lines))]
    assert found == [compact(oracle(line)) for line in lines]


@settings(deadline=None)
@given(strings, windows)
def test_each_byte_of_a_string_knows_where_it_comes_from(string: str, window: int) -> None:
    source = string.encode("utf-8", "surrogatepass")
    with small_windows(window):
        inner = values.string_text(Text(source), 0, len(source))
        origins = [inner.origin(offset) for offset in range(inner.size + 1)]
    assert origins == sorted(origins)
    assert origins[-1] == len(source) - 1
    for offset, origin in enumerate(origins[:-1]):
        if source[origin : origin + 1] != b"\\":
            assert source[origin] == inner.data[offset]


def look(source: str | bytes, tool: Any = get_in, *, room: int = ROOM, **arguments: Any) -> Look:
    text = Text(source) if isinstance(source, bytes) else text_of(source)
    found: Look = tool(text, room=room, **arguments)
    return found


def not_json(source: str | bytes) -> ExploreError:
    with pytest.raises(ExploreError) as caught:
        look(source, path="a")
    assert caught.value.code == "not_json"
    return caught.value


@pytest.mark.parametrize(
    ("source", "reason", "offset", "line"),
    [
        ("# Title\n", "'#' where a value should be", 0, 1),
        ('{"a": 1,\n "b": 2,\n}', "a comma before '}'", 18, 3),
        ("[1, 2", "the text ends in the array that starts at byte 0", 5, 1),
        ('{"a": [1, 2', "the text ends in the array that starts at byte 6", 11, 1),
        ('{"a": "bc', "the text ends in the string that starts at byte 6", 9, 1),
        ('{"a" 1}', "'1' where a colon after the key should be", 5, 1),
        ("{a: 1}", "'a' where a key in double quotes should be", 1, 1),
        ('["\\x"]', "an escape that JSON does not have", 2, 1),
        ("[01]", "'1' where a comma or ']' should be", 2, 1),
        ("[1.]", "']' where a digit should be", 3, 1),
        ("[-]", "'-' where a value should be", 1, 1),
        ("[tru]", "'t' where a value should be", 1, 1),
        ("2024-01-01 started", "there is more text after the first value", 4, 1),
        ('{"a": 1}\n{"a": \n', "the text ends in the object that starts at byte 9", 16, 2),
        ('{"a": 1}\n{"a":\n 2}', "this line is not one JSON value", 18, 3),
        (b"\xff\xfe", "the byte 0xff where a value should be", 0, 1),
        (" \n ", "there is nothing but white space", 3, 2),
    ],
)
def test_what_is_not_json_says_why_and_where(source: str | bytes, reason: str, offset: int, line: int) -> None:
    error = not_json(source)
    assert error.data == {"reason": reason, "offset": offset, "line": line}
    assert [call.tool for call in error.suggestions] == ["head", "grep"]


def test_an_empty_content_says_so() -> None:  # C50
    assert "the content is empty, do not retry" in not_json(b"").message


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":['])
def test_nesting_deeper_than_512_levels_is_refused(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}", '[{"a":[': "]}]"}[opening]
    levels = opening.count("[") + opening.count("{")
    fits = MAX_DEPTH // levels
    left = MAX_DEPTH - fits * levels
    inner = "[" * left + "1" + "]" * left
    assert isinstance(examine(text_of(opening * fits + inner + closing * fits)), Document)
    for times in (fits + 1, 10_000):
        assert not_json(opening * times + "1" + closing * times).data["reason"] == "nested deeper than 512 levels"


def test_control_characters_in_strings_a_byte_order_mark_and_broken_utf8_are_tolerated() -> None:
    assert look(b'\xef\xbb\xbf {"a": "x\ty\x00"}', path="").text == '{"a":"x\\ty\\u0000"}'
    assert look(b'["\xff\xe6\x97"]', path="").text == '["\ufffd\ufffd"]'


def test_numbers_stay_as_they_are_written() -> None:  # C156
    huge = "9" * 5_000
    source = f"[1.10, {huge}, 1e400, NaN, -Infinity, -0, 0.0e-0, 18446744073709551617]"
    assert look(source, path="$").text == source.replace(" ", "")
    assert look(source, path="$[1]").text == huge


def test_non_ascii_is_shown_as_it_is_and_half_a_pair_stays_an_escape() -> None:  # C63, C65, C80
    source = '{"city": "Z\\u00fcrich \\ud83d\\ude00", "\\u00fc": "日\\ud835b", "raw": "\ud835"}'
    shown = look(source, path="").text
    assert shown == '{"city":"Zürich 😀","ü":"日\\ud835b","raw":"\\ud835"}'
    shown.encode()
    assert look(source, path="ü").text == "1\t日\\ud835b"


def test_of_duplicate_keys_the_last_wins_and_the_footer_counts_them() -> None:
    source = '{"a": 1, "b": {"c": 1, "c": 2}, "a": {"d": 3}}'
    assert look(source, path="") == Look(
        '{"a":{"d":3},"b":{"c":2}}',
        "$ (2 keys); 2 duplicate keys: the last one counts",
        look(source, path="").smaller,
    )
    assert look(source, path="a.d").covered == "$.a.d (number); 1 duplicate key: the last one counts"


def test_scalars_are_shown_as_json() -> None:
    source = '{"t": true, "n": null, "x": 1}'
    assert [look(source, path=path).text for path in "tnx"] == ["true", "null", "1"]
    assert look("3.0", path="").text == "3.0"


def test_a_string_is_shown_by_its_lines_and_paged_by_them() -> None:  # C16
    source = json.dumps({"log": "".join(f"line {number}\r\n" for number in range(1, 121))})
    assert look(source, path="log", offset=2, limit=2) == Look(
        "3\tline 3\n4\tline 4",
        "$.log (lines [3..5) of 120 total); get_in goes on with offset=4",
        (
            Call("get_in", {"path": "$.log", "offset": 2, "limit": 1}),
            Call("grep", {"pattern": "error", "ignore_case": True, "max_matches": 20, "path": "$.log"}),
        ),
    )
    assert look(source, path="log").covered == "$.log (120 lines)"
    past = look(source, path="log", offset=500)
    assert (past.text, past.covered) == ("", "$.log (no lines there: 120 in total)")


def test_an_empty_string_says_so() -> None:  # C50
    assert look('{"a": ""}', path="a").covered == "$.a (an empty string, do not retry)"


def test_a_long_line_of_a_string_is_cut_with_the_byte_at_which_it_goes_on() -> None:  # C13
    source = '{"a": "' + "\\u00e9" * 3_000 + 'NEEDLE"}'
    shown = look(source, path="a").text
    at = len('{"a": "') + 2_000 * len("\\u00e9")
    assert shown == f"1\t{'é' * 2_000}… [cut: the line goes on at byte {at}: read_handle(offset={at})]"
    assert source[at:].startswith("\\u00e9")


def test_a_string_that_holds_json_says_that_a_path_can_go_on() -> None:
    source = json.dumps({"a": '{"b": [1]}', "c": "[no json"})
    assert look(source, path="a").covered == "$.a (1 line); it holds JSON: a path can go on inside it"
    assert look(source, path="c").covered == "$.c (1 line)"
    assert look(source, path="a.b").covered == "$.a.b (1 item); through the JSON in the string at $.a"


def test_arrays_and_objects_are_paged_by_item_and_by_key() -> None:
    source = json.dumps({"results": list(range(120)), "wide": {f"k{n}": n for n in range(50)}})
    page = look(source, path="results", offset=3, limit=4)
    assert page.text == "[3,4,5,6]"
    assert page.covered == "$.results (items [3..7) of 120 total)"
    assert page.smaller[0] == Call("get_in", {"path": "$.results", "offset": 3, "limit": 2})
    assert look(source, path="results", offset=118, limit=9).covered == "$.results (items [118..120) of 120 total)"
    keys = look(source, path="wide", offset=48, limit=9)
    assert (keys.text, keys.covered) == ('{"k48":48,"k49":49}', "$.wide (keys [48..50) of 50 total)")
    for path, text in (("results", "[]"), ("wide", "{}")):
        past = look(source, path=path, offset=120, limit=1)
        assert past.text == text
        assert "there: " in past.covered


@pytest.mark.parametrize("arguments", [{"offset": -1}, {"offset": True}, {"limit": 0}, {"limit": 2.0}, {"limit": "3"}])
def test_windows_are_strict_integers(arguments: dict[str, Any]) -> None:  # C153
    with pytest.raises(InvalidArgument):
        look("[1]", path="", **arguments)
    with pytest.raises(InvalidArgument):
        look("[1]", iterate_over, path="", fields=["a"], **arguments)


def shrink(text: Text, call: Call, room: int) -> tuple[int, Call, Look | None]:
    """Follow the first suggestions until one fits."""
    tools: dict[str, Any] = {"get_in": get_in, "iterate_over": iterate_over}
    steps = 0
    while call.tool in tools:
        try:
            return steps, call, tools[call.tool](text, **call.arguments, room=room)
        except TooLarge as error:
            failed = error
        assert failed.estimated_bytes > room
        assert failed.smaller[0] != call
        call = failed.smaller[0]
        steps += 1
        assert steps < 30
    return steps, call, None


@pytest.mark.parametrize("room", [300, 5_000])
@pytest.mark.parametrize(
    "value",
    [
        [{"id": n, "body": "x" * 50} for n in range(2_000)],
        {f"k{n}": [n] * 20 for n in range(2_000)},
        {"data": {"items": [[{"deep": "y" * 40}] * 50]}},
        {"log": "line\n" * 5_000},
        {"one": "z" * 100_000},
        [["z" * 10_000] * 3],
        "\u00e9" * 9_000,
        [10**4_200],
    ],
)
def test_the_first_suggestion_shrinks_until_it_fits(value: Any, room: int) -> None:
    text = Text(json.dumps(value).encode())
    _, call, found = shrink(text, Call("get_in", {"path": "$"}), room)
    if found is None:
        assert call.tool == "read_handle"
        offset = call.arguments["offset"]
        assert isinstance(offset, int)
        assert 0 <= offset < text.size
    else:
        assert len(found.text.encode()) <= room + 1
        assert found.text.strip("[]{}")


def test_a_source_far_over_the_room_is_not_walked() -> None:
    source = json.dumps([{"id": n} for n in range(10_000)])
    with pytest.raises(TooLarge) as caught:
        look(source, path="", room=1_000)
    assert caught.value.estimated_bytes == len(source) - 2
    assert caught.value.smaller[0] == Call("get_in", {"path": "$", "offset": 0, "limit": 36})


def rows(source: str, **arguments: Any) -> tuple[list[Any], str]:
    found = look(source, iterate_over, **arguments)
    return [json.loads(line) for line in found.text.splitlines()], found.covered


RESULTS = json.dumps(
    {"results": [{"id": n, "title": f"t{n}", "author": {"name": f"n{n}", "tags": ["a", "b"]}} for n in range(120)]}
)


def test_a_row_has_the_absolute_index_and_the_fields() -> None:
    found, covered = rows(RESULTS, path="results", fields=["id", "author.name", "author.tags[-1]"], offset=3, limit=2)
    assert found == [
        {"_index": 3, "id": 3, "author.name": "n3", "author.tags[-1]": "b"},
        {"_index": 4, "id": 4, "author.name": "n4", "author.tags[-1]": "b"},
    ]
    assert covered == "$.results (items [3..5) of 120 total, fields: [id,author.name,author.tags[-1]])"
    found, covered = rows(RESULTS, path="results", fields=["id", "title"])
    assert len(found) == 120
    assert covered == "$.results (120 items, fields: [id,title])"


def test_past_the_end_there_are_no_rows() -> None:
    found = look(RESULTS, iterate_over, path="results", fields=["id"], offset=120)
    assert found == Look("[]", "$.results (no items there: 120 in total, fields: [id])")


def test_a_field_that_is_not_there_is_left_out_and_said_when_none_has_it() -> None:
    source = '[{"a": null, "c": 1}, {"b": 2}]'
    assert rows(source, path="", fields=["a", "b", "titel"]) == (
        [{"_index": 0, "a": None}, {"_index": 1, "b": 2}],
        "$ (2 items, fields: [a,b,titel]); none of them has titel",
    )


def test_fields_of_items_that_are_arrays_are_their_items() -> None:
    found, _ = rows("[[[1, 2], 3], [4], []]", path="", fields=["0", "[0][1]", "-1"])
    assert found == [
        {"_index": 0, "0": [1, 2], "[0][1]": 2, "-1": 3},
        {"_index": 1, "0": 4, "-1": 4},
        {"_index": 2, "_value": []},
    ]


def test_items_that_are_no_objects_are_their_value() -> None:
    source = json.dumps([1, "s", None, [1, 2], {"a": 1}, '{"a": 2}'])
    found, _ = rows(source, path="", fields=["a"])
    assert [row.get("_value", row.get("a")) for row in found] == [1, "s", None, [1, 2], 1, 2]
    assert [row["_index"] for row in found] == list(range(6))


def test_long_values_are_cut_with_the_call_for_the_rest() -> None:
    source = json.dumps([{"body": "é" * 201, "list": list(range(1_000)), "fits": "é" * 200, "o": {"k": "v" * 400}}])
    (row,), _ = rows(source, path="", fields=["body", "list", "fits", "o"])
    assert row["body"] == "é" * 200 + '… [cut: get_in(path="$[0].body")]'
    assert row["list"] == '… [cut: an array, get_in(path="$[0].list")]'
    assert row["fits"] == "é" * 200
    assert row["o"] == {"k": "v" * 400}
    assert look(source, path="$[0].body").text.endswith("é" * 201)


def test_duplicate_keys_of_items_are_counted() -> None:
    found, covered = rows('[{"a": 1, "a": 2}, {"a": 3}]', path="", fields=["a"])
    assert [row["a"] for row in found] == [2, 3]
    assert covered.endswith("; 1 duplicate key: the last one counts")


def test_an_array_in_a_string_is_gone_over() -> None:
    source = json.dumps([{"type": "text", "text": json.dumps({"items": json.dumps([{"id": 1}])})}])
    found, covered = rows(source, path="[0].text.items", fields=["id"])
    assert found == [{"_index": 0, "id": 1}]
    assert covered.startswith("$[0].text.items (1 item, fields: [id]); through the JSON in the string at $[0].text;")


def test_json_lines_are_gone_over() -> None:
    source = "".join(f'{{"id": {n}, "level": "{"error" if n % 2 else "info"}"}}\n' for n in range(200))
    found, covered = rows(source, path="", fields=["level"], offset=198)
    assert found == [{"_index": 198, "level": "info"}, {"_index": 199, "level": "error"}]
    assert covered == "$ (items [198..200) of 200 total, fields: [level])"
    assert look(source, path="[-1].id").text == "199"


def test_what_is_no_array_names_the_arrays_in_it() -> None:
    with pytest.raises(ExploreError) as caught:
        look('{"meta": 1, "a b": [1], "c": []}', iterate_over, path="", fields=["id"])
    error = caught.value
    assert (error.code, error.data["value_type"]) == ("not_an_array", "object")
    assert error.data["available_arrays"] == ['$["a b"]', "$.c"]
    assert error.suggestions[0] == Call("iterate_over", {"path": '$["a b"]', "fields": ["id"]})
    with pytest.raises(ExploreError, match="no array but a string") as caught:
        look('{"meta": "x"}', iterate_over, path="meta", fields=["id"])
    assert caught.value.suggestions == (Call("get_in", {"path": "$.meta"}),)


@pytest.mark.parametrize("fields", [[], "id", None, [1], ["id"] * 65, {"id": 1}])
def test_fields_are_a_list_of_names(fields: Any) -> None:
    with pytest.raises(ExploreError, match="fields must be a list of 1 to 64") as caught:
        look("[]", iterate_over, path="", fields=fields)
    assert caught.value.code == "invalid_argument"


def test_too_many_rows_lead_with_half_the_window_then_fewer_fields_then_one_item_then_grep() -> None:
    text = Text(RESULTS.encode())
    with pytest.raises(TooLarge) as caught:
        iterate_over(text, path="results", fields=["author", "id", "nope"], offset=20, limit=100, room=4_000)
    error = caught.value
    assert error.estimated_bytes > 4_000
    half, fewer, one, search = error.smaller
    assert (half.tool, half.arguments["offset"], half.arguments["fields"]) == (
        "iterate_over",
        20,
        ["author", "id", "nope"],
    )
    assert isinstance(half.arguments["limit"], int)
    assert 1 <= half.arguments["limit"] <= 50
    assert fewer.arguments == {"path": "$.results", "fields": ["id"], "offset": 20, "limit": 100}
    assert one == Call("get_in", {"path": "$.results[20]"})
    assert search.tool == "grep"
    assert shrink(text, half, 4_000)[2] is not None
    fits = iterate_over(text, path="results", fields=["id"], offset=20, limit=100, room=4_000)
    assert fits.smaller[0].arguments == {"path": "$.results", "fields": ["id"], "offset": 20, "limit": 50}


def test_a_second_look_uses_what_the_first_one_found_out() -> None:
    source = json.dumps({"meta": 1, "results": [{"id": n, "text": "x" * 100} for n in range(5_000)]})
    text = load(len(source), [source.encode()])
    node = resolve(text, "results")
    assert item_index(node) is item_index(resolve(text, "results"))
    root = resolve(text, "")
    assert object_members(root) is object_members(resolve(text, ""))
    assert get_in(text, path="results[4999].id", room=ROOM).text == "4999"


def test_a_failed_check_is_remembered_as_well() -> None:
    text = Text(b"[1, 2")
    assert isinstance(examine(text), Fault)
    assert examine(text) is examine(text)


def test_very_long_keys_strings_numbers_and_white_space_go_over_windows() -> None:
    key, string, number, space = "k" * 300_000, "s\\n" * 200_000, "7" * 300_000, " \n" * 200_000
    source = (
        f'{space}[{space}{{{space}"{key}"{space}:{space}"{string}"{space},"n":{number}}}{space},{space}2{space}]{space}'
    )
    text = text_of(source)
    assert get_in(text, path="[1]", room=ROOM).text == "2"
    assert get_in(text, path="[0].n", room=ROOM).text == number
    first = next(iter(object_members(resolve(text, "[0]")).starts))
    assert first == f"{'k' * 199}… [cut: a key of 300,002 bytes at byte {source.index(key) - 1}]"
    with pytest.raises(TooLarge):
        get_in(text, path="[0]", room=1_000)


def test_a_path_that_would_be_too_long_is_replaced_by_its_bytes() -> None:
    deep: Any = "x" * 300
    for _ in range(30):
        deep = {"k" * 200: deep}
    text = text_of(json.dumps([{"a": deep, "b": 1}]))
    (row,), _ = rows(text.read(0, text.size).decode(), path="", fields=["a"])
    assert row["a"] == '… [cut: an object, get_in(path="$[0].a")]'
    with pytest.raises(TooLarge) as caught:
        get_in(text, path="", room=100)
    assert caught.value.smaller[0].tool in {"get_in", "read_handle"}
