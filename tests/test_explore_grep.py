"""grep against a plain search line by line, and patterns that are meant to hurt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch.errors import InvalidArgument
from scratch.explore import grep as grep_module
from scratch.explore import patterns
from scratch.explore.grep import grep
from scratch.explore.look import Call, ExploreError, Look, TooLarge
from scratch.explore.text import Text

ROOM = 1_280_000
MARK = re.compile(r"  \[bytes? ([\d, ]+)(?:, and ([\d,]+) more)?\]$")
COVERED = re.compile(r"([\d,]+) match(?:es)? in ([\d,]+) of ([\d,]+) lines?, ([\d,]+) regions?")

PATTERNS = [
    "a", "ab", "a+", "a*", "[^x]", "[^x]+", r"\s", r"\s+b", r"\D+a", "^", "$", "^$", "^a", "b$", r"\bab?\b", "(?s)a.b",
    "(?s).+", "a|^b|c$", "b*$", r"(a)(b)?", r"\Aa", r"b\Z", r"^\s*$", "(?i)A", "a{2}", "..", ".$", "b?", r"\x0c",
    r"[\r]",
]  # fmt: skip
contents = st.text(st.sampled_from("aabbcx \n\n\r\x0c"), max_size=60).map(str.encode)


def search(text: Text | bytes | str, pattern: str, **changes: Any) -> Look:
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    arguments: dict[str, Any] = {
        "literal": False, "ignore_case": False, "context": 0, "max_matches": 1_000, "room": ROOM, **changes
    }  # fmt: skip
    return grep(text if isinstance(text, Text) else Text(text), pattern=pattern, **arguments)


def attempt(text: Text, pattern: str, **changes: Any) -> Look | ExploreError | TooLarge:
    try:
        return search(text, pattern, **changes)
    except (ExploreError, TooLarge) as error:
        return error


@dataclass(frozen=True)
class Hits:
    """Line number to offsets of its matches."""

    lines: dict[int, list[int]]

    @property
    def matches(self) -> int:
        return sum(len(offsets) for offsets in self.lines.values())


def shown_hits(look: Look) -> Hits:
    lines = {}
    for line in look.text.split("\n"):
        if line.startswith(">"):
            found = MARK.search(line)
            assert found is not None
            assert found[2] is None
            lines[int(line[1:].split("\t")[0])] = [int(offset) for offset in found[1].split(", ")]
    return Hits(lines)


def counts(look: Look) -> tuple[int, int, int, int]:
    """Matches, matching lines, lines, regions."""
    found = COVERED.match(look.covered)
    assert found is not None
    matches, matching, lines, regions = (int(number.replace(",", "")) for number in found.groups())
    return matches, matching, lines, regions


def line_by_line(data: bytes, finder: Callable[[bytes], Iterator[tuple[int, int]]]) -> Hits:
    """Each line by itself. An empty match counts when it is the line's first."""
    lines = {}
    start = 0
    parts = data.split(b"\n")
    for number, part in enumerate(parts, 1):
        is_last = number == len(parts)
        if is_last and not part:
            break
        offsets: list[int] = []
        for first, end in finder(part if is_last else part.removesuffix(b"\r")):
            if first == end and offsets:
                break
            offsets.append(start + first)
            if first == end:
                break
        if offsets:
            lines[number] = offsets
        start += len(part) + 1
    return Hits(lines)


def with_re(pattern: str) -> Callable[[bytes], Iterator[tuple[int, int]]]:
    compiled = re.compile(pattern.encode())
    return lambda line: (match.span() for match in compiled.finditer(line))


