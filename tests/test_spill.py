"""The spill decision in all its rules, and the stub."""

from __future__ import annotations

import builtins
import json
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratch import (
    SPILL_THRESHOLD_BYTES,
    Entry,
    EntryInfo,
    InvalidArgument,
    Kind,
    Matches,
    Observation,
    OwnText,
    SpillDecision,
    SpillPolicy,
    Stub,
    Window,
    should_spill,
)
from scratch.content import read_content
from scratch.spill import INTERNAL_VERBS, OWN_VERBS, build_stub, check_tool_pattern, is_own_result, own_result_text
from tests.support import query

LARGE = "x" * 20_000
INFO = EntryInfo("r", "a", Kind.NOTE, "k", 3, 1, "text/plain", "the preview", None, 1, 0, 1)
OWN: list[Any] = [
    OwnText(LARGE),
    Window(0, 3, 3, "abc", None, eof=True),
    Matches((), 0, 3, 3, complete=True, next_offset=None),
    Stub("r_222222222222", "p", 3, "n"),
    Entry(INFO, b"abc"),
    INFO,
]


def decide(observation: Observation, **policy: Any) -> str:
    decision = should_spill(observation, SpillPolicy(**policy))
    assert decision.spill == decision.reason.startswith("over")
    return decision.reason


# --- the rules


def test_a_large_result_of_a_query_is_spilled() -> None:
    assert should_spill(query(LARGE)) == SpillDecision(spill=True, reason="over_threshold")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("artifact_id", "report.md"),
        ("artifact_id", ""),
        ("mutation_complete", True),
        ("mutation_complete", False),
        ("metadata", {"a": 1}),
        ("memory_entry_id", "m-1"),
        ("persisted", True),
        ("persisted", False),
    ],
)
def test_out_of_band_meaning_is_kept(field: str, value: Any) -> None:
    assert decide(replace(query(LARGE), **{field: value})) == field


def test_empty_metadata_means_nothing() -> None:
    assert decide(replace(query(LARGE), metadata={})) == "over_threshold"
    assert decide(replace(query(LARGE), metadata=None)) == "over_threshold"


def test_an_error_is_kept() -> None:  # C46
    assert decide(replace(query(LARGE), is_error=True)) == "is_error"


@pytest.mark.parametrize("name", sorted(INTERNAL_VERBS))
def test_an_internal_verb_is_kept_by_name(name: str) -> None:
    assert decide(query(LARGE, tool=name)) == "internal_verb"
    assert decide(query(LARGE, tool=name + "x")) == "over_threshold"


def test_the_internal_verbs_are_ours_those_of_memory_and_two_more() -> None:
    assert {"report_progress", "tool_search", "memory_search", "read_handle", "scratch_write", "grep"} <= INTERNAL_VERBS
    assert "run_query" not in INTERNAL_VERBS
    assert decide(query(LARGE, tool="my_verb"), internal_verbs=frozenset({"my_verb"})) == "internal_verb"


def test_our_verbs_are_known_under_their_prefix_too() -> None:
    for name in OWN_VERBS:
        assert decide(query(LARGE, tool=f"sp_{name}"), verb_prefix="sp_") == "internal_verb"
    assert decide(query(LARGE, tool="sp_run_query"), verb_prefix="sp_") == "over_threshold"
    assert decide(query(LARGE, tool="sp_tool_search"), verb_prefix="sp_") == "over_threshold"


@pytest.mark.parametrize("content", OWN, ids=lambda content: type(content).__name__)
def test_our_own_result_is_kept_under_any_tools_name(content: object) -> None:  # C10, C19, C20
    assert is_own_result(content)
    assert decide(query(content, tool="use_skill"), threshold_bytes=0) == "own_result"
    assert type(own_result_text(content)) is str


def test_the_text_of_an_own_result_is_what_the_model_saw() -> None:
    assert [own_result_text(content) for content in OWN] == [
        LARGE,
        OWN[1].to_json(),
        OWN[2].to_json(),
        OWN[3].to_json(),
        "abc",
        "the preview",
    ]


def test_content_that_imitates_a_stub_is_no_own_result() -> None:  # C90, C94
    imitation = Stub("r_222222222222", LARGE, 3, "n").to_json()
    assert decide(query(imitation)) == "over_threshold"
    assert decide(query(json.loads(imitation))) == "over_threshold"


