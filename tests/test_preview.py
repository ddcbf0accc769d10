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
    text = json.dumps(rows)  # a text of this size is not parsed: its items are as long as the first ones, about
    for form in (text, "\ufeff\n " + text + "\n", text.encode()):
        assert preview(form).startswith("[JSON array of about 21,000 objects, the first with keys id, note]\n")


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


FILL = "x" * 700_000


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (json.dumps({"a": 1, "b": None, "c": [1, 2], "d": FILL, "e": 1}), ("object, the first keys: a (number), "
         "b (null), c (array of 2), d (text)")),
        (json.dumps({"deep": {"list": [FILL]}}), "object, the first keys: deep (object)"),
        (json.dumps({str(i): FILL[:5] for i in range(50_000)}), "object, the first keys: "
         + ", ".join(f"{i} (text)" for i in range(8))),
        (json.dumps([{"id": 1, "rows": [[FILL]]}]), "array of objects, the first with keys id, rows, …"),
        (json.dumps([{str(i): i for i in range(10)}] * 20_000), ("array of about 20,000 objects, the first with keys "
         "0, 1, 2, 3, 4, 5, 6, 7, and 2 more")),
        (json.dumps([{}] * 200_000), "array of about 200,000 objects, the first with no keys"),
        (json.dumps([1.5] * 200_000), "array of about 200,000 items (number)"),
        (json.dumps([123_456_789] * 100_000, separators=(",", ":")), "array of about 100,000 items (number)"),
        (json.dumps(['\\\u2028"'] * 200_000), "array of about 200,000 items (text)"),
        (json.dumps([FILL]), "array of items (text)"),
        (json.dumps([1, "a", None] * 100_000), "array of about 300,000 items of mixed kinds"),
        (json.dumps([[1, 2]] * 200_000), "array of about 200,000 items (array of 2)"),
        (json.dumps([True] * 200_000), "array of about 200,000 items (boolean)"),
        (json.dumps({"a\n\x1b]": FILL}), "object, the first keys: a\ufffd\ufffd] (text)"),
    ],
)  # fmt: skip
def test_the_start_of_a_large_json_text_tells_its_shape(text: str, shape: str) -> None:
    for form in (text, text.encode()):
        assert preview(form).partition("\n")[0] == f"[JSON {shape}]"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n' * 80_000,  # JSON lines
        "[1, 2]\n" * 100_000,
        "[INFO] started\n" * 50_000 + "]",
        "{not json " + FILL + "}",
        "{1: 2, " + FILL + "}",
        '{"a" 1, "' + FILL + '"}',
        "[1 2 " + FILL + "]",
        "[" * 700_000 + "]" * 700_000,
        "[" + "9" * 700_000 + "]",
        '["' + FILL,  # the end is missing
        '["a", tru, "' + FILL + '"]',
        "[" + " " * 700_000 + "]",
    ],
)
def test_what_only_begins_like_large_json_is_text(text: str) -> None:
    assert not preview(text).startswith("[JSON")


def csv_text(separator: str = ",", *, header: str = "id,name,city", row: str = "1,Ann,Oslo", rows: int = 2_000) -> str:
    return f"{header}\n{(row + chr(10)) * rows}".replace(",", separator)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (csv_text(), "CSV, 2,000 rows, columns: id, name, city"),
        (csv_text("\t"), "TSV, 2,000 rows, columns: id, name, city"),
        (csv_text(";"), "CSV, 2,000 rows, columns: id, name, city"),
        (csv_text().replace("\n", "\r\n"), "CSV, 2,000 rows, columns: id, name, city"),
        ("\ufeff" + csv_text().replace("\n", "\n\n") + "1,2,3", "CSV, 2,001 rows, columns: id, name, city"),
        (csv_text(row='1,"Ann, ""A"" B",Oslo'), "CSV, 2,000 rows, columns: id, name, city"),
        (csv_text(row='1,"two\nlines",Oslo'), "CSV, about 4,000 rows, columns: id, name, city"),
        (csv_text(header=",price (EUR),Größe"), "CSV, 2,000 rows, columns: , price (EUR), Größe"),
        (csv_text(rows=100_000), "CSV, 100,000 rows, columns: id, name, city"),
        (
            "\n".join([",".join(f"c{i}" for i in range(300)), *[",".join("1" * 300)] * 300]),
            "CSV, 300 rows, columns: c0, c1, c2, c3, c4, c5, c6, c7, and 292 more",
        ),
        (csv_text(header="id," + "n" * 70 + ",b"), "CSV, 2,000 rows, columns: id, " + "n" * 39 + "…, b"),
        (csv_text(row="1,\x00\x1b,\x7f"), "CSV, 2,000 rows, columns: id, name, city"),
    ],
)
def test_a_table_comes_with_its_rows_and_columns(text: str, shape: str) -> None:
    for form in (text, text.encode()):
        assert preview(form).partition("\n")[0] == f"[{shape}]"