@given(contents, st.sampled_from(PATTERNS), st.sampled_from([1, 3, 8, 64]))
@example(b"abc\r\n", "^$", 64)  # no line between the carriage return and its newline
@example(b"\r\n\r\n", "^$", 64)
@example(b"a\n", "^$", 64)  # no line after the last newline
@example(b"x\ry\r", "[\r]", 64)
@example(b"xab\nab", r"\Aa", 64)
def test_every_line_is_matched_by_itself_however_the_text_is_cut_into_blocks(
    data: bytes, pattern: str, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep_module, "BLOCK", block)
        look = search(data, pattern.replace(r"\Z", r"\z"))
    expected = line_by_line(data, with_re(pattern))
    assert shown_hits(look) == expected
    if expected.lines:
        assert counts(look)[:2] == (expected.matches, len(expected.lines))
        assert "not shown" not in look.covered
    elif data:
        assert look.covered.startswith("no match in ")


@given(contents, st.text(st.sampled_from("abx \r\x0c"), min_size=1, max_size=3), st.booleans(), st.integers(3, 9))
def test_a_literal_is_found_wherever_blocks_and_pieces_end(
    data: bytes, pattern: str, ignore_case: bool, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep_module, "BLOCK", block)
        patch.setattr(patterns, "BLOCK", block + 1)
        look = search(data, pattern.upper() if ignore_case else pattern, literal=True, ignore_case=ignore_case)
    assert shown_hits(look) == line_by_line(data, with_re(re.escape(pattern)))


@given(
    st.text(st.sampled_from("aabx "), max_size=60).map(str.encode),
    st.sampled_from(["a", "ab", "^a", "b$", r"\bab?\b", "a|^b|x$", "..", "[^a]x", "b?a", r"\Aa", r"b\Z", "^$"]),
    st.integers(4, 12),
)
def test_short_matches_in_a_line_that_is_searched_in_pieces_are_all_found(
    line: bytes, pattern: str, window: int
) -> None:
    data = b"first\r\n" + line + b"\r\nlast"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep_module, "BLOCK", 1)
        patch.setattr(patterns, "LONG_LINE", window)
        patch.setattr(patterns, "_LEAST_WINDOW", window)
        patch.setattr(patterns, "_OVERLAP", 2)
        look = search(data, pattern.replace(r"\Z", r"\z"))
    assert shown_hits(look) == line_by_line(data, with_re(pattern))
    assert "in pieces" not in look.covered


def test_a_line_in_pieces_in_which_a_match_may_be_missed_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, "BLOCK", 10)
    monkeypatch.setattr(patterns, "LONG_LINE", 10)
    monkeypatch.setattr(patterns, "_LEAST_WINDOW", 10)
    monkeypatch.setattr(patterns, "_OVERLAP", 3)
    said = "line 2 is so long that it was searched in pieces: a match of more than 64 KiB in it may be missed or cut"
    assert said in search("short\n" + "ab" * 50, "ab+").covered
    assert said in search("short\n" + "ab" * 50, "zz*").covered
    assert "in pieces" not in search("short\n" + "ab" * 50, "ab").covered
    assert "in pieces" not in search("short\nlines", "s.*").covered


def region_reference(lines: int, matching: list[int], context: int) -> list[str]:
    shown: list[str] = []
    near = [n for n in range(1, lines + 1) if any(abs(n - match) <= context for match in matching)]
    for before, number in zip([None, *near], near, strict=False):
        if before is not None and number != before + 1:
            shown.append("---")
        shown.append(f"{'>' if number in matching else ' '}{number}")
    return shown


@given(st.lists(st.booleans(), min_size=1, max_size=25), st.integers(0, 4))
def test_regions_that_touch_are_merged_and_others_are_kept_apart(matching: list[bool], context: int) -> None:
    text = "\n".join("hit" if match else "other" for match in matching)
    look = search(text, "hit", context=context)
    shown = [line.split("\t")[0] for line in look.text.split("\n") if line]
    numbers = [number for number, match in enumerate(matching, 1) if match]
    assert shown == region_reference(len(matching), numbers, context)
    if numbers:
        assert counts(look)[3] == shown.count("---") + 1


