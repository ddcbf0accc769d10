"""Outlines: what is where in JSON, markdown, CSV and other text, and what the items of an array have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratch.errors import InvalidArgument
from scratch.explore import jsonscan, outline
from scratch.explore.look import Call, ExploreError, Look, TooLarge
from scratch.explore.outline import item_schema, schema
from scratch.explore.text import Text

ROOM = 1_000_000


def lines_of(source: Any, **arguments: Any) -> list[str]:
    return look(source, **arguments).text.split("\n")


def look(source: Any, tool: Any = schema, *, room: int = ROOM, **arguments: Any) -> Look:
    if not isinstance(source, str | bytes):
        source = json.dumps(source)
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    found: Look = tool(Text(data), room=room, **arguments)
    return found


def test_json_is_outlined_with_paths_kinds_counts_and_the_first_items() -> None:
    source = {
        "meta": {"next": None, "ok": True},
        "results": [{"id": 1, "tags": []}, {"id": 2, "tags": ["a"]}],
        "n": 1.5,
    }
    assert lines_of(source) == [
        "$: object, 3 keys",
        "$.meta: object, 2 keys",
        "$.meta.next: null",
        "$.meta.ok: boolean",
        "$.results: array, 2 items: all object, all with the same 2 keys",
        "$.results[0]: object, 2 keys",
        "$.results[0].id: number",
        "$.results[0].tags: array, empty",
        "$.n: number",
    ]
    assert look(source).covered == "$ (depth 4)"


def test_line_ranges_are_named_where_a_value_is_on_several_lines() -> None:
    source = json.dumps({"a": [1, 2], "b": {"c": 1}}, indent=1)
    assert lines_of(source) == [
        "$: object, 2 keys, lines 1 to 9",
        "$.a: array, 2 items: all number, lines 2 to 5",
        "$.b: object, 1 key, lines 6 to 8",
        "$.b.c: number",
    ]


def test_arrays_say_how_uniform_they_are() -> None:
    assert lines_of([1, "a", None, 2])[0] == "$: array, 4 items: 2 number, 1 string, 1 null"
    mixed = [None, {"a": 1}, {"a": 1}, {"b": 1}]
    assert lines_of(mixed)[:2] == [
        "$: array, 4 items: 3 object, 1 null, 2 of 3 with the same 1 key",
        "$[1]: object, 1 key",  # the first item that there is something to say about
    ]
    many = lines_of([{"a": n} for n in range(10_000)])[0]
    assert many.startswith("$: array, 10,000 items: of 4")
    assert many.endswith("looked at all object, all with the same 1 key")


def test_strings_that_hold_json_are_marked_and_entered() -> None:
    source = [{"type": "text", "text": json.dumps({"items": [{"id": 1}]})}]
    assert lines_of(source)[2:] == [
        "$[0].type: string",
        "$[0].text: string that holds JSON: object, 1 key",
        "$[0].text.items: array, 1 item: all object",
        "$[0].text.items[0]: object, 1 key",
    ]
    assert lines_of(source, path="[0].text.items[0]") == [
        "$[0].text.items[0]: object, 1 key",
        "$[0].text.items[0].id: number",
    ]


def test_long_strings_are_measured() -> None:
    assert lines_of({"log": "line\n" * 500})[1] == "$.log: string, 2,500 bytes, 500 lines"


def test_depth_ends_the_outline() -> None:
    source = {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}
    assert lines_of(source)[-1] == "$.a.b.c.d: object, 1 key"
    assert lines_of(source, max_depth=1) == ["$: object, 1 key", "$.a: object, 1 key"]
    assert lines_of(source, path="a.b", max_depth=2)[-1] == "$.a.b.c.d: object, 1 key"
    with pytest.raises(InvalidArgument):
        look(source, max_depth=0)


def test_wide_objects_are_cut_and_counted() -> None:
    lines = lines_of({f"k{n}": {"x": n} for n in range(10_000)}, max_depth=1)
    assert lines[0] == "$: object, 10,000 keys"
    assert lines[40:] == ["$.k39: object, 1 key", "$: … 9,960 more keys"]


@pytest.mark.parametrize("value", [1, None, "text", [], {}, True])
def test_a_small_root_is_one_line(value: Any) -> None:
    assert len(lines_of(value)) == 1


def test_json_lines_are_an_array_of_lines() -> None:
    assert lines_of('{"a": 1}\n{"a": 2}\n')[0] == (
        "$: JSON Lines, an array, 2 items: all object, all with the same 1 key, lines 1 to 2"
    )


def test_duplicate_keys_are_counted() -> None:
    assert look('{"a": 1, "a": 2}').covered == "$ (depth 4); 1 duplicate key: the last one counts"


def test_a_large_outline_shrinks_until_it_fits() -> None:
    value: Any = 1
    for _ in range(4):
        value = {f"key{n}": value for n in range(12)}
    room = 2_000
    for depth, smaller in ((4, 2), (2, 1)):
        with pytest.raises(TooLarge) as caught:
            look(value, room=room, max_depth=depth)
        assert caught.value.smaller[0] == Call("schema", {"path": "$", "max_depth": smaller})
    assert len(look(value, room=room, max_depth=1).text) <= room


def test_broken_json_says_why_it_is_none() -> None:
    lines = lines_of('{"a": 1,\n "b": [1, 2\n')
    assert lines == [
        "text, 2 lines, longest line 11 bytes (line 2), UTF-8",
        "It starts like JSON, but is not JSON: the text ends in the array that starts at byte 15 at byte 21 (line 2)",
    ]


def test_a_path_into_what_is_not_json_is_an_error() -> None:
    with pytest.raises(ExploreError) as caught:
        look("no json", path="a")
    assert caught.value.code == "not_json"


def test_an_empty_content_says_so() -> None:  # C50
    assert look("") == Look("", "the content is empty, do not retry")


MARKDOWN = """# Title

