"""The verbs as a model calls them: text always, an exception never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratch import Captured, InvalidArgument, Observation, OwnText, RunScratch, ScratchStore
from scratch.tools import GROUPS, VERBS, Toolset
from tests.support import Clock, query


@pytest.fixture
def tools(run: RunScratch) -> Toolset:
    return Toolset(run)


async def call(tools: Toolset, name: str, **arguments: object) -> Any:
    text = await tools.call(name, arguments)
    assert type(text) is OwnText
    text.encode()  # whatever is in it, a client can send it
    return json.loads(text)


async def test_a_note_is_written_read_listed_and_deleted(tools: Toolset) -> None:
    assert await call(tools, "scratch_write", key="plan", value="one") == {"written": True, "key": "plan", "version": 1}
    assert (await call(tools, "scratch_write", key="plan", value=" two", append=True))["version"] == 2
    read = await call(tools, "scratch_read", key="plan")
    assert (read["text"], read["version"], read["eof"], read["next_offset"]) == ("one two", 2, True, None)
    listed = await call(tools, "scratch_list")
    assert listed["notes"] == [{"key": "plan", "size": 7, "version": 2, "preview": "one two"}]
    assert (await call(tools, "scratch_delete", key="plan"))["deleted"] is True
    assert (await call(tools, "scratch_list"))["notes"] == []


async def test_a_long_note_is_read_in_pieces_that_add_up(tools: Toolset) -> None:
    value = "日本語" * 20_000
    await call(tools, "scratch_write", key="long", value=value)
    text, offset = "", 0
    while offset is not None:
        piece = await call(tools, "scratch_read", key="long", offset=offset)
        text += piece["text"]
        offset = piece["next_offset"]
    assert text == value


async def test_a_stored_result_is_read_by_range_and_by_match(tools: Toolset) -> None:
    captured = await tools.capture(query("a" * 60_000 + "NEEDLE" + "b" * 60_000))  # C13
    found = await call(tools, "read_handle", handle=captured.handle, match="needle", ignore_case=True)
    offset = found["windows"][0]["matches"][0]
    window = await call(tools, "read_handle", handle=captured.handle, offset=offset, length=6)
    assert window["text"] == "NEEDLE"


async def test_a_stub_names_only_what_is_registered_under_its_prefix(run: RunScratch) -> None:  # C21
    tools = Toolset(run, groups=(), prefix="rs_")
    note = json.loads((await tools.capture(query("x" * 10_000))).text)["note"]
    assert "rs_read_handle(" in note
    assert {verb.name for verb in tools.verbs} == {"read_handle"}
    assert (await call(tools, "scratch_write", key="a", value="b"))["error"] == "invalid_argument"


async def test_own_results_under_any_tool_name_are_not_spilled_again(tools: Toolset) -> None:  # C19, C20
    captured = await tools.capture(query("x" * 100_000))
    text = await tools.call("read_handle", {"handle": captured.handle, "length": 32_768})
    assert len(text) > 32_768
    again = await tools.capture(Observation(content=text, tool="use_skill", tool_class="query"))
    assert (again.text, again.handle, again.decision.reason) == (text, None, "own_result")
    by_name = await tools.capture(Observation(content=str(text), tool="read_handle", tool_class="query"))
    assert by_name.decision.reason == "internal_verb"


async def test_under_a_prefix_own_verbs_are_known_by_name_too(run: RunScratch) -> None:
    tools = Toolset(run, prefix="rs_")
    kept = await tools.capture(Observation(content="x" * 10_000, tool="rs_grep", tool_class="query"))
    assert kept.decision.reason == "internal_verb"


async def test_an_unknown_handle_says_what_is_there(tools: Toolset, clock: Clock) -> None:  # C103
    captured = await tools.capture(query("x" * 10_000))
    refused = await call(tools, "read_handle", handle="r_222222222222")
    assert refused["error"] == "handle_not_found"
    assert "run the tool again, do not retry" in refused["message"]
    assert refused["live_handles"] == [{"handle": captured.handle, "size": 10_000, "tool": "run_query"}]
    clock.advance(3_601)
    expired = await call(tools, "read_handle", handle=captured.handle)
    assert (expired["error"], expired["live_handles"]) == ("handle_not_found", [])


async def test_a_missing_note_and_an_empty_scope_say_so_in_words(tools: Toolset) -> None:  # C51
    await call(tools, "scratch_write", key="plan", value="x")
    missing = await call(tools, "scratch_read", key="plam")
    assert (missing["error"], missing["live_keys"]) == ("note_not_found", ["plan"])
    await call(tools, "scratch_delete", key="plan")
    listed = await call(tools, "scratch_list")
    assert "there are no notes" in listed["message"]


async def test_a_percent_sign_deletes_nothing(tools: Toolset) -> None:  # C85
    await call(tools, "scratch_write", key="plan", value="x")
    refused = await call(tools, "scratch_delete", key="%")
    assert (refused["deleted"], refused["live_keys"]) == (False, ["plan"])


async def test_a_stale_version_is_a_conflict_with_the_current_one(tools: Toolset) -> None:  # C208
    await call(tools, "scratch_write", key="plan", value="one")
    await call(tools, "scratch_write", key="plan", value="two")
    refused = await call(tools, "scratch_write", key="plan", value="x", if_version=1)
    assert (refused["error"], refused["current_version"]) == ("version_conflict", 2)


@pytest.mark.parametrize("offset", [-1, True, 2.0, "3", 2**63, 10**30, [1]])  # C152, C153
async def test_a_bad_offset_is_a_returned_error(tools: Toolset, offset: object) -> None:
    captured = await tools.capture(query("x" * 10_000))
    refused = await call(tools, "read_handle", handle=captured.handle, offset=offset)
    assert (refused["error"], refused["argument"]) == ("invalid_argument", "offset")


@pytest.mark.parametrize("offset", [10_000, 10_001, 2**32 + 2, 2**63 - 1])
async def test_an_offset_at_or_past_the_end_is_empty_and_the_end(tools: Toolset, offset: int) -> None:
    captured = await tools.capture(query("x" * 10_000))
    window = await call(tools, "read_handle", handle=captured.handle, offset=offset)
    assert (window["text"], window["eof"], window["next_offset"]) == ("", True, None)


async def test_an_unknown_argument_is_refused_with_the_known_ones(tools: Toolset) -> None:
    refused = await call(tools, "scratch_read", key="a", lenght=3)
    assert (refused["error"], refused["known"]) == ("invalid_argument", ["key", "offset", "length"])
    assert (await call(tools, "scratch_read"))["argument"] == "key"


async def test_arguments_as_json_text_are_taken(tools: Toolset) -> None:
    assert "written" in await tools.call("scratch_write", '{"key":"a","value":"b"}')
    assert json.loads(await tools.call("scratch_write", "{oops"))["error"] == "invalid_argument"
    assert json.loads(await tools.call("scratch_write", "[1]"))["error"] == "invalid_argument"


async def test_lone_surrogates_come_back_in_text_that_can_be_sent(tools: Toolset) -> None:  # C63
    value = "a\ud835b" * 5_000
    captured = await tools.capture(query(value))
    captured.text.encode()
    window = await call(tools, "read_handle", handle=captured.handle, length=20)
    assert value.startswith(window["text"])


async def test_bytes_that_are_no_text_come_as_base64_and_say_so(tools: Toolset) -> None:  # C58
    captured = await tools.capture(query(bytes(range(256)) * 1000))
    window = await call(tools, "read_handle", handle=captured.handle, length=4)
    assert (window["encoding"], window["text"]) == ("base64", "AAECAw==")


async def test_a_closed_store_is_a_returned_error(path: Path) -> None:
    async with ScratchStore.open(path) as store:
        tools = Toolset(await store.run("r", agent_id="a"))
    assert (await call(tools, "scratch_list"))["error"] == "store_closed"
    captured: Captured = await tools.capture(query("x" * 10_000))
    assert (captured.text, captured.decision.reason) == ("x" * 10_000, "store_failed")


async def test_a_bug_of_our_own_is_a_returned_error(
    tools: Toolset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: RunScratch, key: str) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(RunScratch, "delete", broken)
    assert (await call(tools, "scratch_delete", key="a"))["error"] == "internal_error"
    assert caplog.records[0].exc_info is not None


def test_an_unknown_group_is_refused(run: RunScratch) -> None:
    with pytest.raises(InvalidArgument, match="'explor'"):
        Toolset(run, groups=["explor"])  # type: ignore[list-item]


@pytest.mark.parametrize("client", ["openai", "anthropic", "mcp"])
def test_definitions_have_the_form_that_each_client_takes(tools: Toolset, client: Any) -> None:
    definitions = tools.definitions(client)
    assert len(definitions) == len(VERBS)
    first: Any = definitions[0]
    if client == "openai":
        assert first["type"] == "function"
        first = first["function"]
    schema = first[{"openai": "parameters", "anthropic": "input_schema", "mcp": "inputSchema"}[client]]
    assert first["name"] == "read_handle"
    assert schema["required"] == ["handle"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["length"] == {
        "type": "integer",
        "description": "Bytes to read.",
        "default": 4096,
        "minimum": 1,
        "maximum": 32768,
    }


def test_every_group_is_used() -> None:
    assert {verb.group for verb in VERBS} - {None} == GROUPS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=5,
)
NAMES = sorted({p.name for verb in VERBS for p in verb.parameters})


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    verb=st.sampled_from([verb.name for verb in VERBS]) | st.text(max_size=5),
    arguments=st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), JSON, max_size=6) | JSON,
)
async def test_no_call_of_any_kind_raises(tools: Toolset, verb: str, arguments: object) -> None:
    text = await tools.call(verb, arguments)
    text.encode()
    assert not text.is_error or "error" in json.loads(text)
    assert "internal_error" not in text
