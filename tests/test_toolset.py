"""The exploration and artifact verbs as a model calls them: cap, budget, suggestions, footers, usage."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from scratch import ContextBudget, InvalidArgument, RunScratch, ScratchpadUsage, ScratchStore
from scratch.tools import Toolset
from tests.support import Clock, query

ROWS = [{"id": n, "name": f"row {n}", "body": "x" * 300, "log": f"a\nb {n}\nc"} for n in range(2_000)]
LOG = "".join(f"2026-11-29 {'ERROR' if n % 400 == 7 else 'INFO'} line {n}\n" for n in range(5_000))
NEEDED: dict[str, dict[str, Any]] = {
    "slice": {"start": 1, "end": 3},
    "grep": {"pattern": "b"},
    "get_in": {"path": "$"},
    "item_schema": {"path": "$"},
    "iterate_over": {"path": "$", "fields": ["id"]},
}
EXPLORING = ["head", "slice", "grep", "schema", "item_schema", "get_in", "iterate_over", "read"]


@pytest.fixture
def budget() -> ContextBudget:
    return ContextBudget(100_000)


@pytest.fixture
def tools(run: RunScratch, budget: ContextBudget) -> Toolset:
    return Toolset(run, budget=budget)


async def spilled(tools: Toolset, content: object) -> str:
    captured = await tools.capture(query(content))
    assert captured.handle is not None
    return captured.handle


async def refused(tools: Toolset, name: str, **arguments: Any) -> Any:
    answer = await tools.call(name, arguments)
    assert answer.is_error
    return json.loads(answer)


async def shown(tools: Toolset, name: str, **arguments: Any) -> str:
    answer = await tools.call(name, arguments)
    assert not answer.is_error, answer
    return answer


# --- footers, cap and budget


async def test_a_footer_says_what_was_covered_what_it_cost_and_what_is_left(
    tools: Toolset, budget: ContextBudget
) -> None:
    handle = await spilled(tools, ROWS)
    before = budget.used
    answer = await shown(tools, "iterate_over", handle=handle, path="$", fields=["id", "name"], offset=3, limit=4)
    body, footer = answer.rsplit("\n", 1)
    assert [json.loads(line)["_index"] for line in body.split("\n")] == [3, 4, 5, 6]
    found = re.fullmatch(
        r"iterate_over: \$ \(items \[3\.\.7\) of 2,000 total, fields: \[id,name\]\) \| ~(\d+) tokens, "
        r"~([\d,]+) of ~80,000 left",
        footer,
    )
    assert found is not None
    assert budget.used - before == int(found[1])
    assert budget.remaining == int(found[2].replace(",", ""))


async def test_a_full_scan_says_how_many_items(tools: Toolset) -> None:
    handle = await spilled(tools, ROWS[:120])
    assert "iterate_over: $ (120 items, fields: [id])" in await shown(
        tools, "iterate_over", handle=handle, path="$", fields=["id"]
    )


async def test_what_is_too_large_is_refused_with_calls_that_fit(tools: Toolset) -> None:  # C11
    handle = await spilled(tools, ROWS)
    error = await refused(tools, "iterate_over", handle=handle, path="$", fields=["id", "name", "body"])
    assert error["error"] == "iterate_over_too_large"
    assert error["estimated_tokens"] > error["per_call_limit"] == 10_000
    first = error["suggestions"][0]
    assert (first["tool"], first["arguments"]["offset"]) == ("iterate_over", 0)
    assert first["arguments"]["fields"] == ["id", "name", "body"]
    assert 0 < first["arguments"]["limit"] < 2_000
    assert len(error["suggestions"]) > 1
    for call in error["suggestions"]:
        await shown(tools, call["tool"], **call["arguments"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("head", {"lines": 5_000}),
        ("slice", {"start": 1, "end": 5_000}),
        ("grep", {"pattern": "line", "max_matches": 5_000}),
        ("read", {}),
    ],
)
async def test_every_tool_on_lines_that_is_too_large_says_what_fits(
    tools: Toolset, name: str, arguments: dict[str, Any]
) -> None:
    handle = await spilled(tools, LOG)
    error = await refused(tools, name, handle=handle, **arguments)
    assert error["error"] == f"{name}_too_large"
    assert error["suggestions"]
    for call in error["suggestions"]:
        await shown(tools, call["tool"], **call["arguments"])


async def test_a_window_under_another_verb_is_capped_too(run: RunScratch) -> None:
    tools = Toolset(run, max_extraction_tokens=1_000)
    handle = await spilled(tools, LOG)
    error = await refused(tools, "read_handle", handle=handle, length=32_768)
    assert error["error"] == "read_handle_too_large"
    window = json.loads(await shown(tools, "read_handle", **error["suggestions"][0]["arguments"]))
    assert window["offset"] == 0


async def test_over_the_budget_the_error_says_what_is_left(run: RunScratch) -> None:
    budget = ContextBudget(1_000)
    tools = Toolset(run, budget=budget)
    handle = await spilled(tools, LOG)
    error = await refused(tools, "head", handle=handle, lines=200)
    assert error["error"] == "head_too_large"
    assert 0 < error["remaining_budget_tokens"] < 800
    assert "per_call_limit" not in error
    budget.record_usage(100, 0)  # the model's own report counts from now on
    assert "lines [1..21) of 5,000" in await shown(tools, "head", handle=handle, lines=20)


@pytest.mark.parametrize("window", [300, 700, 1_200, 2_000, 3_500, 8_000, 20_000])
async def test_what_a_refusal_suggests_fits_into_what_the_refusal_leaves(run: RunScratch, window: int) -> None:
    budget = ContextBudget(window)
    tools = Toolset(run, budget=budget)
    handle = await spilled(tools, [{"id": n, "Title": f"film {n}"} for n in range(3_000)])
    budget.record_usage(0, 0)
    error = await refused(tools, "iterate_over", handle=handle, path="$", fields=["Title"])
    assert error["remaining_budget_tokens"] <= budget.usable
    left = budget.remaining
    for call in error["suggestions"]:
        budget.record_usage(budget.usable - left, 0)
        await shown(tools, call["tool"], **call["arguments"])
    if window >= 1_200:
        assert error["suggestions"]


async def test_parallel_calls_share_one_budget_and_never_overdraw_it(run: RunScratch) -> None:
    budget = ContextBudget(10_000)
    tools = Toolset(run, budget=budget)
    handle = await spilled(tools, LOG)
    answers = await asyncio.gather(*(tools.call("head", {"handle": handle, "lines": 300}) for _ in range(20)))
    fitting = [answer for answer in answers if not answer.is_error]
    assert 0 < len(fitting) < 20
    assert sum(len(answer) // 4 for answer in fitting) <= budget.usable


async def test_errors_and_stubs_are_charged(tools: Toolset, budget: ContextBudget) -> None:
    handle = await spilled(tools, LOG)
    after_stub = budget.used
    assert after_stub > 0
    await refused(tools, "get_in", handle=handle, path="$")
    assert budget.used > after_stub


async def test_what_was_written_is_told_whatever_is_left(run: RunScratch) -> None:
    tools = Toolset(run, budget=ContextBudget(1))
    assert json.loads(await shown(tools, "scratch_write", key="k", value="v"))["written"]
    assert (await run.read("k")).text == "v"


# --- errors


async def test_an_unknown_handle_is_answered_alike_by_every_tool(
    tools: Toolset, clock: Clock
) -> None:  # C86, C103, C119
    gone = await spilled(tools, LOG)
    clock.advance(4_000)
    live = await spilled(tools, ROWS)
    for name in EXPLORING:
        for handle in (gone, "r_222222222222", "no handle", "\ud800", "../etc", "x" * 1_000):
            error = await refused(tools, name, handle=handle, **NEEDED.get(name, {}))
            assert error["error"] == "handle_not_found"
            assert "run the tool again, do not retry" in error["message"]
            assert [one["handle"] for one in error["live_handles"]] == [live]


async def test_a_foreign_handle_is_answered_like_an_unknown_one(store: ScratchStore, tools: Toolset) -> None:  # C87
    other = await store.run("run-42", agent_id="other")
    theirs = (await other.capture(query(LOG))).handle
    error = await refused(tools, "head", handle=theirs)
    assert error["error"] == "handle_not_found"
    assert "other" not in json.dumps(error)


async def test_a_path_that_is_not_there_says_what_is(tools: Toolset) -> None:
    handle = await spilled(tools, {"results": ROWS, "total": 2_000})
    error = await refused(tools, "get_in", handle=handle, path="$.resuls[0].id")
    assert error["error"] == "key_path_not_found"
    assert (error["requested_path"], error["failed_segment"], error["valid_prefix"]) == (
        "$.resuls[0].id",
        "resuls",
        "$",
    )
    assert error["available_keys"][0] == "results"
    for call in error["suggestions"]:
        await shown(tools, call["tool"], **call["arguments"])


async def test_a_bad_pattern_is_never_a_silent_literal_search(tools: Toolset) -> None:
    handle = await spilled(tools, LOG + "f(x)\n")
    error = await refused(tools, "grep", handle=handle, pattern="f(x")
    assert error["error"] == "bad_pattern"
    (call,) = error["suggestions"]
    assert call["arguments"]["literal"] is True
    assert ">5001\tf(x)" in await shown(tools, call["tool"], **call["arguments"])


@pytest.mark.parametrize("pattern", ["(a|a)*b", "(a+)+$", "(a|a)*$"])
async def test_no_pattern_of_any_verb_can_hang(tools: Toolset, pattern: str) -> None:  # C74, C76, C77, C78
    handle = await spilled(tools, ("a" * 40 + "c\n") * 300 + "a" * 10_000 + " \n")
    answer = await tools.call("grep", {"handle": handle, "pattern": pattern, "max_matches": 3})
    assert "grep: " in answer or json.loads(answer)["error"] == "grep_too_large"
    literal = await tools.call("read_handle", {"handle": handle, "match": pattern})
    assert json.loads(literal)["total_matches"] == 0


@pytest.mark.parametrize("wrong", [True, 1.0, "3", -1, [1], 2**63, "３"])
async def test_integers_are_strict(tools: Toolset, wrong: object) -> None:  # C153
    handle = await spilled(tools, LOG)
    error = await refused(tools, "head", handle=handle, lines=wrong)
    assert error["error"] == "invalid_argument"


async def test_an_unknown_argument_lists_the_known_ones(tools: Toolset) -> None:
    handle = await spilled(tools, LOG)
    error = await refused(tools, "head", handle=handle, n=5)
    assert (error["error"], error["known"]) == ("invalid_argument", ["handle", "lines", "path"])


# --- the contents that break others


async def test_a_hit_in_one_giant_line_can_be_opened(tools: Toolset) -> None:  # C10, C13
    handle = await spilled(tools, "é" * 300_000 + "NEEDLE" + "b" * 60_000)
    answer = await shown(tools, "grep", handle=handle, pattern="NEEDLE")
    (offset,) = re.findall(r"\[byte (\d+)\]", answer)
    window = json.loads(await shown(tools, "read_handle", handle=handle, offset=int(offset), length=6))
    assert window["text"] == "NEEDLE"
    cut = await shown(tools, "head", handle=handle)
    (onward,) = re.findall(r"read_handle\(offset=(\d+)\)", cut)
    window = json.loads(await shown(tools, "read_handle", handle=handle, offset=int(onward), length=4))
    assert (window["offset"], window["text"]) == (int(onward), "éé")


async def test_the_lines_of_a_string_in_json_are_lines(tools: Toolset) -> None:  # C16
    lines = "".join(f"line {n} ü{' needle' if n == 3_000 else ''}\n" for n in range(5_000))
    handle = await spilled(tools, {"meta": {"log": lines}})
    assert "3\tline 2 ü" in await shown(tools, "slice", handle=handle, start=3, end=3, path="$.meta.log")
    answer = await shown(tools, "grep", handle=handle, pattern="needle", path="$.meta.log", context=0)
    assert ">3001\tline 3000 ü needle" in answer
    (offset,) = re.findall(r"\[byte (\d+)\]", answer)
    window = json.loads(await shown(tools, "read_handle", handle=handle, offset=int(offset), length=6))
    assert window["text"] == "needle"


async def test_a_path_goes_on_through_a_string_that_holds_json(tools: Toolset) -> None:  # C18, C59
    blocks = [{"type": "text", "text": json.dumps({"items": [{"id": 7, "name": "Zürich"}] * 500})}]
    handle = await spilled(tools, blocks)
    answer = await shown(tools, "get_in", handle=handle, path="$[0].text.items[3].name")
    assert "Zürich" in answer
    assert "string" in answer.rsplit("\n", 1)[1]


@pytest.mark.parametrize(
    "content",
    [
        "a\r\nb\x0cc\u2028d\n" * 2_000,
        "a\ud835b\n" * 5_000,
        "a\0b\n" * 5_000,
        "\n" * 20_000,
        "x" * 20_000,
        "日本語\n" * 5_000,
    ],
)
async def test_no_text_breaks_a_tool(tools: Toolset, content: str) -> None:  # C60, C61, C63, C72
    handle = await spilled(tools, content)
    for name in EXPLORING:
        answer = await tools.call(name, {"handle": handle, **NEEDED.get(name, {})})
        answer.encode()
        assert "internal_error" not in answer
    grep = await shown(tools, "grep", handle=handle, pattern="no such text")
    assert "no match" in grep.lower() or "0 matches" in grep


async def test_bytes_that_are_no_text_are_said_to_be_none(tools: Toolset) -> None:  # C58
    handle = await spilled(tools, bytes(range(256)) * 100)
    error = await refused(tools, "read", handle=handle)
    assert error["suggestions"][0]["tool"] == "read_handle"
    for name in ("head", "schema"):
        (await shown(tools, name, handle=handle)).encode()


@pytest.mark.parametrize(
    ("content", "where", "value"),
    [
        ('[NaN, 123456789012345678901234567890, {"a.b": {"[0]": 1}}]' + " " * 9_000, "$[0]", "NaN"),
        ("[NaN, 123456789012345678901234567890, 1.10]" + " " * 9_000, "[-2]", "123456789012345678901234567890"),
        ("[1, 2, 1.10]" + " " * 9_000, "2", "1.10"),
        ('{"a.b": {"[0]": "x\\"y"}}' + " " * 9_000, '["a.b"]["[0]"]', 'x"y'),
        ('\ufeff{"7": {"0": "seven"}}' + " " * 9_000, "7.0", "seven"),
        ('{"a": 1, "a": 2}' + " " * 9_000, "a", "2"),
        ('{"id": 1}\n{"id": 2}\n' + '{"id": 3}\n' * 2_000, "$[1].id", "2"),
    ],
)
async def test_json_of_any_shape_is_read(tools: Toolset, content: str, where: str, value: str) -> None:
    handle = await spilled(tools, content)
    body = (await shown(tools, "get_in", handle=handle, path=where)).rsplit("\n", 1)[0]
    assert body in (value, f"1\t{value}")


async def test_json_that_is_too_deep_is_refused_in_words(tools: Toolset) -> None:
    handle = await spilled(tools, "[" * 10_000 + "]" * 10_000)
    for name, more in (("schema", {}), ("get_in", {"path": "$"}), ("item_schema", {"path": "$"})):
        answer = await tools.call(name, {"handle": handle, **more})
        assert "deep" in answer
    assert (await refused(tools, "get_in", handle=handle, path="$"))["error"] == "not_json"


# --- the set


def test_the_prompt_names_only_what_is_in_the_set(run: RunScratch) -> None:
    every = Toolset(run, prefix="sp_")
    assert all(f"sp_{verb.name}" in every.prompt() for verb in every.verbs)
    few = Toolset(run, groups=[], prefix="sp_")
    assert set(re.findall(r"sp_\w+", few.prompt())) == {"sp_read_handle"}


async def test_a_prefix_stands_before_every_name_that_is_told(run: RunScratch) -> None:  # C21
    tools = Toolset(run, prefix="sp_", groups=["explore"])
    handle = await spilled(tools, LOG)
    error = await refused(tools, "sp_head", handle=handle, lines=5_000)
    assert error["suggestions"]
    assert all(call["tool"].startswith("sp_") for call in error["suggestions"])
    assert "sp_read_handle(" in (await tools.capture(query(LOG))).text
    long = await spilled(tools, [{"id": 1, "body": "x" * 20_000}])
    assert re.search(
        r"\[cut: the line goes on at byte 2000: sp_read_handle\(offset=2000\)\]",
        await shown(tools, "sp_head", handle=long),
    )
    row = await shown(tools, "sp_iterate_over", handle=long, path="$", fields=["body"])
    assert "[cut: sp_get_in(path=" in row


async def test_suggestions_name_only_tools_of_the_set(run: RunScratch) -> None:
    tools = Toolset(run, groups=[], max_extraction_tokens=500)
    handle = await spilled(tools, LOG)
    error = await refused(tools, "read_handle", handle=handle, length=8_000)
    assert {call["tool"] for call in error["suggestions"]} == {"read_handle"}
    assert (await refused(tools, "head", handle=handle))["error"] == "invalid_argument"


def test_a_cap_below_one_is_refused(run: RunScratch) -> None:
    with pytest.raises(InvalidArgument):
        Toolset(run, max_extraction_tokens=0)


# --- usage


async def test_usage_is_counted_and_reported_when_the_scope_closes(path: Path, clock: Clock) -> None:
    told: list[ScratchpadUsage] = []
    async with ScratchStore.open(path, clock=clock, on_usage=told.append) as store:
        run = await store.run("run-42", agent_id="a")
        quiet = await store.run("run-42", agent_id="quiet")
        tools = Toolset(run)
        handle = await spilled(tools, LOG)
        answer = await shown(tools, "head", handle=handle, lines=5)
        assert run.usage.tokens_intercepted > 10_000
        assert (run.usage.spills, run.usage.calls) == (1, 1)
        assert 0 < run.usage.tokens_extracted <= len(answer)
        quiet.close()
        assert told == []
        run.close()
        run.close()
        (usage,) = told
        assert (usage.agent_id, usage.run_id, usage.spills) == ("a", "run-42", 1)
        await quiet.capture(query(LOG))
    assert [usage.agent_id for usage in told] == ["a", "quiet"]
    assert told[0].to_sse().startswith("event: aura.scratchpad_usage\ndata: {")


async def test_a_callback_that_fails_harms_nobody(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(usage: ScratchpadUsage) -> None:
        raise ZeroDivisionError

    async with ScratchStore.open(path, on_usage=broken) as store:
        run = await store.run("run-42", agent_id="a")
        await run.capture(query(LOG))
        await store.complete_run("run-42")
    assert [record.getMessage() for record in caplog.records] == ["on_usage failed for run 'run-42', agent 'a'"]


# --- artifacts


async def test_a_small_artifact_is_inlined_and_a_large_one_is_a_pointer_that_works(
    store: ScratchStore, tools: Toolset, budget: ContextBudget
) -> None:
    written = json.loads(await shown(tools, "write_artifact", filename="Verified Literals.JSON", content="[1]"))
    assert written == {
        "written": True,
        "filename": "coordinator-verified-literals.json",
        "replaced": False,
        "chars": 3,
    }
    worker = Toolset(await store.run("run-42", agent_id="worker"), budget=budget)
    answer = await shown(worker, "read_artifact", filename="coordinator-verified-literals.json")
    assert answer.startswith("[1]\nread_artifact: coordinator-verified-literals.json (all 3 bytes)")
    await shown(tools, "write_artifact", filename="rows.json", content=json.dumps(ROWS))
    pointer = json.loads(await shown(worker, "read_artifact", filename="coordinator-rows.json"))
    assert (pointer["found"], pointer["inlined"], pointer["format"], pointer["lines"]) == (True, False, "json", 1)
    assert pointer["calls"][0] == {"tool": "schema", "handle": "coordinator-rows.json"}
    for call in pointer["calls"]:
        more: dict[str, dict[str, Any]] = {"get_in": {"path": "$[0].id"}}
        more["iterate_over"] = {"path": "$", "fields": ["id"], "limit": 3}
        await shown(worker, call["tool"], handle=call["handle"], **(NEEDED | more).get(call["tool"], {}))


async def test_who_has_no_tools_gets_an_artifact_whole_or_cut_with_a_notice(run: RunScratch) -> None:
    await Toolset(run).call("write_artifact", {"filename": "log.txt", "content": LOG})
    coordinator = Toolset(run, groups=["artifacts"], budget=ContextBudget(100))
    assert (await shown(coordinator, "read_artifact", filename="coordinator-log.txt")).startswith(LOG)
    capped = Toolset(run, groups=["artifacts"], inline_bytes=100)
    answer = await shown(capped, "read_artifact", filename="coordinator-log.txt")
    assert answer.startswith(LOG[:100])
    assert f"[cut: the first 100 of {len(LOG):,} bytes]" in answer


async def test_a_large_artifact_with_odd_characters_is_inlined_whole(run: RunScratch) -> None:
    content = "a" + "\ud835😀é" * 300_000  # the pieces it is read in end inside characters
    await Toolset(run).call("write_artifact", {"filename": "odd.txt", "content": content})
    coordinator = Toolset(run, groups=["artifacts"])
    answer = await shown(coordinator, "read_artifact", filename="coordinator-odd.txt")
    assert answer.rsplit("\n", 1)[0] == content.replace("\ud835", "\\ud835")


async def test_an_artifact_that_is_not_there_says_which_are(tools: Toolset) -> None:
    await tools.call("write_artifact", {"filename": "plan.md", "content": "x"})
    await tools.call("write_artifact", {"filename": "other.md", "content": "x"})
    answer = json.loads(await shown(tools, "read_artifact", filename="coordinator-plam.md"))
    assert answer["found"] is False
    assert answer["available"] == ["coordinator-plan.md", "coordinator-other.md"]


# --- found by an adversary


@pytest.mark.parametrize("empty", ["[]", '{"results": []}', "{}", '{"results": {}}', '""', "null"])
async def test_what_is_empty_is_shown_as_empty(tools: Toolset, empty: str) -> None:
    await tools.call("write_artifact", {"filename": "e.json", "content": empty})
    path = "$.results" if "results" in empty else "$"
    for more in ({}, {"offset": 0}, {"offset": 5, "limit": 5}, {"limit": 1}):
        answer = await shown(tools, "get_in", handle="coordinator-e.json", path=path, **more)
        assert answer.startswith(("[]", "{}", "null", "get_in: "))
    for name in ("schema", "head", "read"):
        await shown(tools, name, handle="coordinator-e.json")


@pytest.mark.parametrize("key", ["\x01" * 198, "日本語" * 60, "k" * 200])
async def test_no_error_is_long(tools: Toolset, key: str) -> None:
    handle = await spilled(tools, {f"{key}{n}": [n] * 300 for n in range(80)})
    rows = await spilled(tools, [{"a": "x" * 300, "b": n} for n in range(5_000)])
    fields = ["a", *(f"{n}{key}" for n in range(40))]
    for name, arguments in (
        ("get_in", {"handle": handle, "path": "nope"}),
        ("iterate_over", {"handle": handle, "path": "$", "fields": ["日" * 1_000] * 8}),
        ("iterate_over", {"handle": rows, "path": "$", "fields": fields}),
        ("grep", {"handle": handle, "pattern": f"({key}"}),
        (key, {}),
        ("head", {key * 10: 1}),
    ):
        answer = await tools.call(name, arguments)
        assert answer.is_error
        assert len(answer) / 4 < 1_100
        assert json.loads(answer)["error"]


async def test_names_of_fields_cannot_break_an_answer(tools: Toolset) -> None:
    handle = await spilled(tools, [{"_index": "logs", "_id": n, "x\ny": 1, "o": "é" * 20} for n in range(300)])
    answer = await shown(
        tools, "iterate_over", handle=handle, path="$", fields=["_index", "_id", "a\ud800", "x\ny"], limit=2
    )
    answer.encode()
    first, second, footer = answer.split("\n")
    assert json.loads(first) == {"_index": 0, "$._index": "logs", "_id": 0, "x\ny": 1}
    assert json.loads(second)["_index"] == 1
    assert footer.startswith("iterate_over: $ (items [0..2) of 300 total")


async def test_calls_that_come_at_once_load_a_content_once(tools: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await spilled(tools, LOG)
    pieces = RunScratch.pieces
    loads: list[str] = []

    def counted(run: RunScratch, info: Any) -> Any:
        loads.append(info.key)
        return pieces(run, info)

    monkeypatch.setattr(RunScratch, "pieces", counted)
    answers = await asyncio.gather(*(tools.call("head", {"handle": handle, "lines": n}) for n in range(1, 9)))
    assert not any(answer.is_error for answer in answers)
    assert loads == [handle]


async def test_a_key_that_is_spelt_in_two_ways_is_one_key(tools: Toolset) -> None:
    handle = await spilled(tools, '[{"a": 1, "\\u0061": 2}, {"a": "x"}]' + " " * 9_000)
    answer = await shown(tools, "item_schema", handle=handle, path="$")
    assert answer.split("\n")[0].startswith("a: ")
    assert "in 2 of 2" in answer.split("\n")[0]