## One
text
```sh
# no heading
~~~
```
~~~~
## no heading
```
~~~~

### One a

## Two
#no heading
   ## Three
"""


def test_markdown_is_outlined_by_its_headings_without_those_in_code() -> None:
    assert lines_of(MARKDOWN)[1:] == [
        "lines 1 to 18: # Title",
        "lines 3 to 15: ## One",
        "lines 14 to 15: ### One a",
        "lines 16 to 17: ## Two",
        "lines 18 to 18: ## Three",
    ]
    assert look(MARKDOWN).covered == "markdown, 18 lines"


def test_depth_is_the_level_of_headings() -> None:
    assert lines_of(MARKDOWN, max_depth=2)[1:] == [
        "lines 1 to 18: # Title",
        "lines 3 to 15: ## One",
        "lines 16 to 17: ## Two",
        "lines 18 to 18: ## Three",
    ]
    with pytest.raises(TooLarge) as caught:
        look(MARKDOWN, room=50)
    assert caught.value.smaller[0] == Call("schema", {"max_depth": 2})


@given(st.lists(st.sampled_from(["# a", "## b", "text", "```", "x" * 30, "", "# é"]), max_size=30), st.integers(31, 80))
@settings(max_examples=60, deadline=None)
def test_headings_do_not_depend_on_windows(lines: list[str], window: int) -> None:
    source = "\n".join(["# first", *lines])
    expected = look(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "WINDOW", window)
        assert look(source) == expected


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_csv_names_its_columns(delimiter: str) -> None:
    rows = [["id", "name", "é"], *([str(n), f'"a{delimiter}""b"', ""] for n in range(50))]
    source = "\ufeff" + "".join(delimiter.join(row) + "\r\n" for row in rows)
    assert lines_of(source) == [
        "CSV, 51 lines, longest line 14 bytes (line 1), UTF-8",
        "3 columns (line 1): id, name, é",
    ]
    assert look(source).covered == "CSV, 51 lines"