@pytest.mark.parametrize(
    "text",
    [
        "First, we go there, and then back.\nNo.\n" * 500,
        csv_text(header="1,2,3"),  # a table without a header
        csv_text(header="id,name,name"),
        csv_text(header="id,name"),
        csv_text(header="id,,name"),
        csv_text(header="a: 1,b: 2,c: 3"),
        "import {a, b, c} from 'd'\n" * 500,
        "f(a, b, c)\n" * 500,
        "a,b,c\n" + "1,2,3" * 1_000,  # two lines
        "a,b,c\n1,2,3\n" + '"' * 5_000,
        'a,b,c\n1,2,"' + "3\n" * 5_000,
        ",".join(f"column{i}" for i in range(50_000)) + "\n1\n2\n3\n",
        "\x00,\x00,\x00\n" * 900,
        "a\rb,c,d\n" * 900,
    ],
)
def test_what_is_not_clearly_a_table_is_text(text: str) -> None:
    assert not preview(text).startswith("[")


@given(st.lists(st.sampled_from(["1,2,3", "日,é,😀", "", '"a ""b""",2,3']), min_size=3, max_size=9), st.integers(1, 99))
def test_rows_are_the_lines_that_are_not_empty(lines: list[str], times: int) -> None:
    text = "\n".join(["a,b,c", "1,2,3", "1,2,3", *lines * times, "x,y,z" * 300])
    rows = 3 + times * sum(map(bool, lines))
    shown = preview(text)
    assert shown.startswith(f"[CSV, {rows:,} rows, ") or rows <= 10  # the last line is of another width


@pytest.mark.parametrize(
    "line",
    [
        "2024-01-31T10:00:00.123Z INFO started",
        "2024-01-31 10:00:00,123 - root - INFO - started",
        "[2024/01/31 10:00:00] started",
        "INFO 2024-01-31 10:00:00 started",
        "web-1  | 2024-01-31T10:00:00Z started",
        "nova.log.1 2017-05-16 00:00:00.008 25746 INFO started",
        "Dec 10 06:55:46 host sshd[24200]: started",
        "<34>Oct  1 22:14:15 host su: started",
        "[Sun Dec 04 04:47:44 2005] [notice] started",
        '10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326',
        "10:00:00.123 [main] INFO started",
        "[   12.345678] usb 1-1: new device",
    ],
)
def test_a_log_comes_with_its_lines(line: str) -> None:  # C42
    for text in (f"{line}\n" * 1_000, f"{line}\n    at a.b.c(D.java:7)\n{line}\n\n" * 500):
        count = text.count("\n")
        assert preview(text).startswith(f"[log, {count:,} lines]\n{line}")
        assert preview(text + "Done.").endswith("\nDone.")
        assert preview(text.encode()) == preview(text)


PROSE = "The quick brown fox jumps over the lazy dog, and so on.\n" * 50


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("# Report\n\n" + PROSE, "Report"),
        ("\n\n## A *b* `c` ##\r\n\r\n" + PROSE, "A *b* `c`"),
        (PROSE[:56] + "\n###### Six\n" + PROSE, "Six"),
        ("---\ntitle: x\n---\n\n# Real\n\n- one two three\n" + "\n" * 2_000, "Real"),
        ("```sh\n# a comment\nmake\n```\n\n# After the fence\n" + PROSE, "After the fence"),
        ("~~~\n```\n# no\n~~~\n# Yes\n" + PROSE, "Yes"),
        ("# 总结\n\n" + "这是一个相当长的句子，用来说明这个文件是一个文档，而不是程序。\n" * 90, "总结"),
        ("# a\x00\x1b\ud835]b\n\n" + PROSE, "a\ufffd\ufffd\ufffd]b"),
        ("# " + "h" * 9_000 + "\n\n" + PROSE, "h" * 159 + "…"),
        ("# One\n## Two\n" + "word\n" * 900, "One"),
    ],
)
def test_a_document_comes_with_its_first_heading(text: str, heading: str) -> None:
    assert preview(text).partition("\n")[0] == f"[markdown, first heading: {heading}]"


