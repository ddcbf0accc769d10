"""A content in memory and its lines, against a plain reference."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch.explore import text as text_module
from scratch.explore.look import Call, ExploreError, TooLarge
from scratch.explore.text import Text, load, nth_newline, shown

contents = st.text(st.sampled_from("ab\n\r\x0c\u2028é"), max_size=40).map(str.encode)
block_sizes = st.integers(1, 9)


def starts(data: bytes) -> list[int]:
    """Where the lines start."""
    found = [0, *(at + 1 for at, byte in enumerate(data) if byte == 0x0A)]
    return [start for start in found if start < len(data)]


@given(contents, block_sizes)
@example(b"", 4)
@example(b"abc\n", 4)  # the last block is full
@example(b"\n\n\n\n\n\n\n\n", 4)
def test_lines_start_where_newlines_say_whatever_the_size_of_an_index_block(data: bytes, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK", block)
        text = Text(data)
        expected = starts(data)
        assert text.line_count == len(expected)
        assert [text.line_start(number) for number in range(1, len(expected) + 1)] == expected
        assert text.line_start(len(expected) + 1) == len(data)
        assert text.line_start(10**12) == len(data)
        for offset in range(len(data)):
            assert text.line_of(offset) == sum(start <= offset for start in expected)
        assert text.line_of(10**12) == max(1, len(expected))


@given(contents, block_sizes)
def test_a_line_ends_before_its_newline_and_the_carriage_return_in_front_of_it(data: bytes, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK", block)
        patch.setattr(text_module, "_SHORT", 2)
        text = Text(data)
        lines = data.split(b"\n")
        expected = [line.removesuffix(b"\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        assert [data[start : text.line_end(start)] for start in starts(data)] == expected


@given(st.integers(1, 30), st.data())
def test_the_nth_newline_of_a_block_is_found(newlines: int, data: st.DataObject) -> None:
    block = b"\n".join(b"x" * data.draw(st.integers(0, 3)) for _ in range(newlines + 1))
    number = data.draw(st.integers(1, newlines))
    at = nth_newline(block, number)
    assert block[at : at + 1] == b"\n"
    assert block[:at].count(b"\n") == number - 1


def test_form_feed_vertical_tab_nel_and_line_separator_do_not_split() -> None:  # C60
    assert Text("a\x0cb\x0bc\x85d\u2028e\u2029f\rg".encode()).line_count == 1


def test_an_empty_content_has_no_line_and_a_newline_alone_is_one() -> None:
    assert Text(b"").line_count == 0
    assert Text(b"\n").line_count == 1
    assert Text(b"a").line_count == 1
    assert Text(b"a\n").line_count == 1
    assert Text(b"a\n\n").line_count == 2


def test_reading_is_clipped_at_both_ends() -> None:
    text = Text(b"abc")
    assert text.read(-5, 2) == b"ab"
    assert text.read(1, 99) == b"bc"
    assert text.read(5, 9) == b""
    assert text.read(-9, -5) == b""


def test_a_text_without_an_origin_is_its_own() -> None:
    assert Text(b"abc").origin(2) == 2
    assert Text(b"abc", origin=lambda offset: offset + 100).origin(2) == 102


def test_load_puts_pieces_together() -> None:
    text = load(6, [b"ab", memoryview(b"c\n"), b"", b"de"])
    assert text.read(0, 6) == b"abc\nde"
    assert text.size == 6
    assert text.line_count == 2
    assert load(0, []).line_count == 0


@pytest.mark.parametrize("pieces", [[b"abc"], [b"abcd", b"e"]])
def test_load_refuses_pieces_of_another_size(pieces: list[bytes]) -> None:
    with pytest.raises(ValueError):
        load(4, pieces)


@given(st.binary(max_size=40))
@example("a\ud835b".encode("utf-8", "surrogatepass"))  # C63
@example(b"\xb2".decode("utf-8", "surrogateescape").encode("utf-8", "surrogatepass"))  # C65
def test_whatever_is_shown_can_be_encoded(data: bytes) -> None:
    assert bool(shown(data).encode()) == bool(data)


def test_a_lone_surrogate_is_shown_as_its_escape() -> None:  # C63
    assert shown("a\ud835b".encode("utf-8", "surrogatepass")) == "a\\ud835b"


def test_an_error_has_its_own_code_message_data_and_suggestions() -> None:
    error = ExploreError("not_json", "this is no JSON", (Call("head", {"lines": 5}),), offset=3)
    assert (error.code, error.message, str(error)) == ("not_json", "this is no JSON", "this is no JSON")
    assert error.data == {"offset": 3}
    assert error.suggestions[0].tool == "head"


def test_too_large_says_how_much_and_what_instead() -> None:
    error = TooLarge(5_000, (Call("head", {"lines": 5}),))
    assert error.estimated_bytes == 5_000
    assert error.smaller[0].arguments == {"lines": 5}