@pytest.mark.parametrize("source", ["one, two", "a, b\nno comma here\n", "plain\ntext\n", "x = 1\n# y"])
def test_other_text_is_only_measured(source: str) -> None:
    assert len(lines_of(source)) == 1
    assert look(source).covered.startswith("text, ")


@pytest.mark.parametrize(
    ("source", "encoding"),
    [(b"caf\xc3\xa9", "UTF-8"), (b"caf\xe9", "not UTF-8"), (b"caf\xc3", "not UTF-8"), (bytes(range(256)), "not UTF-8")],
)
def test_the_encoding_is_named(source: bytes, encoding: str) -> None:
    assert lines_of(source)[0].endswith(f", {encoding}")


def test_the_longest_line_is_found_across_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "WINDOW", 8)
    assert lines_of("a\n" + "b" * 30 + "\nc\n" + "d" * 29)[0] == "text, 4 lines, longest line 30 bytes (line 2), UTF-8"


def rows_of(source: Any, **arguments: Any) -> list[str]:
    given: dict[str, Any] = {"path": "", **arguments}
    return look(source, item_schema, **given).text.split("\n")


def test_keys_of_items_are_counted_with_their_types() -> None:
    source = [
        {"id": 1, "author": {"name": "a", "a.b": 1}, "tags": []},
        {"id": "2", "author": None},
        {"id": 3, "author": {"name": None}, "\u00fc": True},
    ]
    assert rows_of(source) == [
        "id: number | string, in 3 of 3",
        "author: object | null, in 3 of 3",
        "tags: array, in 1 of 3",
        "author.name: string | null, in 2 of 3",
        'author["a.b"]: number, in 1 of 3',
        "ü: boolean, in 1 of 3",
    ]
    assert look(source, item_schema, path="").covered == "$ (3 items)"


def test_a_window_of_items_is_counted() -> None:
    source = {"r": [{"a": n} if n % 2 else {"b": n} for n in range(100)]}
    found = look(source, item_schema, path="r", offset=10, limit=5)
    assert found.text == "b: number, in 3 of 5\na: number, in 2 of 5"
    assert found.covered == "$.r (items [10..15) of 100 total)"
    assert found.smaller[0] == Call("item_schema", {"path": "$.r", "offset": 10, "limit": 2})
    past = look(source, item_schema, path="r", offset=100)
    assert (past.text, past.covered) == ("{}", "$.r (no items there: 100 in total)")


def test_items_that_are_no_objects_are_counted_apart() -> None:
    found = look([1, {"a": 1}, "x", '{"a": "in a string"}', None], item_schema, path="")
    assert found.text == "a: number | string, in 2 of 2"
    assert found.covered == "$ (5 items); 3 of them no objects: 1 number, 1 string, 1 null"


def test_of_duplicate_keys_of_items_the_last_counts() -> None:
    found = look('[{"a": 1, "a": "x"}]', item_schema, path="")
    assert found.text == "a: string, in 1 of 1"
    assert found.covered.endswith("1 duplicate key: the last one counts")


def test_objects_that_are_tables_do_not_flood_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonscan, "_MAX_KEYS", 300)
    found = look([{f"id{n}": {"x": 1}} for n in range(1_000)], item_schema, path="")
    assert len(found.text.split("\n")) == 200
    assert found.covered == "$ (1,000 items); 100 more keys at least not shown"


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcdé"), st.one_of(st.none(), st.integers(), st.text(max_size=3)))))
def test_presence_is_what_a_plain_count_says(items: list[dict[str, Any]]) -> None:
    rows = dict(row.split(": ", 1) for row in rows_of(items) if row != "{}")
    assert set(rows) == set().union(*items)
    for key, row in rows.items():
        assert row.endswith(f", in {sum(key in item for item in items)} of {len(items)}")


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(ExploreError) as caught:
        look({"a": [1]}, item_schema, path="")
    assert caught.value.code == "not_an_array"
    assert caught.value.suggestions[0] == Call("item_schema", {"path": "$.a"})
