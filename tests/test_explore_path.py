"""Paths: what is written in many ways comes back in one, and leads to the same value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scratch.explore.look import Call, ExploreError
from scratch.explore.navigate import open_path, resolve
from scratch.explore.path import MAX_PATH_BYTES, parse, render
from scratch.explore.text import Text

characters = st.one_of(st.characters(), st.sampled_from("ab_-09.[]\"'\\$ *\n\ud835é日"))
segments = st.one_of(st.text(characters, max_size=8), st.integers(1 - 10**18, 10**18 - 1))


def text_of(value: Any) -> Text:
    return Text(json.dumps(value).encode())


@settings(deadline=None)
@given(st.lists(segments, max_size=6))
@example(["0", 0, "-1", -1, "007", ""])
@example(["$", "$ref", "a.b", 'a"b', "a'b", "a\\", "[0]"])
def test_a_rendered_path_parses_to_the_same_segments(wanted: list[str | int]) -> None:
    assert list(parse(render(wanted))) == wanted


@settings(deadline=None)
@given(st.text(characters, max_size=30))
def test_any_other_text_is_a_path_or_a_clear_error(path: str) -> None:
    try:
        found = parse(path)
    except ExploreError as error:
        refused = error
    else:
        assert parse(render(found)) == found
        return
    assert refused.code == "invalid_argument"
    assert "$.results[0].title" in refused.message
    assert refused.data["argument"] == "path"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("", ()),
        ("$", ()),
        ("$.a.b[0]", ("a", "b", 0)),
        ("a.b.0", ("a", "b", "0")),
        (".a", ("a",)),
        ("a[-1]", ("a", -1)),
        ('["key.with.dots"]', ("key.with.dots",)),
        ("['x']", ("x",)),
        ("""$['it\\'s "so"']""", ('it\'s "so"',)),
        ("$[ 3 ][ 'a' ]", (3, "a")),
        ("$.US Gross", ("US Gross",)),
        ("$ref.a", ("$ref", "a")),
        ("$.$ref", ("$ref",)),
        ("a[007]", ("a", "007")),
        ("日本.é", ("日本", "é")),
    ],
)
def test_paths_are_read_as_they_are_written(path: str, wanted: tuple[str | int, ...]) -> None:
    assert parse(path) == wanted


@pytest.mark.parametrize(
    "path", ["a..b", "a.", ".", "$.", "a[", "a[]", "a[1", "a['x]", "a]b", "a[1]b", "a[x]", '["\\x"]']
)
def test_bad_syntax_is_refused_with_an_example(path: str) -> None:
    with pytest.raises(ExploreError, match=r"cannot be read from|broken escape") as caught:
        parse(path)
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize("path", ["$.results[*].title", "[*]"])
def test_a_wildcard_is_refused_with_the_tool_that_goes_over_items(path: str) -> None:
    with pytest.raises(ExploreError, match="iterate_over"):
        parse(path)


@pytest.mark.parametrize("path", [None, 3, b"a", ["a"], True])
def test_a_path_is_text(path: object) -> None:
    with pytest.raises(ExploreError, match="must be text"):
        parse(path)


