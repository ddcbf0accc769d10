"""head and slice, and how lines are shown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch.errors import InvalidArgument, ScratchError
from scratch.explore.lines import MAX_LINE, cut_line, head, slice_lines
from scratch.explore.look import Call, ExploreError, Look, TooLarge
from scratch.explore.text import Text

ROOM = 1_280_000
CUT = re.compile(r"… \[cut: the line goes on at byte (\d+): read_handle\(offset=(\d+)\)\]$")

contents = st.text(st.sampled_from("ab\n\r\x0c\u2028é\ud835"), max_size=40)


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def reference(data: bytes) -> list[str]:
    """All lines as they are shown."""
    lines = data.split(b"\n")
    whole = [line.removesuffix(b"\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    texts = [line.decode("utf-8", "surrogatepass").replace("\ud835", "\\ud835") for line in whole]
    return [f"{number}\t{text}" for number, text in enumerate(texts, 1)]


def as_lines(look: Look) -> list[str]:
    return look.text.split("\n") if look.text else []


@given(contents, st.integers(1, 12))
def test_head_shows_the_first_lines(content: str, lines: int) -> None:
    look = head(Text(encode(content)), lines=lines, room=ROOM)
    assert as_lines(look) == reference(encode(content))[:lines]


@given(contents, st.integers(1, 12), st.integers(0, 12))
def test_slice_shows_both_its_ends(content: str, start: int, more: int) -> None:
    look = slice_lines(Text(encode(content)), start=start, end=start + more, room=ROOM)
    assert as_lines(look) == reference(encode(content))[start - 1 : start + more]


def test_what_is_covered_is_a_half_open_interval() -> None:
    text = Text(b"x\n" * 2_000)
    assert head(text, lines=50, room=ROOM).covered == "lines [1..51) of 2,000"
    assert head(text, lines=9_999, room=ROOM).covered == "lines [1..2001) of 2,000"
    assert slice_lines(text, start=7, end=7, room=ROOM).covered == "lines [7..8) of 2,000"


def test_a_slice_past_the_end_is_clipped_and_says_so() -> None:
    look = slice_lines(Text(b"a\nb\nc"), start=2, end=9, room=ROOM)
    assert look.text == "2\tb\n3\tc"
    assert look.covered == "lines [2..4) of 3 (there is no line 9)"


def test_a_slice_that_starts_past_the_end_is_empty_and_says_how_many_lines_there_are() -> None:
    look = slice_lines(Text(b"a\nb\n"), start=3, end=2**63 - 1, room=ROOM)
    assert look.text == ""
    assert look.covered == "no lines: 3 is past the last line, 2"


def test_an_empty_content_is_said_to_be_empty() -> None:
    for look in (head(Text(b""), lines=5, room=ROOM), slice_lines(Text(b""), start=1, end=5, room=ROOM)):
        assert (look.text, look.covered) == ("", "the content is empty, do not retry")


def test_a_slice_the_wrong_way_round_is_an_error_with_the_right_one_to_run() -> None:
    with pytest.raises(ExploreError) as raised:
        slice_lines(Text(b"a\nb\n"), start=2, end=1, room=ROOM)
    assert raised.value.code == "invalid_argument"
    assert raised.value.suggestions == (Call("slice", {"start": 1, "end": 2}),)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, 2**63])
def test_numbers_are_strict(value: Any) -> None:
    text = Text(b"a\nb\n")
    with pytest.raises(InvalidArgument):
        head(text, lines=value, room=ROOM)
    with pytest.raises(ScratchError):
        slice_lines(text, start=value, end=2, room=ROOM)
    with pytest.raises(ScratchError):
        slice_lines(text, start=1, end=value, room=ROOM)


def test_control_characters_stay_as_they_are_and_nul_ends_nothing() -> None:  # C72
    assert head(Text(b"a\x00b\x1b[0mc\td\n"), lines=1, room=ROOM).text == "1\ta\x00b\x1b[0mc\td"


def test_carriage_returns_are_shown_but_for_the_one_before_a_newline() -> None:  # C61
    assert head(Text(b"a\r\nb\rc\nd\r\r\ne\r"), lines=9, room=ROOM).text == "1\ta\n2\tb\rc\n3\td\r\n4\te\r"


@given(
    st.sampled_from(["a", "é", "日", "😀", "\ud835"]),
    st.integers(0, 3),
    st.sampled_from([1_999, 2_000, 2_001, 9_000]),
)
def test_a_line_of_more_than_2000_characters_is_cut_where_read_handle_goes_on(
    character: str, before: int, length: int
) -> None:
    line = "a" * before + character * (length - before)
    data = encode("first\n" + line + "\nlast")
    shown = as_lines(head(Text(data), lines=2, room=ROOM))[1].removeprefix("2\t")
    found = CUT.search(shown)
    if length <= MAX_LINE:
        assert found is None
        assert shown == line.replace("\ud835", "\\ud835")
        return
    assert found is not None
    assert shown[: found.start()] == line[:MAX_LINE].replace("\ud835", "\\ud835")
    assert found[1] == found[2]
    assert data[int(found[1]) :].decode("utf-8", "surrogatepass") == line[MAX_LINE:] + "\nlast"


def test_a_cut_names_the_offset_in_the_stored_content() -> None:
    text = Text(b"x" * 3_000, origin=lambda offset: offset + 700)
    assert CUT.search(head(text, lines=1, room=ROOM).text)[1] == "2700"  # type: ignore[index]  # it is cut


@given(st.sampled_from(["a", "é", "日", "😀"]), st.integers(0, 3), st.integers(0, 20_000))
@example("😀", 1, 19_990)
def test_a_long_line_is_cut_on_both_sides_of_what_it_is_shown_for(character: str, before: int, around: int) -> None:
    line = encode("x" * before + character * 20_000)
    around = min(around, len(line) - 1)
    shown = cut_line(Text(line), 0, len(line), around=around)
    left = re.match(r"\[cut: the line starts at byte 0: read_handle\(offset=0\)\] … ", shown)
    right = CUT.search(shown)
    part = encode(shown[left.end() if left else 0 : right.start() if right else None])
    stop = int(right[1]) if right else len(line)
    assert line[stop - len(part) : stop] == part
    assert "\ufffd" not in shown
    assert stop - len(part) <= around < stop
    assert left or stop == len(part)


def test_many_long_lines_are_bounded() -> None:  # C10
    look = head(Text((b"x" * 20_000 + b"\n") * 5), lines=5, room=11_000)
    assert len(as_lines(look)) == 5
    assert all(CUT.search(line) for line in as_lines(look))


def test_one_giant_line_is_bounded() -> None:  # C11
    look = head(Text(b'{"a":"' + b"x" * 200_000 + b'"}'), lines=50, room=ROOM)
    assert len(look.text) < 2_100
    assert look.covered == "lines [1..2) of 1"


@given(st.binary(min_size=1, max_size=50).map(lambda data: data * 500))
@example(b"\x80" * 20_000)
@example(b"\xff\xfe" * 5_000)
def test_bytes_that_are_no_text_are_shown_and_cut_too(data: bytes) -> None:
    look = head(Text(data), lines=3, room=ROOM)
    assert look.text.encode()
    assert all(len(line) <= 8_200 for line in as_lines(look))
    assert cut_line(Text(data), 0, len(data), around=len(data) // 2).encode()


def run(text: Text, call: Call, room: int) -> Look | TooLarge:
    tool = {"head": head, "slice": slice_lines}[call.tool]
    try:
        return tool(text, **call.arguments, room=room)  # type: ignore[operator,no-any-return]  # as suggested
    except TooLarge as error:
        return error


@pytest.mark.parametrize("call", [Call("head", {"lines": 10_000}), Call("slice", {"start": 3, "end": 900})])
def test_suggestions_shrink_until_they_fit(call: Call) -> None:
    text = Text(b"0123456789\n" * 1_000)
    for _ in range(20):
        outcome = run(text, call, 30)
        if isinstance(outcome, Look):
            assert len(outcome.text) <= 30
            assert outcome.text.endswith("\t0123456789")
            return
        assert outcome.estimated_bytes > 30
        assert outcome.smaller[-1].tool == "grep"
        call = outcome.smaller[0]
    pytest.fail("still too large")


def test_a_look_that_fits_also_says_what_is_smaller() -> None:
    text = Text(b"a\n" * 100)
    assert head(text, lines=300, room=ROOM).smaller[0] == Call("head", {"lines": 50})
    assert slice_lines(text, start=51, end=300, room=ROOM).smaller[0] == Call("slice", {"start": 51, "end": 75})
    assert [call.tool for call in head(text, lines=1, room=ROOM).smaller] == ["grep"]


def test_the_estimate_is_near_what_all_lines_need() -> None:
    with pytest.raises(TooLarge) as raised:
        head(Text(b"0123456789\n" * 1_000), lines=1_000, room=1_000)
    assert 10_000 < raised.value.estimated_bytes < 20_000