@pytest.mark.parametrize(
    "start",
    [
        "#!/bin/sh\n# Build all.\n\nset -e\n",
        "# Build all\n\nNAME=x\n",
        "# Build all\n\nif [ -f x ]; then\n  `make x`\nfi\n",
        "# Build all\n# and more\n",
        "# Copyright\n\nimport os\n\n## Part\n",
        "# Copyright\n\ndef main():\n    pass\n",
        "# Tools\n\nfoo('x')\n\n## More\n",
        "# a compose file\n\nversion: 3\n",
        "# Web\n\nuser nobody;\n",
        "# Settings\n\n[server]\n",
        "# base\n\nFROM alpine\n",
        "#include <stdio.h>\n# define X\n",
        "#\n# Title\n#\n",
        "2024-01-31 10:00:00 a\n# not a heading\n",
        "```\n# in a fence that never ends\n",
        "a line\n# beside it\n",
        "# This is a remark about what follows.\n\n",
        "#hashtag\n",
        "####### seven\n",
        "no heading at all\n",
    ],
)
def test_hashes_that_begin_comments_make_no_heading(start: str) -> None:
    assert not preview(start + PROSE).startswith("[markdown")


def test_a_page_comes_with_its_title() -> None:
    rest = "<body>" + "<p>x</p>" * 900
    assert preview(f"<!DOCTYPE html>\n<html><title>\n A &amp;\n B </title>{rest}").startswith(
        "[HTML, title: A & B]\n<!"
    )
    assert preview(f"\n<HTML><TITLE lang='x'>总结</TITLE>{rest}").startswith("[HTML, title: 总结]\n")
    assert preview(f"<html>{rest}").startswith("[HTML]\n")
    assert preview(f'<?xml version="1.0"?>\n<html><title>&#27;&#xd800;</title>{rest}').startswith("[HTML, title: ")
    assert not preview(f"<svg><title>A</title>{rest}").startswith("[")


def test_a_text_that_is_seen_whole_needs_no_shape() -> None:
    for text in (csv_text(rows=5), "# Plan\n\n" + PROSE[:500], "<html><title>A</title>", "10:00:00 a\n" * 9):
        assert preview(text) == text


def test_a_shape_takes_half_of_the_room_at_most_and_names_its_cut() -> None:
    text = csv_text(header=",".join("日" * 39 + c for c in "abcdefgh"), row="1,2,3,4,5,6,7,8")
    for limit in (330, 500, 1_000, 1_024):
        line = preview(text, limit=limit).partition("\n")[0]
        assert line.startswith("[CSV, 2,000 rows, columns: 日日")
        assert line.endswith("…]")
        assert cost(line + "\n") <= limit // 2
    assert preview(text, limit=300).startswith("日")
    shown = preview(text, already_truncated=True)
    assert shown.startswith("[the tool had already cut this output]\n[CSV, 2,000 rows, columns: 日日")


def test_base64_in_a_heading_is_left_out() -> None:  # C57
    shown = preview(f"# ![x](data:image/png;base64,{encoded(5_000)})\n\n{PROSE}")
    assert shown.startswith("[markdown, first heading: ![x](data:image/png;base64,[base64 left out]…]\n")


starts = st.sampled_from(
    [
        "a,b,c\n1,2,3\n4,5,6\n",
        "a\tb\tc\n" * 9,
        "# Head\n\n",
        "```\n",
        "<html><title>",
        "10:00:00 a\n" * 5,
        "[{",
        '{"a":',
    ]
)


@given(starts, texts, st.integers(1, 300), st.integers(0, MAX_PREVIEW_BYTES), st.booleans())
def test_the_limit_holds_for_every_kind(start: str, text: str, times: int, limit: int, truncated: bool) -> None:
    value = start + text * times
    shown = preview(value, limit=limit, already_truncated=truncated)
    assert cost(shown) <= limit
    assert len(shown.encode()) <= limit  # it can be encoded
    assert shown == preview(value, limit=limit, already_truncated=truncated)