def test_a_path_has_at_most_4_kib() -> None:
    assert parse("é" * (MAX_PATH_BYTES // 2)) == ("é" * 2048,)
    with pytest.raises(ExploreError, match="at most 4,096 bytes"):
        parse("é" * (MAX_PATH_BYTES // 2) + "a")


@pytest.mark.parametrize(
    ("path", "found", "canonical"),
    [
        ("a[0]", "zero", "$.a[0]"),
        ("a.0", "zero", "$.a[0]"),
        ("a[-1]", "last", "$.a[2]"),
        ('a["-1"]', "last", "$.a[2]"),
        ("o[0]", "by key", '$.o["0"]'),
        ("o.0", "by key", '$.o["0"]'),
        ('["x.y"]', "dots", '$["x.y"]'),
        ("o['[b]\"']", "odd", '$.o["[b]\\""]'),
        ('["\\ud800"]', "half", '$["\\ud800"]'),
    ],
)
def test_a_segment_is_a_key_on_an_object_and_an_index_on_an_array(path: str, found: str, canonical: str) -> None:
    text = text_of({"a": ["zero", "one", "last"], "o": {"0": "by key", '[b]"': "odd"}, "x.y": "dots", "\ud800": "half"})
    node = resolve(text, path)
    assert json.loads(text.read(node.start, node.end)) == found
    assert node.path == canonical
    assert resolve(text, node.path) == node


def failure(value: Any, path: str) -> ExploreError:
    with pytest.raises(ExploreError) as caught:
        resolve(text_of(value), path)
    return caught.value


def test_a_missing_key_names_the_keys_there_the_closest_first() -> None:
    error = failure({"results": [{"id": 1, "author_name": {"first": 1}}]}, "$.results[0].authorName.frist")
    assert error.code == "key_path_not_found"
    assert error.data == {
        "requested_path": "$.results[0].authorName.frist",
        "failed_segment": "authorName",
        "valid_prefix": "$.results[0]",
        "available_keys": ["author_name", "id"],
    }
    assert error.suggestions == (
        Call("get_in", {"path": "$.results[0].author_name"}),  # as far as the corrected path leads
        Call("schema", {"path": "$.results[0]"}),
    )


def test_many_keys_are_cut_and_counted_and_long_ones_are_cut() -> None:
    keys = ["k" * 500, *(f"key {number}" for number in range(100)), "wanted"]
    error = failure(dict.fromkeys(keys, 1), "Wanted")
    listed = error.data["available_keys"]
    assert isinstance(listed, list)
    assert len(listed) == 40
    assert listed[:2] == ["wanted", "k" * 200 + "…"]
    assert error.data["available_keys_omitted"] == 62
    assert failure(dict.fromkeys(keys, 1), "x" * 999).data["failed_segment"] == "x" * 200 + "…"


def test_an_index_past_the_end_names_the_length() -> None:
    error = failure({"a": [1, 2, 3]}, "a[3].b")
    assert (error.data["array_length"], error.data["failed_segment"], error.data["valid_prefix"]) == (3, "3", "$.a")
    assert "an array of 3 items" in error.message
    assert failure({"a": []}, "a[-1]").data["array_length"] == 0
    assert failure({"a": [1]}, "a[-2]").data["array_length"] == 1
    assert failure({"a": [1]}, f"a[{'9' * 1000}]").data["array_length"] == 1


def test_a_key_on_an_array_suggests_to_go_over_its_items() -> None:
    error = failure({"a": [{"b": {"c": 1}}]}, "a.b.c")
    assert error.suggestions[0] == Call("iterate_over", {"path": "$.a", "fields": ["b.c"], "limit": 20})
    assert failure({"a": [{"b": 1}]}, "a.*.b").suggestions[0].arguments["fields"] == ["b"]
    assert failure({"a": [{"b": 1}]}, "a.*").suggestions == (Call("schema", {"path": "$.a"}),)


@pytest.mark.parametrize(("value", "kind"), [(1, "number"), (None, "null"), (True, "boolean"), ("no {json}", "string")])
def test_a_path_through_a_scalar_names_its_type(value: Any, kind: str) -> None:
    error = failure({"a": value}, "a.b")
    assert (error.data["value_type"], error.data["valid_prefix"]) == (kind, "$.a")
    assert error.suggestions[0] == Call("get_in", {"path": "$.a"})


def test_a_path_goes_on_through_strings_that_hold_json() -> None:
    deepest = json.dumps({"id": [10, 20], "ü": "\n"})
    text = text_of([{"type": "text", "text": json.dumps({"payload": f"\ufeff {deepest} \n"})}])
    node = resolve(text, "[0].text.payload.id[-1]")
    assert node.text.read(node.start, node.end) == b"20"
    assert node.path == "$[0].text.payload.id[1]"
    assert node.notes == (
        "through the JSON in the string at $[0].text",
        "through the JSON in the string at $[0].text.payload",
    )
    missing = failure([{"text": json.dumps({"payload": 1})}], "[0].text.paylod")
    assert missing.data["available_keys"] == ["payload"]
    assert missing.suggestions[0] == Call("get_in", {"path": "$[0].text.payload"})


def test_json_that_was_encoded_twice_is_one_step() -> None:
    text = text_of(json.dumps(json.dumps({"a": [7]})))
    node = resolve(text, "a[0]")
    assert node.text.read(node.start, node.end) == b"7"


def test_a_string_is_opened_with_its_lines_and_where_they_come_from() -> None:  # C16
    source = '{"pad": "é", "log": "a\\u00fc\\tb\\r\\n\\ud83d\\ude00 done\\n"}'.encode()
    text, word = open_path(Text(source), "$.log")
    assert text.read(0, text.size) == "aü\tb\r\n😀 done\n".encode()
    assert word == "the string at $.log"
    assert text.line_count == 2
    for needle in (b"a", b"b", b" done"):
        assert source[text.origin(text.read(0, 99).find(needle)) :].startswith(needle)
    assert source[text.origin(1) :].startswith(b"\\u00fc")
    assert source[text.origin(2) :].startswith(b"\\u00fc")  # the second byte of the same character
    assert source[text.origin(text.size) :] == b'"}'


def test_the_root_opens_as_it_is_unless_it_is_a_string() -> None:
    for content in (b"plain\ntext", b'{"a": 1}', b"", b"[1,"):
        text = Text(content)
        assert open_path(text, "") == (text, "the whole content")
        assert open_path(text, "$") == (text, "the whole content")
    inner, _ = open_path(Text(b'"a\\nb"'), "$")
    assert inner.read(0, 9) == b"a\nb"


@pytest.mark.parametrize(("path", "kind"), [("a", "array"), ("n", "number"), ("o", "object"), ("z", "null")])
def test_what_is_no_string_has_no_lines(path: str, kind: str) -> None:
    with pytest.raises(ExploreError, match="is no string but") as caught:
        open_path(text_of({"a": [], "n": 1, "o": {}, "z": None}), path)
    assert (caught.value.code, caught.value.data["value_type"]) == ("invalid_argument", kind)
    assert caught.value.suggestions[0] == Call("get_in", {"path": f"$.{path}"})
