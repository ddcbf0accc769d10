"""capture: what goes into the context, what is stored, and that it never fails a turn."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scratch import (
    Captured,
    EntryInfo,
    HandleNotFound,
    InvalidArgument,
    Kind,
    LimitExceeded,
    Observation,
    OwnText,
    RunNotFound,
    RunScratch,
    ScratchStore,
    SpillPolicy,
    StoreClosed,
    capturing,
)
from scratch import run as run_module
from scratch import spill as spill_module
from scratch.content import read_content
from scratch.database import Database
from scratch.entries import looks_like_handle
from tests.support import Clock, query, read_back

LARGE = "".join(f"line {number}\n" for number in range(2_000))


def handle_of(captured: Captured) -> str:
    assert captured.handle is not None
    return captured.handle


def logged_error(caplog: pytest.LogCaptureFixture) -> BaseException:
    """The exception of the one error that was logged."""
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.name == "scratch"
    assert record.exc_info is not None
    assert record.exc_info[1] is not None
    return record.exc_info[1]


# --- spilling and keeping


async def test_a_large_result_is_stored_whole_and_a_stub_stands_in_its_place(run: RunScratch) -> None:
    observation = query(LARGE)
    captured = await run.capture(observation)
    stub = json.loads(captured.text)
    assert list(stub) == ["handle", "preview", "size", "note"]
    assert stub["handle"] == captured.handle
    assert stub["size"] == len(LARGE)
    assert len(captured.text) < len(LARGE)
    assert captured.decision.spill
    assert captured.decision.reason == "over_threshold"
    assert captured.observation is observation
    assert await read_back(run, handle_of(captured)) == LARGE.encode()


async def test_a_handle_is_short_and_looks_like_one(run: RunScratch) -> None:
    handles = {handle_of(await run.capture(query(LARGE))) for _ in range(20)}
    assert len(handles) == 20
    assert all(looks_like_handle(handle) and len(handle) <= 32 for handle in handles)


async def test_what_is_kept_is_given_back_as_it_is_and_nothing_is_stored(store: ScratchStore, run: RunScratch) -> None:
    for content in ("short", "lone \ud835 surrogate", "", LARGE):
        captured = await run.capture(Observation(content=content, tool="t", tool_class="effect"))
        assert captured.text is content
        assert captured.handle is None
        assert captured.decision.reason == "tool_class"
    assert (await run.capture(query(b"\xff\x00"))).text == "/wA="
    assert (await run.capture(query("Zürich".encode()))).text == "Zürich"
    assert (await run.capture(query({"city": "Zürich"}))).text == '{"city": "Zürich"}'
    assert await store.list_scratch_entries_for_run("run-42") == []


values: st.SearchStrategy[Any] = st.one_of(
    st.text(st.one_of(st.characters(), st.sampled_from("\r\n\x00日😀\ud835")), max_size=200),
    st.binary(max_size=200),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=60)),
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=9), inner, max_size=5)),
        max_leaves=20,
    ),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values)
@example("a\ud835b" * 5_000)  # C63
@example(b"\xb2".decode("utf-8", "surrogateescape") * 9_000)  # C65
@example(bytes(range(256)) * 1_000)  # C58
@example("a\r\nb\rc\x00\x0c\u2028\n" * 2_000)  # C61
@example([{"type": "text", "text": "x" * 9_000}, {"type": "image", "data": "eA=="}])  # C59
@example(json.dumps([{"id": number} for number in range(9_000)]))  # C11
async def test_whatever_is_captured_can_be_read_back(store: ScratchStore, value: Any) -> None:
    run = await store.run("all", agent_id="a")
    run = run.with_policy(SpillPolicy(tool_thresholds={"*": 0}, stub_must_be_smaller=False))
    captured = await run.capture(query(value))
    if isinstance(value, bytes):
        stored = value
    elif isinstance(value, str):
        stored = value.encode("utf-8", "surrogatepass")
    else:
        stored = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert await read_back(run, handle_of(captured)) == stored
    assert json.loads(captured.text.encode())["size"] == len(stored)
    await run.delete(handle_of(captured))


async def test_what_is_stored_says_where_it_comes_from(run: RunScratch, clock: Clock) -> None:
    captured = await run.capture(query(LARGE), ttl=60)
    (info,) = await run.list(kind=Kind.HANDLE)
    assert isinstance(info, EntryInfo)
    assert (info.key, info.size, info.media_type) == (captured.handle, len(LARGE), "text/plain")
    assert (info.source_tool, info.version, info.kind) == ("run_query", 1, Kind.HANDLE)
    assert info.preview == json.loads(captured.text)["preview"]
    assert info.tokens is not None
    assert len(LARGE) / 5 < info.tokens < len(LARGE) / 3
    assert info.created_at == clock.now * 1_000
    assert info.expires_at == (clock.now + 60) * 1_000


async def test_bytes_that_are_no_text_have_no_token_count(run: RunScratch) -> None:
    await run.capture(query(b"\xff" * 9_000))
    (info,) = await run.list(kind=Kind.HANDLE)
    assert (info.tokens, info.media_type, info.preview[:7]) == (None, "application/octet-stream", "[binary")


@pytest.mark.parametrize(
    ("life", "seconds"),
    [
        ({}, 3_600),
        ({"ttl": 1.5}, 1.5),
        ({"ttl": timedelta(minutes=2)}, 120),
        ({"expires_at": datetime.fromtimestamp(1_800_000_000 + 90, UTC)}, 90),
    ],
)
async def test_it_lives_as_long_as_told(run: RunScratch, clock: Clock, life: Any, seconds: float) -> None:
    handle = handle_of(await run.capture(query(LARGE), **life))
    clock.advance(seconds - 0.002)
    assert (await run.read_handle(handle, length=6)).text == "line 0"
    clock.advance(0.004)
    with pytest.raises(HandleNotFound):
        await run.read_handle(handle)


@pytest.mark.parametrize(
    "life", [{"ttl": 0}, {"ttl": -1}, {"ttl": "1"}, {"ttl": True}, {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}]
)
async def test_a_bad_life_is_the_callers_fault_and_said(run: RunScratch, life: Any) -> None:
    with pytest.raises(InvalidArgument):
        await run.capture(query(LARGE), **life)


@pytest.mark.parametrize("value", [LARGE, None, {"content": LARGE}])
async def test_only_an_observation_is_captured(run: RunScratch, value: Any) -> None:
    with pytest.raises(InvalidArgument, match="Observation"):
        await run.capture(value)


# --- ids of calls


@pytest.mark.parametrize("call_id", [None, "", "call_0", "call_1__thought__" + "A" * 1_400])
async def test_one_call_id_twice_gives_two_handles_that_read_their_own_text(  # C27, C28, C30
    run: RunScratch, call_id: str | None
) -> None:
    first = await run.capture(replace(query("first " * 2_000), call_id=call_id))
    second = await run.capture(replace(query("second " * 2_000), call_id=call_id))
    assert first.handle != second.handle
    assert await read_back(run, handle_of(first)) == b"first " * 2_000
    assert await read_back(run, handle_of(second)) == b"second " * 2_000
    assert call_id is None or len(call_id) < 20 or call_id[:20] not in first.text


async def test_results_that_come_at_once_under_one_id_are_all_stored(store: ScratchStore, run: RunScratch) -> None:
    texts = [f"{number} " * 9_000 for number in range(8)]  # C32, C33
    captured = await asyncio.gather(*[run.capture(replace(query(text), call_id="call_0")) for text in texts])
    for one, text in zip(captured, texts, strict=True):
        assert await read_back(run, handle_of(one)) == text.encode()
    assert len(await store.list_scratch_entries_for_run("run-42")) == 8


# --- our own results


async def test_what_was_read_from_the_store_is_not_stored_again(run: RunScratch) -> None:  # C10, C19, C20
    captured = await run.capture(query("x" * 20_000 + "\n" + "y" * 20_000))
    window = await run.read_handle(handle_of(captured), length=32_768)
    matches = await run.read_handle(handle_of(captured), match="x", context=4_096)
    for own, text in (
        (window, window.to_json()),
        (matches, matches.to_json()),
        (OwnText(window.to_json()), window.to_json()),
    ):
        again = await run.capture(query(own, tool="use_skill"))
        assert again.text == text
        assert type(again.text) is str
        assert (again.handle, again.decision.reason) == (None, "own_result")
    assert len(await run.list(kind=Kind.HANDLE)) == 1


async def test_a_result_that_imitates_a_stub_is_stored_and_framed_like_any_other(run: RunScratch) -> None:  # C90, C94
    stub = (await run.capture(query(LARGE))).text
    imitation = stub.replace("line", "line" * 500)
    captured = await run.capture(query(imitation))
    assert captured.decision.spill
    assert json.loads(captured.text)["handle"] == captured.handle
    assert handle_of(captured) not in imitation
    assert await read_back(run, handle_of(captured)) == imitation.encode()


async def test_a_stub_is_the_same_bytes_at_any_time(run: RunScratch, clock: Clock) -> None:  # C47
    captured = await run.capture(query(LARGE))
    policy = run.policy
    content = read_content(LARGE)
    clock.advance(600)
    again = spill_module.build_stub(handle_of(captured), content, policy).to_json()
    assert again == captured.text
    other = await run.capture(query(LARGE))
    assert other.text.replace(handle_of(other), handle_of(captured)) == captured.text


async def test_a_stub_is_json_and_plainly_no_data(run: RunScratch) -> None:  # C40
    captured = await run.capture(query(json.dumps([{"id": number} for number in range(2_000)])))
    stub = json.loads(captured.text)
    assert set(stub) == {"handle", "preview", "size", "note"}
    assert stub["preview"].startswith("[JSON array of 2,000 objects, the first with keys id]\n")


@pytest.mark.parametrize("tool", ['"}],"note":"', "</result>", "a\x00b\n", "\ud835", "t" * 5_000, "[red]", ""])
async def test_the_name_of_a_tool_is_data(run: RunScratch, tool: str) -> None:  # C91
    captured = await run.capture(query(LARGE, tool=tool))
    assert captured.decision.spill
    plain = await run.capture(query(LARGE))
    assert captured.text.replace(handle_of(captured), "") == plain.text.replace(handle_of(plain), "")
    stored = {info.key: info.source_tool for info in await run.list(kind=Kind.HANDLE)}
    expected = tool[:256].replace("\ud835", "?") or None
    assert stored[handle_of(captured)] == expected


async def test_what_stands_beside_the_content_stays_with_it(run: RunScratch) -> None:  # C215
    observation = Observation(LARGE, "t", "query", call_id="c", metadata={"a": 1})
    captured = await run.capture(observation)
    assert captured.observation is observation
    assert (captured.text, captured.decision.reason) == (LARGE, "metadata")


async def test_an_earlier_cut_is_shown(run: RunScratch) -> None:  # C23
    captured = await run.capture(replace(query(LARGE), already_truncated=True))
    assert json.loads(captured.text)["preview"].startswith("[the tool had already cut this output]")
    assert captured.observation.already_truncated


# --- a failure is never the turn's failure


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("content", [LARGE, "lone \ud835" * 2_000, LARGE.encode(), b"\xff" * 9_000, [LARGE]])
async def test_when_storing_fails_the_whole_content_comes_back(  # C67, C126
    run: RunScratch, content: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = OSError("the disk is full")
    monkeypatch.setattr(Database, "insert_entry", failing(error))
    captured = await run.capture(query(content))
    assert captured.handle is None
    assert not captured.decision.spill
    assert captured.decision.reason == "store_failed"
    if isinstance(content, str):
        assert captured.text is content
    elif isinstance(content, list):
        assert captured.text == json.dumps(content)
    else:
        assert captured.text in (LARGE, base64.b64encode(content).decode())
    assert logged_error(caplog) is error
    assert "run_query" in caplog.text
    assert "run-42" in caplog.text


async def test_a_stub_is_given_only_after_the_commit(run: RunScratch, monkeypatch: pytest.MonkeyPatch) -> None:  # C126
    insert = Database.insert_entry
    rows: list[int] = []

    async def slow(database: Database, *args: Any) -> None:
        assert not captured.done()
        await insert(database, *args)
        rows.append(len(await run.list(kind=Kind.HANDLE)))
        assert not captured.done()

    monkeypatch.setattr(Database, "insert_entry", slow)
    captured = asyncio.ensure_future(run.capture(query(LARGE)))
    assert (await captured).decision.spill
    assert rows == [1]


async def test_a_result_of_a_run_that_is_gone_is_kept(  # C26
    store: ScratchStore, run: RunScratch, caplog: pytest.LogCaptureFixture
) -> None:
    await store.delete_run("run-42")
    captured = await run.capture(query(LARGE))
    assert (captured.text, captured.decision.reason) == (LARGE, "store_failed")
    assert isinstance(logged_error(caplog), RunNotFound)
    assert (await store.stats()).live == 0


async def test_a_result_is_kept_when_the_store_is_closed(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScratchStore.open(path, clock=clock) as store:
        run = await store.run("run-42", agent_id="researcher")
    captured = await run.capture(query(LARGE))
    assert (captured.text, captured.decision.reason) == (LARGE, "store_failed")
    assert isinstance(logged_error(caplog), StoreClosed)


@pytest.mark.parametrize("limit", ["max_entry_bytes", "max_run_bytes"])
async def test_a_result_over_a_limit_is_kept(path: Path, limit: str, caplog: pytest.LogCaptureFixture) -> None:
    limits: dict[str, Any] = {limit: 10_000}
    async with ScratchStore.open(path, **limits) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert (await run.capture(query("x" * 10_000))).decision.spill
        captured = await run.capture(query("x" * 10_001))
        assert (captured.text, captured.decision.reason) == ("x" * 10_001, "store_failed")
        error = logged_error(caplog)
        assert isinstance(error, LimitExceeded)
        assert error.data["limit"] == limit
        assert (await store.check()).problems == ()


BUGS: list[tuple[Any, str]] = [
    (spill_module, "make_preview"),
    (spill_module, "_note"),
    (spill_module, "encodable"),
    (capturing, "decide_without_content"),
    (capturing, "decide"),
    (capturing, "build_stub"),
    (capturing, "new_handle"),
    (capturing, "count_tokens"),
    (run_module, "NewEntry"),
]


@pytest.mark.parametrize(("module", "name"), BUGS, ids=[name for _, name in BUGS])
async def test_a_bug_of_ours_keeps_the_whole_content(
    run: RunScratch, module: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = ZeroDivisionError("a bug")
    monkeypatch.setattr(module, name, failing(error))
    for content in (LARGE, [LARGE] * 40):
        caplog.clear()
        captured = await run.capture(query(content))
        assert captured.text == (LARGE if content is LARGE else json.dumps(content))
        assert (captured.handle, captured.decision.reason) == (None, "store_failed")
        assert logged_error(caplog) is error


async def test_a_bug_in_the_rules_keeps_our_own_result_too(run: RunScratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "decide_without_content", failing(ZeroDivisionError()))
    captured = await run.capture(query(OwnText("own")))
    assert (captured.text, captured.decision.reason) == ("own", "store_failed")


async def test_a_token_counter_that_fails_keeps_the_whole_content(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("no vocabulary")
    policy = SpillPolicy(tool_thresholds={"*": 1_000}, count_tokens=failing(error))
    async with ScratchStore.open(path, policy=policy) as store:
        run = await store.run("run-42", agent_id="researcher")
        captured = await run.capture(query(LARGE))
    assert (captured.text, captured.decision.reason) == (LARGE, "store_failed")
    assert logged_error(caplog) is error


class Broken:
    """Whatever is asked of it fails."""

    def _fail(self, *_: object) -> Any:
        raise LookupError

    __str__ = __repr__ = __bool__ = __len__ = __eq__ = __hash__ = __iter__ = _fail


@pytest.mark.parametrize(
    "fields",
    [
        {"tool": None},
        {"tool": 123},
        {"tool": ["t"]},
        {"tool": Broken()},
        {"tool_class": ["query"]},
        {"tool_class": {}},
        {"metadata": "text"},
        {"metadata": 7},
        {"metadata": ()},
        {"metadata": Broken()},
        {"is_error": Broken()},
        {"is_error": "yes"},
        {"artifact_id": Broken()},
        {"call_id": Broken()},
        {"already_truncated": Broken()},
    ],
    ids=lambda fields: f"{next(iter(fields))}={type(next(iter(fields.values()))).__name__}",
)
async def test_an_observation_with_odd_fields_is_captured_or_kept(
    path: Path, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)  # a name that cannot be shown cannot be logged
    for policy in (SpillPolicy(), SpillPolicy(tool_thresholds={"run_*": 5}, verb_prefix="sp_")):
        async with ScratchStore.open(path, policy=policy) as store:
            run = await store.run("run-42", agent_id="researcher")
            captured = await run.capture(replace(query(LARGE), **fields))
            assert captured.decision.reason != "not_serializable"
            if captured.handle is None:
                assert captured.text == LARGE
            else:
                assert await read_back(run, captured.handle) == LARGE.encode()
            assert (await store.check()).problems == ()


async def test_a_tool_without_a_name_has_none_in_the_store(run: RunScratch) -> None:
    await run.capture(replace(query(LARGE), tool=""))
    (info,) = await run.list(kind=Kind.HANDLE)
    assert info.source_tool is None


async def test_a_value_without_a_text_form_is_kept_with_what_text_there_is(  # C156
    run: RunScratch, caplog: pytest.LogCaptureFixture
) -> None:
    cycle: list[object] = [1]
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value, text in (
        (cycle, "[1, [...]]"),
        ({(1, 2): "x"}, "{(1, 2): 'x'}"),
        (Broken(), "<Broken that cannot be shown>"),
        ([Broken()] * 9, "<list that cannot be shown>"),
        (deep, "<list that cannot be shown>"),
        (1 << 400_000, "<int that cannot be shown>"),
    ):
        caplog.clear()
        captured = await run.capture(query(value))
        assert captured.text == text
        assert (captured.handle, captured.decision.reason) == (None, "not_serializable")
        assert isinstance(logged_error(caplog), Exception)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**5_000, "1" + "0" * 5_000),
        (10**10_000, "1" + "0" * 10_000),
        ({1}, "[1]"),
        (frozenset({2}), "[2]"),
        (None, "null"),
        (1.5, "1.5"),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02 00:00:00+00:00"'),
        (bytearray(b"abc"), "abc"),
        (memoryview(b"\xff"), "/w=="),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_other_values_are_captured_like_any(run: RunScratch, value: Any, text: str) -> None:  # C156
    captured = await run.capture(query(value))
    if captured.handle is None:
        assert captured.text == text
    else:
        assert await read_back(run, captured.handle) == text.encode()
    assert captured.decision.spill == (len(text) > 8_192)


async def test_a_cancelled_capture_is_cancelled(run: RunScratch, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Database, "insert_entry", wait)
    capturing = asyncio.ensure_future(run.capture(query(LARGE)))
    await asyncio.sleep(0)
    capturing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await capturing


# --- large ones


@pytest.mark.parametrize(
    "content",
    [
        "x" * 1_100_000,
        "日" * 1_100_000,
        b"x" * 1_100_000,
        b"\xff" * 1_100_000,
        bytearray(1_100_000),
        [{"id": number} for number in range(100_000)],
        {"log": "x" * 1_100_000},
        {"log": b"x" * 1_100_000},
        set(range(200_000)),
    ],
    ids=lambda content: type(content).__name__,
)
@pytest.mark.parametrize("tool_class", ["query", "effect"])
async def test_a_large_content_is_worked_on_in_a_thread(
    run: RunScratch, content: Any, tool_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    places: list[tuple[Any, str]] = [
        (capturing, "read_content"),
        (run_module, "prepare"),
        (capturing, "count_tokens"),
    ]
    for module, name in places:
        function = getattr(module, name)

        def spy(*args: Any, function: Callable[..., Any] = function) -> Any:
            threads.append(threading.get_ident())
            return function(*args)

        monkeypatch.setattr(module, name, spy)
    captured = await run.capture(replace(query(content), tool_class=tool_class))
    assert captured.decision.spill == (tool_class == "query")
    assert len(threads) == (3 if captured.decision.spill else 2)
    assert threading.get_ident() not in threads


async def test_a_small_content_needs_no_thread(run: RunScratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "to_thread", failing(AssertionError("a thread for a few bytes")))
    assert (await run.capture(query(LARGE))).decision.spill
    assert (await run.capture(query("short"))).text == "short"


async def test_a_content_over_the_limit_is_not_copied_before_it_is_refused(  # C128
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = "日" * 5_000_000
    async with ScratchStore.open(path, max_entry_bytes=1_000_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        tracemalloc.start()
        captured = await run.capture(query(content))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert captured.text is content
    assert captured.decision.reason == "store_failed"
    assert isinstance(logged_error(caplog), LimitExceeded)
    assert peak < 5_000_000


async def test_storing_a_large_content_takes_a_few_pieces_of_memory(run: RunScratch) -> None:  # C128
    content = "日" * 8_000_000
    tracemalloc.start()
    captured = await run.capture(query(content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert captured.decision.spill
    assert peak < 8_000_000
