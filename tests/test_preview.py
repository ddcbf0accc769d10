"""What a stub shows of a content: never too much, never raw base64, always both ends."""

from __future__ import annotations

import base64
import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch.content import read_content
from scratch.preview import MAX_PREVIEW_BYTES, cost, make_preview

texts = st.text(st.one_of(st.characters(), st.sampled_from('"\\\n\x00\x1b日😀\ud835 aZ09+/')), max_size=80)
long_texts = st.builds(lambda text, times: text * times, texts, st.integers(1, 200))
contents: st.SearchStrategy[Any] = st.one_of(
    long_texts,
    st.builds(lambda data, times: data * times, st.binary(max_size=80), st.integers(1, 200)),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), long_texts, st.sets(st.integers(), max_size=9)),
        lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(texts, inner, max_size=12)),
        max_leaves=30,
    ),
)


def preview(value: object, **options: Any) -> str:
    return make_preview(read_content(value), **options)


@given(contents, st.integers(0, MAX_PREVIEW_BYTES), st.booleans())
@example("\ud835" * 10_000, 1_024, True)
@example("\x00" * 10_000, 1_023, False)
@example('"' * 10_000, 7, False)
@example("😀" * 5_000, 101, False)
def test_a_preview_is_never_larger_than_its_limit_as_it_stands_in_the_stub(  # C36
    value: object, limit: int, truncated: bool
) -> None:
    shown = preview(value, limit=limit, already_truncated=truncated)
    in_json = json.dumps(shown, ensure_ascii=False).encode()  # it can be encoded
    assert len(in_json) - 2 == cost(shown) <= limit
    assert len(shown.encode()) <= limit
    assert shown == preview(value, limit=limit, already_truncated=truncated)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_content_that_fits_is_shown_whole_without_a_word_about_a_cut(text: str) -> None:  # C38
    shown = preview(text)
    assert shown.endswith(text)
    assert "cut" not in shown.removesuffix(text)


def test_a_content_one_byte_too_large_says_that_it_is_cut() -> None:  # C41
    assert preview("x" * 1_024) == "x" * 1_024
    shown = preview("x" * 1_025)
    assert "[… cut: head and tail of 1,025 bytes …]" in shown
    assert shown.startswith("xxx")
    assert shown.endswith("xxx")
    for limit in range(1, 200):
        assert "…" in preview("x" * 1_025, limit=limit) or limit < len("…".encode())
    assert preview("x" * 1_025, limit=10) == "x" * 7 + "…"


@pytest.mark.parametrize("end", ["42 failed, 7 passed", "ValueError: boom", "总计：42 失败"])
def test_the_last_line_is_seen(end: str) -> None:  # C42, C43
    for value in ("ok\n" * 5_000 + end, ("ok\n" * 5_000 + end).encode()):
        shown = preview(value)
        assert shown.startswith("ok\nok\n")
        assert shown.endswith(end)


def test_characters_are_never_cut() -> None:  # C1, C7
    for limit in range(200):
        shown = preview("😀" * 3_000, limit=limit)
        assert "\ufffd" not in shown
        assert set(shown) <= set("😀\n[… cut: head and tail of 12,000 bytes …]")
    assert "\ufffd" not in preview("a" * 1_023 + "😀" * 10_000 + "é" * 1_023)
    assert "\ufffd" not in preview(("a" + "日" * 10_000).encode())


def test_a_lone_surrogate_is_shown_as_what_can_be_encoded() -> None:  # C63
    assert preview("a\ud835b") == "a\ufffdb"


# --- base64 and bytes


def encoded(size: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(size)).decode()


@pytest.mark.parametrize("data", [encoded(100_000), "A" * 100_000, "iVBORw0KGgo" * 9_000, encoded(2_000), encoded(90)])
def test_a_data_uri_is_named_and_its_data_left_out(data: str) -> None:  # C53
    for value in (f"data:image/png;base64,{data}", f"data:image/png;charset=utf-8;base64,{data}"):
        shown = preview(value)
        assert shown.startswith(value.partition(",")[0] + ",[base64 left out]")
        assert data[:20] not in shown
        assert data[-20:] not in shown