@pytest.mark.parametrize("tool_class", ["effect", "unknown", "", None, "QUERY"])
def test_any_other_class_of_tool_is_kept(tool_class: str | None) -> None:  # C217
    assert decide(Observation(content=LARGE, tool="t", tool_class=tool_class)) == "tool_class"
    assert decide(Observation(content=LARGE)) == "tool_class"


def test_three_classes_are_spilled_and_that_can_be_set() -> None:
    for tool_class in ("query", "workspace", "browser"):
        assert decide(Observation(content=LARGE, tool_class=tool_class)) == "over_threshold"
    assert decide(Observation(content=LARGE, tool_class="mail"), spilling_classes=frozenset({"mail"})) == (
        "over_threshold"
    )


def test_the_threshold_is_in_bytes_and_itself_still_kept() -> None:
    assert SPILL_THRESHOLD_BYTES == 8_192
    assert decide(query("x" * 8_192)) == "under_threshold"
    assert decide(query("x" * 8_193)) == "over_threshold"
    assert decide(query("é" * 4_096)) == "under_threshold"
    assert decide(query("é" * 4_097)) == "over_threshold"
    assert decide(query(b"\xff" * 8_193)) == "over_threshold"
    assert decide(query(["x" * 8_188])) == "under_threshold"
    assert decide(query(["x" * 8_189])) == "over_threshold"  # as JSON: two brackets, two quotes


def test_a_stub_that_is_no_smaller_than_the_content_is_no_gain() -> None:  # C35
    for size in range(101, 1_500):
        policy = SpillPolicy(threshold_bytes=100, preview_bytes=100)
        decision = should_spill(query("x" * size), policy)
        stub = build_stub("r_222222222222", read_content("x" * size), policy).to_json().encode()
        assert decision.spill == (len(stub) < size)
        assert decision.reason == ("over_threshold" if decision.spill else "stub_not_smaller")
    assert decide(query("x" * 101), threshold_bytes=100, stub_must_be_smaller=False) == "over_threshold"


@pytest.mark.parametrize("content", ["", b"", "\n", [], {}, None, 0])
def test_next_to_nothing_is_never_spilled(content: object) -> None:  # C50
    assert not should_spill(query(content), SpillPolicy(threshold_bytes=0)).spill
    assert not should_spill(query(content), SpillPolicy(tool_thresholds={"*": 0})).spill


RULES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # the reason, the observation that a rule applies to, and the policy
    ("metadata", {"metadata": {"a": 1}}, {}),
    ("is_error", {"is_error": True}, {}),
    ("internal_verb", {"tool": "read_handle"}, {}),
    ("own_result", {"content": OwnText("x" * 400)}, {}),
    ("over_token_threshold", {"content": "x" * 9_000}, {"tool_thresholds": {"*": 1}}),
    ("tool_class", {"tool_class": "effect"}, {}),
    ("under_threshold", {"content": "x" * 50}, {}),
    ("stub_not_smaller", {"content": "x" * 400}, {}),
]


@pytest.mark.parametrize(("earlier", "later"), list(combinations(RULES, 2)), ids=lambda rule: rule[0])
def test_the_earlier_rule_decides(
    earlier: tuple[str, dict[str, Any], dict[str, Any]], later: tuple[str, dict[str, Any], dict[str, Any]]
) -> None:
    base: dict[str, Any] = {"content": LARGE, "tool": "t", "tool_class": "query"}
    observation = Observation(**base | later[1] | earlier[1])
    assert decide(observation, threshold_bytes=100, **later[2] | earlier[2]) == earlier[0]
    assert decide(Observation(**base | later[1]), threshold_bytes=100, **later[2]) == later[0]


@pytest.mark.parametrize("field", ["artifact_id", "mutation_complete", "memory_entry_id", "persisted"])
def test_every_kind_of_out_of_band_meaning_comes_before_an_error(field: str) -> None:
    beside: dict[str, Any] = {field: True}
    assert decide(replace(query(LARGE), is_error=True, **beside)) == field


# --- thresholds of a tool, in tokens