@given(st.lists(st.integers(0, 3), min_size=1, max_size=25), st.integers(0, 4), st.integers(1, 12))
def test_what_is_not_shown_is_counted(matches: list[int], context: int, most: int) -> None:
    text = "\n".join("hit" * count or "other" for count in matches)
    every = search(text, "hit", context=context)
    look = search(text, "hit", context=context, max_matches=most)
    marks = [MARK.search(line) for line in look.text.split("\n") if line.startswith(">")]
    shown = sum(len(mark[1].split(", ")) for mark in marks if mark)
    total = sum(matches)
    assert shown == min(total, most)
    if not total:
        return
    assert counts(look) == counts(every)
    regions = counts(every)[3] - look.text.split("\n").count("---") - 1
    if total > most:
        words = f"not shown: {total - most} match{'' if total - most == 1 else 'es'}, "
        assert look.covered.endswith(words + f"{regions} region{'' if regions == 1 else 's'}")
    else:
        assert look.text == every.text
    # no line that matches is shown as one that does not
    assert not any("hit" in line for line in look.text.split("\n") if line.startswith(" "))


def test_a_match_line_names_the_bytes_of_its_matches() -> None:
    look = search("one\nx hit é hit\nthree", "hit", context=1)
    assert look.text == " 1\tone\n>2\tx hit é hit  [bytes 6, 13]\n 3\tthree"
    assert look.covered == "2 matches in 1 of 3 lines, 1 region"


def test_offsets_are_those_of_the_stored_content() -> None:
    text = Text(b"a\nhit", origin=lambda offset: offset * 2 + 100)
    assert search(text, "hit").text == ">2\thit  [byte 104]"


def test_no_match_says_that_all_lines_were_searched() -> None:
    look = search("a\n" * 2_000, "b")
    assert (look.text, look.covered, look.smaller) == ("", "no match in 2,000 lines, all searched", ())


def test_an_empty_content_is_said_to_be_empty() -> None:
    assert search("", "x").covered == "the content is empty, do not retry"


def test_a_newline_in_a_pattern_is_said_to_match_nothing() -> None:
    for pattern, literal in [("a\nb", True), ("a\nb", False), (r"a\nb", False)]:
        look = search("a\nb\n", pattern, literal=literal)
        assert look.text == ""
        assert look.covered.endswith("a newline in the pattern matches nothing")


def test_a_hit_in_a_giant_line_can_be_seen_and_its_offset_opens_it() -> None:  # C13
    content = b"a" * 60_000 + b"NEEDLE" + b"b" * 60_000
    look = search(content, "NEEDLE")
    assert "NEEDLE" in look.text
    assert len(look.text) < 2_300
    assert shown_hits(look).lines == {1: [60_000]}
    assert "read_handle(offset=0)] … aaa" in look.text
    assert content[60_000:].startswith(b"NEEDLE")


@pytest.mark.parametrize("literal", [True, False])
def test_many_hits_in_one_giant_line_are_counted_and_the_first_can_be_opened(literal: bool) -> None:  # C16
    content = b'{"log":"' + b"one\\ntwo\\n" * 65_000 + b'"}'
    look = search(content, "two", literal=literal)
    mark = re.search(r"\[bytes ([\d, ]+), and 64,980 more\]$", look.text)
    assert mark is not None
    offsets = [int(offset) for offset in mark[1].split(", ")]
    assert len(offsets) == 20
    assert all(content[offset : offset + 3] == b"two" for offset in offsets)
    assert look.covered == "65,000 matches in 1 of 1 line, 1 region; not shown: 64,980 matches, 0 regions"


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ("a" * 40 + "c", "(a|a)*b"),  # C74
        ("a" * 25 + " ", "(a+)+$"),  # C76
        ("a" * 40 + "!", "(a|a)*$"),  # C78
        ("a" * 100_000, "(a|aa)+(b|c)"),
        ("x" * 5_000, "(x+x+)+y"),
    ],
)
def test_patterns_that_make_a_backtracking_engine_hang_are_answered(content: str, pattern: str) -> None:
    expected = 1 if pattern.endswith("*$") else 0
    assert search(content, pattern).text.count(">") == expected


