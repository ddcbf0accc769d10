"""Windows and searches as pure functions, against a plain reference."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch import InvalidArgument, windows
from scratch.windows import MARGIN, MAX_LENGTH, MAX_MATCHES_SHOWN, MatchScan, MatchWindow, Window, fold

ODD = "a\n\r\x00\x0c\u2028é\u0301日😀\ud835\udc00"
CASES = "aAbBsSſßẞkK\N{KELVIN SIGN}iıIİσΣςéÉȺⱥ日😀\ud835"

texts = st.text(st.one_of(st.characters(), st.sampled_from(ODD)), max_size=60)
cased = st.text(st.sampled_from(CASES), max_size=60)


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def window(content: bytes, offset: int, length: int, *, binary: bool = False) -> Window:
    """As a store cuts it: from no more bytes than it must have."""
    start = max(0, offset - MARGIN)
    data = content[start : offset + length + MARGIN]
    return windows.cut_window(data, start, offset=offset, length=length, size=len(content), binary=binary)


@dataclass(frozen=True)
class Found:
    windows: list[MatchWindow]
    total: int
    next_offset: int | None


def search(
    content: bytes,
    pattern: str,
    *,
    offset: int = 0,
    ignore_case: bool = False,
    binary: bool = False,
    context: int = 3,
    max_windows: int = 10,
    step: int | None = None,
) -> Found:
    """As a store searches, in slices of ``step`` bytes: the shortest that the scan allows."""
    scan = MatchScan(
        pattern, ignore_case=ignore_case, offset=offset, size=len(content), binary=binary, shown=MAX_MATCHES_SHOWN
    )
    step = step or 4 * len(pattern) + 2 * MARGIN
    while scan.next_start is not None:
        scan.feed(content[scan.next_start : scan.next_start + step])
    planned, next_offset = windows.plan_windows(scan.found, context=context, max_windows=max_windows, size=len(content))
    found = []
    for plan in planned:
        start = max(0, plan[0] - MARGIN)
        data = content[start : plan[1] + MARGIN]
        found.append(windows.cut_match_window(data, start, plan, size=len(content), binary=binary))
    return Found(found, scan.total, next_offset)


def lower(character: str) -> str:
    """What ignoring case means, one character at a time."""
    return {"İ": "i", "ς": "σ"}.get(character, character.lower() if character != "İ" else "i")


def naive(text: str, pattern: str, *, offset: int = 0, ignore_case: bool = False) -> list[int]:
    """The byte offsets of all matches from ``offset`` on that do not overlap: compared at every character."""
    same = lower if ignore_case else str
    needle = [same(c) for c in pattern]
    hay = [same(c) for c in text]
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(encode(character)))
    found = []
    index = 0
    while index <= len(hay) - len(needle):
        if starts[index] >= offset and hay[index : index + len(needle)] == needle:
            found.append(starts[index])
            index += len(needle)
        else:
            index += 1
    return found


# --- byte ranges


@given(texts, st.integers(1, 20))
@example("日本語" * 5, 2)  # C2
@example("a" * 9 + "😀" + "b" * 9, 10)  # C1
@example("a\ud835b" * 5, 2)  # C63
@example(b"x\xb2y".decode("utf-8", "surrogateescape"), 1)  # C65
@example("a\r\nb\rc\n\r\n", 1)  # C61
def test_windows_of_any_text_add_up_to_it(text: str, length: int) -> None:  # C9
    content = encode(text)
    got = ""
    offset: int | None = 0
    steps = 0
    while offset is not None:
        one = window(content, offset, length)
        assert one.offset == offset
        assert one.end - one.offset <= max(length, len(encode(one.text[:1])))  # one character is always given
        assert one.data == content[one.offset : one.end]
        assert one.end > offset or not content
        assert (one.next_offset is None) == one.eof == (one.end == len(content))
        got += one.text
        offset = one.next_offset
        steps += 1
    assert got == text
    assert steps <= len(text) + 1


@given(st.binary(max_size=60), st.integers(1, 20))
def test_windows_of_any_bytes_add_up_to_them(content: bytes, length: int) -> None:
    got = b""
    offset: int | None = 0
    while offset is not None:
        one = window(content, offset, length, binary=True)
        assert one.encoding == "base64"
        assert one.end - one.offset == min(length, len(content) - offset)
        got += one.data
        offset = one.next_offset
    assert got == content


@given(texts, st.integers(0, 260), st.integers(1, 20))
def test_a_window_at_any_offset_starts_at_the_character_there_and_gets_past_it(
    text: str, offset: int, length: int
) -> None:
    content = encode(text)
    one = window(content, offset, length)
    if offset >= len(content):
        assert (one.text, one.eof, one.next_offset, one.offset) == ("", True, None, len(content))
        return
    bounds = [len(encode(text[:index])) for index in range(len(text) + 1)]
    assert one.offset == max(bound for bound in bounds if bound <= offset)
    assert one.end in bounds
    assert one.end > offset
    assert one.text == content[one.offset : one.end].decode("utf-8", "surrogatepass")


@pytest.mark.parametrize("length", range(1, 8))
@pytest.mark.parametrize("offset", range(8))
def test_no_replacement_character_shows_at_any_start_and_length(offset: int, length: int) -> None:  # C2, C7
    for text in ("日本語" * 5, "😀" * 9, "aé日😀" * 4):
        one = window(encode(text), offset, length)
        assert "\ufffd" not in one.text
        assert one.text
        assert one.text in text


def test_an_empty_content_says_so_and_that_a_retry_is_no_use() -> None:  # C50
    one = window(b"", 0, 100)
    assert (one.offset, one.end, one.size, one.text, one.next_offset, one.eof) == (0, 0, 0, "", None, True)
    assert one.note is not None
    assert "empty" in one.note
    assert "do not retry" in one.note
    newline = window(b"\n", 0, 100)
    assert (newline.text, newline.size, newline.eof, newline.note) == ("\n", 1, True, None)


def test_a_window_tells_a_page_from_the_whole() -> None:  # C15
    page = json.loads(window(b"x" * 100, 0, 40).to_json())
    assert page == {"offset": 0, "end": 40, "size": 100, "next_offset": 40, "eof": False, "text": "x" * 40}
    last = json.loads(window(b"x" * 100, 40, 60).to_json())
    assert (last["next_offset"], last["eof"]) == (None, True)


@given(texts)
def test_a_window_as_json_can_always_be_sent_and_reads_back(text: str) -> None:
    content = encode(text)
    one = window(content, 0, 1_000)
    sent = one.to_json().encode()  # no lone surrogate is left
    assert json.loads(sent) == json.loads(json.dumps({**json.loads(sent), "text": text}))


# --- matches


@given(st.data())
def test_a_search_finds_what_a_plain_comparison_finds(data: st.DataObject) -> None:
    ignore_case = data.draw(st.booleans())
    text = data.draw(cased)
    pattern = data.draw(st.one_of(st.text(st.sampled_from(CASES), min_size=1, max_size=3), substrings(text)))
    offset = data.draw(st.integers(0, 30))
    found = search(encode(text), pattern, offset=offset, ignore_case=ignore_case, context=0, max_windows=50)
    expected = naive(text, pattern, offset=offset, ignore_case=ignore_case)
    assert found.total == len(expected)
    assert [start for one in found.windows for start in one.matches] == expected


def substrings(text: str) -> st.SearchStrategy[str]:
    if not text:
        return st.just("a")
    return st.tuples(st.integers(0, len(text) - 1), st.integers(1, 6)).map(lambda cut: text[cut[0] : cut[0] + cut[1]])


@given(
    st.text(st.sampled_from("abé"), max_size=200),
    st.sampled_from(["a", "aa", "aba", "é", "éé", "ab"]),
    st.integers(0, 20),
    st.integers(1, 4),
)
def test_following_next_offset_meets_every_match_once(text: str, pattern: str, context: int, max_windows: int) -> None:
    content = encode(text)
    seen: list[int] = []
    offset: int | None = 0
    while offset is not None:
        found = search(content, pattern, offset=offset, context=context, max_windows=max_windows)
        assert len(found.windows) <= max_windows
        assert found.total == len(naive(text, pattern, offset=offset))
        before = -1
        for one in found.windows:
            assert before < one.offset  # in order, and apart
            before = one.end
            assert encode(one.text) == content[one.offset : one.end]
            for start in one.matches:
                assert one.offset <= start
                assert content[start : start + len(encode(pattern))] == encode(pattern)
                assert start + len(encode(pattern)) <= one.end
            seen += one.matches
        if found.next_offset is not None:
            assert found.next_offset > seen[-1]
        offset = found.next_offset
    assert seen == naive(text, pattern)


@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("xXAaABaaAaa", "aa"),
        ("İstanbul istanbul ISTANBUL ıstanbul", "İSTANBUL"),
        ("straße STRAẞE strasse", "straße"),
        ("273 \N{KELVIN SIGN}, 5 k, 6 K", "k"),
        ("ΟΔΟΣ οδος οδοσ", "οδος"),
        ("Ⱥⱥ" * 20, "ⱥ"),
        ("İİİİx" * 9, "iix"),
    ],
)
def test_offsets_open_at_the_hit_whatever_the_case_does_to_lengths(text: str, pattern: str, ignore_case: bool) -> None:
    content = encode(text)
    expected = naive(text, pattern, ignore_case=ignore_case)
    for step in range(4 * len(pattern) + 8, len(content) + 8):
        found = search(content, pattern, ignore_case=ignore_case, context=0, max_windows=50, step=step)
        assert [start for one in found.windows for start in one.matches] == expected
        for start in expected:
            shown = window(content, start, 4).text[0]
            assert shown == pattern[0] or (ignore_case and lower(shown) == lower(pattern[0]))
    assert expected or not ignore_case


def test_a_search_can_start_inside_a_character() -> None:
    content = encode("😀Äb日ÄB")
    for ignore_case in (False, True):
        for offset in range(4):
            found = search(content, "Äb", offset=offset, ignore_case=ignore_case, context=0)
            assert found.windows[0].matches == (4,)
            assert found.total == (2 if ignore_case else 1)
    assert search(content, "b", offset=len(content) - 1, ignore_case=True).total == 1
    assert search(encode("é"), "é", offset=1, ignore_case=True).total == 0


def test_each_character_has_one_lower_case_form_of_one_character() -> None:
    everything = "".join(map(chr, range(0x110000)))
    folded = fold(everything)
    assert len(folded) == len(everything)  # positions stay
    assert all(fold(character) == folded[index] for index, character in enumerate(everything))
    assert fold("ΟΔΟΣ Σ") == fold("οδοσ σ") == fold("οδος ς")


@given(
    st.text(st.sampled_from("aabé"), max_size=150),
    st.sampled_from(["a", "aa", "aba", "é"]),
    st.booleans(),
    st.integers(5, 12),
)
def test_matches_past_the_shown_ones_are_counted_right(
    text: str, pattern: str, ignore_case: bool, counted_at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_COUNTED_AT_ONCE", counted_at_once)
        content = encode(text)
        scan = MatchScan(pattern, ignore_case=ignore_case, offset=0, size=len(content), binary=False, shown=2)
        while scan.next_start is not None:
            scan.feed(content[scan.next_start : scan.next_start + 40])
    expected = naive(text, pattern, ignore_case=ignore_case)
    assert scan.total == len(expected)
    assert [start for start, _ in scan.found] == expected[:3]


def test_many_matches_are_counted_and_the_first_hundred_shown() -> None:
    found = search(b"a" * 100_000, "a", context=0, max_windows=50, step=windows.SLICE)
    assert found.total == 100_000
    assert sum(len(one.matches) for one in found.windows) == MAX_MATCHES_SHOWN == found.next_offset


@given(st.lists(st.integers(0, 5_000), max_size=40), st.integers(0, windows.MAX_CONTEXT), st.integers(1, 50))
def test_what_is_shown_never_exceeds_the_most_for_one_call(gaps: list[int], context: int, max_windows: int) -> None:
    content = b"".join(b"." * gap + b"needle" for gap in gaps) + encode("日" * 2_000)
    found = search(content, "needle", context=context, max_windows=max_windows, step=windows.SLICE)
    assert sum(one.end - one.offset for one in found.windows) <= MAX_LENGTH
    assert found.total == len(gaps)
    assert bool(found.windows) == bool(gaps)
    shown = sum(len(one.matches) for one in found.windows)
    assert (found.next_offset is None) == (shown == len(gaps))


def test_windows_of_wide_characters_do_not_exceed_it_either() -> None:
    content = encode(("日" * 1_500 + "x") * 60)
    found = search(content, "x", context=1_003, max_windows=50, step=windows.SLICE)
    assert sum(one.end - one.offset for one in found.windows) <= MAX_LENGTH
    assert "\ufffd" not in "".join(one.text for one in found.windows)


def test_context_never_cuts_a_character() -> None:  # C5
    content = encode("─x─")
    (one,) = search(content, "x", context=1).windows
    assert (one.offset, one.end, one.text) == (3, 4, "x")
    (one,) = search(content, "x", context=3).windows
    assert (one.offset, one.end, one.text, one.matches) == (0, 7, "─x─", (3,))


def test_windows_that_touch_are_one() -> None:
    content = b"..x....x.....x.."
    assert [(one.offset, one.end, one.matches) for one in search(content, "x", context=2).windows] == [
        (0, 10, (2, 7)),
        (11, 16, (13,)),
    ]


def test_a_search_in_bytes_that_are_no_text_gives_base64() -> None:
    content = b"\xff\xfe" + b"KEY" + b"\x80\x81" + b"key"
    (one,) = search(content, "key", binary=True, context=1).windows
    assert (one.offset, one.end, one.matches, one.text) == (6, 10, (7,), "gWtleQ==")
    assert search(content, "key", binary=True, ignore_case=True).total == 2


def test_a_scan_refuses_to_go_on_when_it_has_ended() -> None:
    scan = MatchScan("a", ignore_case=False, offset=5, size=5, binary=False, shown=1)
    assert scan.next_start is None
    with pytest.raises(ValueError, match="nothing left"):
        scan.feed(b"aaa")


# --- arguments


@pytest.mark.parametrize("value", [-1, -(2**70), True, False, None, "3", "３", 2.0, float("nan"), 2**63, 10**30, [1]])
def test_what_is_no_count_is_refused_by_name(value: object) -> None:  # C152, C153
    with pytest.raises(InvalidArgument) as caught:
        windows.check_count(value, "offset", least=0)
    assert caught.value.data == {"argument": "offset"}
    assert caught.value.message.startswith("offset must be ")


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 + 2, 2**63 - 1])
def test_a_count_is_returned(value: int) -> None:
    assert windows.check_count(value, "offset", least=0) == value


def test_a_length_over_the_most_is_cut_and_that_is_said() -> None:
    assert windows.clamp(100, "length", least=1, most=200) == (100, None)
    count, note = windows.clamp(201, "length", least=1, most=200)
    assert count == 200
    assert note == "length was cut to 200, the most for one call."
    with pytest.raises(InvalidArgument):
        windows.clamp(0, "length", least=1, most=200)


@pytest.mark.parametrize("pattern", ["", None, 3, b"x", "x" * 1_025, "日" * 342, ["x"]])
def test_a_pattern_is_text_of_a_thousand_bytes_at_most(pattern: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        windows.check_pattern(pattern)
    assert caught.value.data == {"argument": "match"}


@pytest.mark.parametrize("pattern", ["x", "x" * 1_024, "日" * 341, "\ud835", "\x00", "\n", "%"])
def test_any_other_text_is_a_pattern(pattern: str) -> None:
    assert windows.check_pattern(pattern) == pattern