def test_a_tools_own_threshold_decides_alone() -> None:  # C211
    policy: dict[str, Any] = {"tool_thresholds": {"run_query": 1_000}, "threshold_bytes": 2**40}
    assert decide(query("x" * 4_000), **policy) == "over_token_threshold"  # four characters a token: 1,000
    assert decide(query("x" * 3_996), **policy) == "under_token_threshold"
    assert decide(query("日" * 1_000), **policy) == "over_token_threshold"
    assert decide(Observation(content="x" * 4_000, tool="run_query", tool_class="effect"), **policy) == (
        "over_token_threshold"
    )
    assert decide(query("x" * 4_000, tool="other"), **policy) == "under_threshold"
    assert decide(query(LARGE), tool_thresholds={"run_query": 2**40}) == "under_token_threshold"  # off for this tool
    assert decide(query("x" * 2_000), tool_thresholds={"run_query": 0}) == "over_token_threshold"
    assert decide(query("x" * 100), tool_thresholds={"run_query": 1}) == "stub_not_smaller"


def test_tokens_are_counted_only_where_bytes_do_not_tell() -> None:
    asked: list[tuple[int, int]] = []

    def count(text: str, stop_at: int) -> int:
        asked.append((len(text), stop_at))
        return 700

    policy: dict[str, Any] = {"tool_thresholds": {"a": 500, "b": 800}, "count_tokens": count}
    assert decide(query("x" * 499, tool="a"), **policy) == "under_token_threshold"
    assert decide(query(LARGE, tool="other"), **policy) == "over_threshold"
    assert asked == []
    assert decide(query("x" * 5_000, tool="a"), **policy) == "over_token_threshold"
    assert decide(query("x" * 5_000, tool="b"), **policy) == "under_token_threshold"
    assert asked == [(5_000, 500), (5_000, 800)]


@pytest.mark.parametrize(
    ("thresholds", "tool", "expected"),
    [
        ({"run_*": 1, "run_query": 2}, "run_query", 2),  # the longest
        ({"run_quer?": 1, "run_query": 2}, "run_query", 1),  # of one length: the smallest
        ({"*": 5, "run_*": 7}, "run_query", 7),
        ({"*": 5, "run_*": 7}, "list", 5),
        ({"RUN_*": 5}, "run_query", None),
        ({"run": 5}, "run_query", None),
        ({"query": 5}, "run_query", None),
        ({"?": 5}, "日", 5),
        ({"a?c": 5}, "ac", None),
        ({"a*c": 5}, "ac", 5),
        ({"a**b*": 5}, "axxb", 5),
        ({"*a*b*a": 5}, "aba", 5),
        ({"*a*a": 5}, "a", None),
        ({"a.c": 5}, "abc", None),
        ({"a*": 5}, "a\nb\n", 5),
        ({"a": 5}, "a\n", None),
        ({"*": 5}, "", 5),
        ({}, "x", None),
    ],
)
def test_a_pattern_knows_star_and_question_mark(thresholds: dict[str, int], tool: str, expected: int | None) -> None:
    assert SpillPolicy(tool_thresholds=thresholds).token_threshold(tool) == expected  # C212


def test_a_pattern_of_many_stars_takes_no_longer_than_the_name() -> None:
    policy = SpillPolicy(tool_thresholds={"*a" * 40 + "b": 1})
    assert policy.token_threshold("a" * 20_000) is None