def test_form_feed_and_line_separator_are_no_lines_for_a_search_either() -> None:  # C60
    look = search("a\r\nb\x0cc\u2028d\n", "d")
    assert shown_hits(look).lines == {2: [9]}
    assert counts(look)[2] == 2


def test_hits_in_mixed_line_ends_are_where_they_are() -> None:  # C61
    assert shown_hits(search(b"x\r\nx\rx\nx\r\r\nx\r", "x")).lines == {1: [0], 2: [3, 5], 3: [7], 4: [11]}


def test_letters_of_other_scripts_match_in_either_case() -> None:  # C80
    assert shown_hits(search("zÜRICH\nГОРОД\nΣΑΣ", "Zürich", ignore_case=True)).lines == {1: [0]}
    assert shown_hits(search("zÜRICH\nГОРОД\nΣΑΣ", "город", ignore_case=True, literal=True)).lines == {2: [8]}
    assert shown_hits(search("zÜRICH\nГОРОД\nσας", "ΣΑΣ", ignore_case=True)).lines == {3: [19]}
    assert shown_hits(search('{"city":"Zürich"}', "Zürich")).lines == {1: [9]}


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("ignore_case", [True, False])
def test_a_lone_surrogate_can_be_searched_for(literal: bool, ignore_case: bool) -> None:  # C63, C65
    look = search("x\ud835b\n\udcb2", "\ud835B" if ignore_case else "\ud835b", literal=literal, ignore_case=ignore_case)
    assert look.text == ">1\tx\\ud835b  [byte 1]"
    assert shown_hits(search("x\ud835b\n\udcb2", "^\udcb2$")).lines == {2: [6]}


def test_a_search_goes_past_nul() -> None:  # C72
    assert shown_hits(search(b"a\x00b\n\x00\x00hit", "hit")).lines == {2: [6]}
    assert shown_hits(search(b"a\x00b", "\x00", literal=True)).lines == {1: [1]}


@given(st.binary(max_size=60), st.sampled_from([".", "a*", r"\C", "[^a]", "é", r"\W"]))
def test_bytes_that_are_no_text_are_searched_too(data: bytes, pattern: str) -> None:
    look = search(data, pattern)
    assert look.text.encode() or "no match" in look.covered or not data


@given(st.text(st.sampled_from(r"ab()[]{}*+?|\^$.-:<>=!Ppidsw019,é" + "\ud835\n\x00"), min_size=1, max_size=12))
def test_any_pattern_is_answered_or_refused_with_the_same_search_as_a_literal(pattern: str) -> None:
    text = Text(("a" + pattern).encode("utf-8", "surrogatepass") + b"\nabc")
    outcome = attempt(text, pattern)
    if isinstance(outcome, Look):
        return
    assert isinstance(outcome, ExploreError)
    assert outcome.code == "bad_pattern"
    assert outcome.data["reason"]
    call = outcome.suggestions[0]
    assert (call.tool, call.arguments["literal"], call.arguments["pattern"]) == ("grep", True, pattern)
    look = search(text, **call.arguments)  # type: ignore[arg-type]  # as suggested
    assert (1 in shown_hits(look).lines) == ("\n" not in pattern)