def test_a_data_uri_in_a_document_or_in_json_is_left_out_and_the_rest_stays() -> None:  # C57
    uri = f"data:image/png;base64,{encoded(100_000)}"
    shown = preview(f"# Report\n![chart]({uri})\n\nTotals: 42\n")
    assert "# Report\n![chart](data:image/png;base64,[base64 left out]" in shown
    assert shown.endswith(")\n\nTotals: 42\n")
    shown = preview([{"type": "text", "text": "all is well"}, {"type": "image", "data": encoded(50_000)}])  # C59
    assert "all is well" in shown
    assert shown.endswith('[base64 left out]"}]')
    escaped = json.dumps({"src": f"data:image/svg+xml;base64,{encoded(90)}"}).replace("/", "\\/")
    assert preview(escaped).endswith('{"src": "data:image\\/svg+xml;base64,[base64 left out]"}')


@pytest.mark.parametrize("text", ["a" * 5_000, "0123456789" * 500, "word_word-" * 500, "/usr/lib" * 500])
def test_a_long_run_of_other_text_is_no_base64(text: str) -> None:
    shown = preview(text)
    assert shown.startswith(text[:300])
    assert shown.endswith(text[-300:])


def test_bytes_that_are_no_text_are_named_with_their_first_ones() -> None:  # C58
    shown = preview(bytes(range(256)) * 1_000)
    assert shown == "[binary, 256,000 bytes, first bytes in hex] " + bytes(range(32)).hex(" ")


# --- the shape


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ([{"id": i, "name": "n"} for i in range(300)], "array of 300 objects, the first with keys id, name"),
        ([{}] * 2_000, "array of 2,000 objects, the first with no keys"),
        (
            [{str(i): i for i in range(10)}],
            "array of 1 objects, the first with keys 0, 1, 2, 3, 4, 5, 6, 7, and 2 more",
        ),
        ([], "array, empty"),
        ({}, "object, empty"),
        ([1, 2.5, 3], "array of 3 items of mixed kinds"),
        (["a"] * 5, "array of 5 items (text)"),
        ([[1, 2], [3]], "array of 2 items (array of 2)"),
        (
            {"r": [1, 2], "n": 1, "y": True, "z": None, "s": "t", "o": {}, "e": []},
            "object: r (array of 2), n (number), y (boolean), z (null), s (text), o (object), e (array of 0)",
        ),
        ({str(i): i for i in range(9)}, "object: " + ", ".join(f"{i} (number)" for i in range(8)) + ", and 1 more"),
        ({"k" * 50: 1}, "object: " + "k" * 39 + "… (number)"),
        ({"a\nb\x1b]": 1, "\ud835": 2}, "object: a\ufffdb\ufffd] (number), \ufffd (number)"),
    ],
)
def test_json_comes_with_its_shape_in_one_line(value: object, shape: str) -> None:
    for form in (value, json.dumps(value), "\ufeff \n" + json.dumps(value), json.dumps(value).encode()):
        assert preview(form).partition("\n")[0] == f"[JSON {shape}]"


def test_the_shape_of_a_value_is_known_at_any_size() -> None:
    rows = [{"id": i, "note": "x" * 60} for i in range(20_000)]
    assert preview(rows).startswith("[JSON array of 20,000 objects, the first with keys id, note]\n[{")
    assert preview(json.dumps(rows)).startswith("[{")  # a text of this size is not parsed


def test_the_shape_of_what_json_has_no_form_for_is_what_it_becomes() -> None:
    value = {"ids": {1, 2}, "pair": (1,), "price": Decimal(1), "raw": b"x", 5: "five"}
    first = "[JSON object: ids (array of 2), pair (array of 1), price (text), raw (text), 5 (text)]"
    assert preview(value).startswith(first)
    assert preview(frozenset({1})) == "[JSON array of 1 items (number)]\n[1]"
    assert preview(Decimal("1.5")) == '[JSON text]\n"1.5"'


@pytest.mark.parametrize(
    "text", ["{not json", "[1, 2", "[" * 20_000, '{"a": 1} trailing', "[" + "9" * 5_000 + "]", "{"]
)
def test_what_only_begins_like_json_is_text(text: str) -> None:
    assert not preview(text).startswith("[JSON")


def test_a_shape_that_would_take_half_the_room_is_left_out() -> None:
    value = {f"a long key of number {i}": i for i in range(300)}
    assert preview(value).startswith("[JSON object: ")
    assert preview(value, limit=200).startswith('{"a long key')


def test_an_earlier_cut_of_the_tool_is_named() -> None:  # C23
    shown = preview("x" * 20_000, already_truncated=True)
    assert shown.startswith("[the tool had already cut this output]\nxxx")
    assert "already cut" in preview(b"\xff" * 20_000, already_truncated=True)