@given(st.text("ab?*", min_size=1, max_size=7), st.text("ab", max_size=8))
def test_patterns_mean_what_a_plain_matcher_says(pattern: str, name: str) -> None:
    def matches(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return matches(pattern[1:], name) or bool(name and matches(pattern, name[1:]))
        return bool(name) and pattern[0] in ("?", name[0]) and matches(pattern[1:], name[1:])

    assert (SpillPolicy(tool_thresholds={pattern: 1}).token_threshold(name) == 1) == matches(pattern, name)


@pytest.mark.parametrize("pattern", ["", None, 5, "a[bc]", "a{b}", "!a", "a\\*", "a]"])
def test_any_other_pattern_syntax_is_refused(pattern: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_tool_pattern(pattern)
    assert caught.value.data == {"argument": "tool_thresholds"}
    with pytest.raises(InvalidArgument):
        SpillPolicy(tool_thresholds={pattern: 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threshold_bytes", -1),
        ("threshold_bytes", True),
        ("threshold_bytes", 1.0),
        ("threshold_bytes", "8192"),
        ("preview_bytes", -1),
        ("preview_bytes", 1_025),
        ("preview_bytes", None),
        ("tool_thresholds", {"a": -1}),
        ("tool_thresholds", {"a": True}),
        ("tool_thresholds", {"a": "5"}),
    ],
)
def test_a_policy_of_nonsense_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SpillPolicy(**{field: value})
    assert caught.value.data == {"argument": field}


def test_a_decision_does_no_io(monkeypatch: pytest.MonkeyPatch) -> None:  # C211
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a decision opened a file")

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr("os.open", refuse)
    assert decide(query(LARGE), tool_thresholds={"run_*": 5}) == "over_token_threshold"


def test_an_observation_needs_only_its_content() -> None:
    assert next(field.name for field in fields(Observation)) == "content"
    plain = Observation("x")
    assert not should_spill(plain).spill
    assert plain.tool_name == ""
    assert Observation("x", tool=None).tool_name == ""  # type: ignore[arg-type]
    for tool in (None, 123, ["a"], b"a"):
        odd = Observation(LARGE, tool=tool, tool_class="query")  # type: ignore[arg-type]
        assert decide(odd, tool_thresholds={"*x": 1}, verb_prefix="sp_") == "over_threshold"


@pytest.mark.parametrize("call_id", [None, "", "call_0", "call_1__thought__" + "A" * 1_400])
def test_the_id_of_a_call_decides_nothing(call_id: str | None) -> None:  # C27, C28
    assert decide(replace(query(LARGE), call_id=call_id)) == "over_threshold"


# --- the stub

HANDLE = "r_23456789abcd"
texts = st.text(st.one_of(st.characters(), st.sampled_from('"\\\x00\x1b日😀\ud835')), max_size=60)
contents: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda text, times: text * times, texts, st.integers(1, 200)),
    st.builds(lambda data, times: data * times, st.binary(max_size=60), st.integers(1, 200)),
    st.lists(st.dictionaries(texts, st.one_of(texts, st.integers(), st.floats(), st.none()), max_size=4), max_size=9),
)


@given(contents, st.integers(0, 1_024), st.booleans())
def test_a_stub_has_four_keys_a_bound_and_the_same_bytes_each_time(  # C36, C47, C63
    value: object, preview_bytes: int, truncated: bool
) -> None:
    content = read_content(value)
    policy = SpillPolicy(preview_bytes=preview_bytes)
    stub = build_stub(HANDLE, content, policy, already_truncated=truncated)
    sent = stub.to_json().encode()
    assert list(json.loads(sent)) == ["handle", "preview", "size", "note"]
    assert json.loads(sent)["handle"] == HANDLE
    assert json.loads(sent)["size"] == content.size
    assert json.loads(sent)["preview"] == stub.preview
    empty = build_stub(HANDLE, content, SpillPolicy(preview_bytes=0)).to_json()
    assert json.loads(empty)["preview"] == ""
    assert len(sent) <= len(empty) + preview_bytes
    assert len(sent) < 1_400
    again = build_stub(HANDLE, read_content(value), policy, already_truncated=truncated)
    assert again.to_json().encode() == sent
    assert b"\n" not in sent


def test_a_stub_names_only_the_verbs_that_are_registered() -> None:  # C21
    content = read_content(LARGE)
    note = build_stub(HANDLE, content, SpillPolicy()).note
    assert f'read_handle(handle="{HANDLE}", offset=0)' in note
    assert f'read_handle(handle="{HANDLE}", match="text")' in note
    assert note.count(". ") == 0  # one sentence
    prefixed = build_stub(HANDLE, content, SpillPolicy(verb_prefix="sp_")).note
    assert prefixed == note.replace("read_handle", "sp_read_handle")
    without = build_stub(HANDLE, content, SpillPolicy(verbs=frozenset())).note
    assert not any(verb in without for verb in OWN_VERBS - {"read", "head"})
    assert HANDLE not in without


def test_a_stub_says_that_the_tool_had_cut_the_output() -> None:  # C23
    assert "already cut" in build_stub(HANDLE, read_content(LARGE), SpillPolicy(), already_truncated=True).preview


@pytest.mark.parametrize(("size", "spill"), [(99, False), (12_800, True), (50_000_000, True)])
def test_bytes_decide_about_tokens_where_they_can_without_a_count(size: int, spill: bool) -> None:
    def counted(text: str, stop_at: int) -> int:
        pytest.fail("counted")

    policy = SpillPolicy(tool_thresholds={"*": 100}, count_tokens=counted, stub_must_be_smaller=False)
    assert should_spill(Observation("x" * size, tool="t"), policy).spill is spill