def test_a_pattern_for_single_bytes_matches_no_newline_either() -> None:
    assert shown_hits(search(b"ab\r\nb", r"\C+")).lines == {1: [0], 2: [4]}
    assert shown_hits(search("é", r"\C")).lines == {1: [0, 1]}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing ): ("),
        ("(?=a)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("*a", "no argument for repetition operator: *"),
        ("(?:(?:a{2}){3}", "missing ): (?:(?:a{2}){3}"),
        (r"\pL{1,50}", "pattern too large - compile failed"),
        ("a{1001}", "too many counted repetitions ({n,m}) or \\p classes"),
        ("a{0,999}" * 100, "too many counted repetitions ({n,m}) or \\p classes"),
        ("((a{1,30}){1,30})" * 16, "too many counted repetitions ({n,m}) or \\p classes"),
        ("[\\pL\\pN]" * 100, "too many counted repetitions ({n,m}) or \\p classes"),
        ("a{" + "9" * 1_000 + "}", "too many counted repetitions ({n,m}) or \\p classes"),
    ],
)
def test_a_pattern_that_re2_does_not_take_is_refused_with_the_reason(
    pattern: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExploreError) as raised:
        search("x", pattern, ignore_case=True, context=2, max_matches=7)
    assert raised.value.code == "bad_pattern"
    assert raised.value.data["reason"] == reason
    assert raised.value.suggestions == (
        Call("grep", {"pattern": pattern, "literal": True, "ignore_case": True, "context": 2, "max_matches": 7}),
    )
    assert capfd.readouterr().err == ""  # RE2 has a log of its own


@pytest.mark.parametrize("pattern", ["", "x" * 1_025, "é" * 513, None, 5, b"x"])
def test_a_pattern_of_another_kind_or_size_is_refused(pattern: Any) -> None:
    for literal in (True, False):
        with pytest.raises(ExploreError) as raised:
            search("x", pattern, literal=literal)
        assert (raised.value.code, raised.value.data) == ("invalid_argument", {"argument": "pattern"})
    assert search("x" * 2_000, "x" * 1_024).text


@pytest.mark.parametrize("changes", [{"context": -1}, {"context": True}, {"max_matches": 0}, {"max_matches": "3"}])
def test_numbers_are_strict(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        search("x", "x", **changes)


def test_numbers_may_be_as_large_as_they_like() -> None:
    look = search("a\nx\nb", "x", context=2**63 - 1, max_matches=2**63 - 1)
    assert look.text == " 1\ta\n>2\tx  [byte 2]\n 3\tb"


@pytest.mark.parametrize("room", [40, 200, 1_000])
def test_suggestions_shrink_until_they_fit(room: int) -> None:
    text = Text(b"0123456789\n" * 3_000)
    arguments: dict[str, Any] = {"pattern": "[05]", "context": 3, "max_matches": 3_000}
    for _ in range(30):
        outcome = attempt(text, **arguments, room=room)
        if isinstance(outcome, Look):
            assert 0 < len(outcome.text) <= room
            return
        assert isinstance(outcome, TooLarge)
        assert outcome.estimated_bytes > room
        arguments = dict(outcome.smaller[0].arguments)
    pytest.fail("still too large")


def test_a_search_that_has_no_room_does_not_collect_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def monotonic() -> float:  # it is asked at every match
        asked.append(0.0)
        return 0.0

    monkeypatch.setattr(grep_module, "monotonic", monotonic)
    with pytest.raises(TooLarge):
        search("x\n" * 100_000, "x", max_matches=2**63 - 1, room=3_000)
    assert len(asked) < 1_100


def test_a_search_that_takes_too_long_without_a_match_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, "SECONDS", -1.0)
    with pytest.raises(ExploreError) as raised:
        search("x\n" * 10, "y")
    assert raised.value.code == "pattern_too_slow"
    assert raised.value.data == {"searched_bytes": 0}
    assert raised.value.suggestions[0].arguments["literal"] is True


def test_a_search_that_takes_too_long_shows_what_it_has_and_says_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 1.0, 1.0, 1.0, 99.0])  # start, block, two matches, the third
    monkeypatch.setattr(grep_module, "monotonic", lambda: next(times))
    look = search("x\n" * 10, "x")
    assert shown_hits(look).lines == {1: [0], 2: [2], 3: [4]}
    assert look.covered.endswith("; stopped after 10 s at byte 4 of 20: what follows was not searched or counted")
