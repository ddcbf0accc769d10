"""The agent's own notes: versions, compare-and-set, appending, keys, listing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratch import (
    InvalidArgument,
    Kind,
    LimitExceeded,
    NoteNotFound,
    RunScratch,
    ScratchStore,
    VersionConflict,
)
from tests.support import Clock, query

MIB = 1024 * 1024


# --- writing and reading


@pytest.mark.parametrize(
    ("value", "text", "media_type"),
    [
        ("plain", "plain", "text/plain"),
        ("", "", "text/plain"),
        ("\n", "\n", "text/plain"),
        ("a\0b\r\nc\x0c\u2028d", "a\0b\r\nc\x0c\u2028d", "text/plain"),
        ("日本 😀 \ud835", "日本 😀 \ud835", "text/plain"),
        ("é".encode(), "é", "text/plain"),
        (bytearray(b"\0"), "\0", "text/plain"),
        ({"city": "Zürich"}, '{"city": "Zürich"}', "application/json"),
        (7, "7", "application/json"),
        (None, "null", "application/json"),
    ],
)
async def test_a_note_comes_back_as_it_was_written(
    run: RunScratch, clock: Clock, value: Any, text: str, media_type: str
) -> None:
    assert await run.write("note", value) == 1
    note = await run.read("note")
    assert note.text == text
    assert note.content == text.encode("utf-8", "surrogatepass")
    assert note.info.size == len(note.content)
    assert note.info.media_type == media_type
    assert (note.info.run_id, note.info.agent_id, note.info.key) == ("run-42", "researcher", "note")
    assert (note.info.kind, note.info.source_tool, note.version) == (Kind.NOTE, None, 1)
    assert note.info.created == datetime.fromtimestamp(clock.now, UTC)


async def test_bytes_that_are_no_text_come_back_exactly(run: RunScratch) -> None:
    data = bytes(range(256)) * 300
    await run.write("note", data)
    note = await run.read("note")
    assert (note.content, note.info.media_type, note.info.tokens) == (data, "application/octet-stream", None)


async def test_a_value_that_is_no_json_either_is_refused_by_name(run: RunScratch) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidArgument, match="a note is text, bytes or what JSON can express") as caught:
        await run.write("note", circle)
    assert caught.value.data["argument"] == "value"
    assert caught.value.__cause__ is not None
    assert await run.list() == []


async def test_each_write_counts_one_version_on_and_keeps_the_time_of_the_first(run: RunScratch, clock: Clock) -> None:
    for version in range(1, 5):
        assert await run.write("note", "x" * version) == version
        note = await run.read("note")
        assert (note.version, note.text) == (version, "x" * version)
        assert note.info.created_at == 1_800_000_000_000
        clock.advance(1)
    assert await run.delete("note")
    assert await run.write("note", "again") == 1
    assert (await run.read("note")).info.created_at == 1_800_000_004_000


async def test_a_shorter_note_leaves_nothing_of_the_longer_one(store: ScratchStore, run: RunScratch) -> None:
    for size in (MIB, 65_537, 65_536, 1, 0, 70_000):
        await run.write("note", b"\xff" * size)
        assert (await run.read("note")).content == b"\xff" * size
        with closing(sqlite3.connect(store.path)) as connection:
            held = connection.execute("SELECT coalesce(sum(length(data)), 0) FROM scratch_chunks").fetchone()
        assert held == (size,)


async def test_a_missing_note_says_what_to_do(run: RunScratch) -> None:  # C51
    with pytest.raises(NoteNotFound, match="no live note under 'plan'; list the notes, or write it") as caught:
        await run.read("plan")
    assert caught.value.data == {"key": "plan"}
    assert caught.value.code == "note_not_found"
    assert not await run.delete("plan")
    assert await run.list() == []


async def test_a_note_holds_a_mebibyte_and_not_a_byte_more(store: ScratchStore, run: RunScratch) -> None:
    assert await run.write("note", "x" * MIB) == 1
    for value in ("x" * (MIB + 1), "é" * (MIB // 2) + "x", b"\xff" * (MIB + 1), ["x" * MIB]):
        with pytest.raises(LimitExceeded, match="use several keys") as caught:
            await run.write("note", value)
        assert caught.value.data["limit"] == "max_note_bytes"
        assert caught.value.data["most"] == MIB
    with pytest.raises(LimitExceeded):
        await run.write("note", "x", append=True)
    assert (await run.read("note")).version == 1


# --- compare and set


async def test_a_stale_version_is_a_conflict_that_carries_the_current_one(run: RunScratch) -> None:  # C208
    assert await run.write("note", "1", if_version=0) == 1
    assert await run.write("note", "2", if_version=1) == 2
    for stale in (0, 1, 3, 2**62):
        with pytest.raises(VersionConflict, match="has version 2, not version") as caught:
            await run.write("note", "no", if_version=stale)
        assert caught.value.data == {"key": "note", "current_version": 2, "if_version": stale}
    with pytest.raises(VersionConflict, match="does not exist") as caught:
        await run.write("other", "no", if_version=2)
    assert caught.value.data["current_version"] == 0
    assert (await run.read("note")).text == "2"
    assert [info.key for info in await run.list()] == ["note"]


@pytest.mark.parametrize("version", [-1, True, 1.0, "1", 2**63])
async def test_a_version_is_an_integer(run: RunScratch, version: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await run.write("note", "x", if_version=version)
    assert caught.value.data["argument"] == "if_version"


async def test_of_many_that_write_on_one_version_one_gets_it(store: ScratchStore, run: RunScratch) -> None:  # C131
    async with ScratchStore.open(store.path, clock=store._settings.clock) as second:
        again = await second.run("run-42", agent_id="researcher")
        for round_number in range(10):
            outcomes = await asyncio.gather(
                *((run, again)[number % 2].write("note", f"{number}", if_version=round_number) for number in range(8)),
                return_exceptions=True,
            )
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["VersionConflict"] * 7 + ["int"]
            note = await run.read("note")
            assert (note.version, outcomes[int(note.text)]) == (round_number + 1, round_number + 1)


async def test_a_counter_that_is_kept_by_compare_and_set_loses_nothing(run: RunScratch) -> None:
    async def add_one() -> None:
        while True:
            try:
                note = await run.read("counter")
                text, version = note.text, note.version
            except NoteNotFound:
                text, version = "0", 0
            try:
                await run.write("counter", str(int(text) + 1), if_version=version)
            except VersionConflict:
                continue
            return

    await asyncio.gather(*(add_one() for _ in range(30)))
    assert ((await run.read("counter")).text, (await run.read("counter")).version) == ("30", 30)


# --- appending


async def test_fifty_appends_at_once_are_fifty_lines(store: ScratchStore, run: RunScratch) -> None:  # C205 C210
    async with ScratchStore.open(store.path, clock=store._settings.clock) as second:
        again = await second.run("run-42", agent_id="researcher")
        versions = await asyncio.gather(
            *((run, again)[number % 2].write("log", f"line {number}\n", append=True) for number in range(50))
        )
    assert sorted(versions) == list(range(1, 51))
    lines = (await run.read("log")).text.splitlines()
    assert sorted(lines) == sorted(f"line {number}" for number in range(50))


async def test_an_append_may_name_the_version_that_it_adds_to(run: RunScratch) -> None:
    assert await run.write("log", "a", append=True, if_version=0) == 1
    assert await run.write("log", "b", append=True, if_version=1) == 2
    with pytest.raises(VersionConflict):
        await run.write("log", "c", append=True, if_version=1)
    assert (await run.read("log")).text == "ab"


@pytest.mark.parametrize(
    ("first", "second", "content", "media_type"),
    [
        ("a", "b", b"ab", "text/plain"),
        ("", "b", b"b", "text/plain"),
        ("é\ud800", "\udc00é", "é\ud800\udc00é".encode("utf-8", "surrogatepass"), "text/plain"),
        ("a", b"\xff", b"a\xff", "application/octet-stream"),
        (b"\xff", "é", b"\xff" + "é".encode(), "application/octet-stream"),
        (b"\xc3", b"\xa9", b"\xc3\xa9", "text/plain"),  # two halves that make a character
        ([1], [2], b"[1][2]", "text/plain"),
    ],
)
async def test_an_append_adds_the_stored_bytes_of_any_kind(
    run: RunScratch, first: Any, second: Any, content: bytes, media_type: str
) -> None:
    await run.write("log", first)
    await run.write("log", second, append=True)
    note = await run.read("log")
    assert (note.content, note.info.media_type, note.info.size) == (content, media_type, len(content))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.one_of(
            st.text(max_size=20),
            st.binary(max_size=20),
            st.sampled_from([0, 1, 65_535, 65_536, 65_537, 131_072]).map(lambda size: b"x" * size),
            st.sampled_from([1, 32_768, 65_535]).map(lambda size: "é" * size),
        ),
        min_size=1,
        max_size=6,
    )
)
async def test_appends_of_any_size_add_up(run: RunScratch, parts: list[str | bytes]) -> None:
    await run.delete("log")
    whole = b""
    for version, part in enumerate(parts, 1):
        assert await run.write("log", part, append=True) == version
        whole += part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        assert (await run.read("log")).content == whole


async def test_an_appended_note_has_a_new_preview(run: RunScratch) -> None:
    await run.write("log", "first\n" * 1_000)
    await run.write("log", "the last line", append=True)
    (info,) = await run.list()
    assert info.preview.startswith("first\n")
    assert info.preview.endswith("the last line")


async def test_an_append_that_fails_changes_nothing(store: ScratchStore, run: RunScratch) -> None:
    await run.write("log", "x" * (MIB - 10))
    before = (await run.read("log")).info
    with pytest.raises(LimitExceeded):
        await run.write("log", "y" * 11, append=True)
    assert (await run.read("log")).info == before
    assert await run.write("log", "y" * 10, append=True) == 2
    assert (await run.read("log")).text == "x" * (MIB - 10) + "y" * 10


# --- keys


@pytest.mark.parametrize("key", ["", "a\0b", "a\n", "\t", "\x1b[2J", "\ud800", "\u202e", "x" * 257, "é" * 129, None, 7])
async def test_a_key_is_1_to_256_bytes_of_printable_text(run: RunScratch, key: Any) -> None:  # C70
    calls: list[Callable[[Any], Awaitable[object]]] = [
        lambda key: run.write(key, "x"),
        run.read,
        run.delete,
        lambda key: run.renew(key, 60),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as caught:
            await call(key)
        assert caught.value.data["argument"] == "key"
    assert await run.list() == []


async def test_a_key_that_looks_like_a_handle_is_refused_and_a_result_cannot_be_overwritten(run: RunScratch) -> None:
    captured = await run.capture(query("x" * 20_000))
    assert captured.handle is not None
    for call in (run.write(captured.handle, "mine"), run.read(captured.handle)):
        with pytest.raises(InvalidArgument, match="form of a generated handle"):
            await call
    assert (await run.read_handle(captured.handle)).size == 20_000


KEYS = ["a", "A", "a ", " a", "ab", "a%", "a_", "%", "_", "*", "a.b", "a/b", "é", "e\u0301", "😀", "x" * 256, "é" * 128]


async def test_every_key_is_a_note_of_its_own(run: RunScratch) -> None:  # C70
    for key in KEYS:
        assert await run.write(key, f"<{key}>") == 1
    for key in KEYS:
        assert (await run.read(key)).text == f"<{key}>"
    assert [info.key for info in await run.list()] == sorted(KEYS)


@pytest.mark.parametrize("key", ["%", "_", "*", "a%", "a_", "?", "a*", "[a-z]", "' OR 1=1 --"])
async def test_a_wildcard_deletes_nothing(run: RunScratch, key: str) -> None:  # C85
    for name in ("a", "ab", "abc", "b"):
        await run.write(name, "x")
    assert not await run.delete(key)
    assert await run.list(prefix=key) == []
    assert len(await run.list()) == 4
    await run.write(key, "x")
    assert [info.key for info in await run.list(prefix=key)] == [key]
    assert await run.delete(key)
    assert len(await run.list()) == 4


# --- listing


async def test_keys_come_in_order_page_by_page(run: RunScratch) -> None:
    for number in range(250):
        await run.write(f"n{number:03}", str(number))
    assert len(await run.list()) == 100
    seen: list[str] = []
    while page := await run.list(limit=70, after=seen[-1] if seen else ""):
        seen += [info.key for info in page]
    assert seen == [f"n{number:03}" for number in range(250)]
    assert [info.key for info in await run.list(prefix="n24", after="n247")] == ["n248", "n249"]
    assert [info.key for info in await run.list(prefix="n24", after="n2")] == [f"n24{number}" for number in range(10)]
    assert await run.list(prefix="n24", after="n25") == []
    assert await run.list(prefix="m") == []
    assert len(await run.list(limit=1_000)) == 250


async def test_results_are_listed_only_when_asked_for(run: RunScratch) -> None:
    captured = await run.capture(query("x" * 20_000))
    await run.write("r_note", "x")
    assert [info.key for info in await run.list()] == ["r_note"]
    assert [info.key for info in await run.list(kind=Kind.HANDLE)] == [captured.handle]
    assert [info.key for info in await run.list(kind=Kind.HANDLE, prefix="r_")] == [captured.handle]
    assert await run.list(kind=Kind.ARTIFACT) == []


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1_001}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"prefix": "\0"}, "prefix"),
        ({"prefix": None}, "prefix"),
        ({"after": "\ud800"}, "after"),
        ({"after": 3}, "after"),
        ({"kind": "note"}, "kind"),
    ],
)
async def test_a_bad_way_to_list_is_refused_by_name(run: RunScratch, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await run.list(**options)
    assert caught.value.data["argument"] == argument


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sets(st.text("ab%_é😀\U0010fffd", min_size=1, max_size=4).filter(str.isprintable), max_size=12),
    prefix=st.text("ab%_é😀", max_size=2),
    after=st.text("ab%_é😀", max_size=3),
    limit=st.integers(1, 15),
)
async def test_a_list_is_what_sorting_and_filtering_gives(
    run: RunScratch, keys: set[str], prefix: str, after: str, limit: int
) -> None:
    for info in await run.list():
        await run.delete(info.key)
    for key in keys:
        await run.write(key, "x")
    expected = [key for key in sorted(keys) if key.startswith(prefix) and key > after][:limit]
    assert [info.key for info in await run.list(prefix=prefix, after=after, limit=limit)] == expected
