"""Notes: what an agent writes under keys of its own."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratch import InvalidArgument, Kind, LimitExceeded, NoteNotFound, RunScratch, ScratchStore, VersionConflict
from tests.support import query

MIB = 1024 * 1024


async def test_a_note_is_written_and_read_with_a_version_that_counts(run: RunScratch) -> None:
    assert [await run.write("plan", text) for text in ("a", "b", "c")] == [1, 2, 3]
    note = await run.read("plan")
    assert (note.text, note.content, note.version) == ("c", b"c", 3)
    assert (note.info.kind, note.info.size, note.info.source_tool) == (Kind.NOTE, 1, None)


@pytest.mark.parametrize(
    "value", ["", "a\0b", "a\ud835b" * 100, "日本語" * 30_000, "x" * 65_536, "x" * 65_537, "\r\n\x0c\u2028"]
)
async def test_a_text_comes_back_as_it_was(run: RunScratch, value: str) -> None:  # C63, C72
    await run.write("n", value)
    assert (await run.read("n")).text == value


async def test_bytes_and_json_values_can_be_notes(run: RunScratch) -> None:
    await run.write("bytes", b"\xff\x00")
    assert (await run.read("bytes")).content == b"\xff\x00"
    await run.write("json", {"city": "Zürich"})
    assert (await run.read("json")).text == '{"city": "Zürich"}'  # C80
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(InvalidArgument, match="a note is text"):
        await run.write("n", cycle)


async def test_a_stale_version_is_a_conflict_and_changes_nothing(run: RunScratch) -> None:  # C208
    await run.write("plan", "a")
    await run.write("plan", "b", if_version=1)
    with pytest.raises(VersionConflict) as conflict:
        await run.write("plan", "c", if_version=1)
    assert conflict.value.data["current_version"] == 2
    assert (await run.read("plan")).text == "b"


async def test_version_zero_stands_for_no_note(run: RunScratch) -> None:
    assert await run.write("plan", "a", if_version=0) == 1
    with pytest.raises(VersionConflict):
        await run.write("plan", "b", if_version=0)
    with pytest.raises(VersionConflict) as conflict:
        await run.write("other", "b", if_version=3)
    assert conflict.value.data["current_version"] == 0


@pytest.mark.parametrize("version", [-1, True, 1.0, "1", 2**63])
async def test_a_version_that_is_none_is_refused(run: RunScratch, version: int) -> None:
    with pytest.raises(InvalidArgument):
        await run.write("plan", "a", if_version=version)


async def test_of_many_writers_with_one_version_one_wins(run: RunScratch) -> None:
    await run.write("plan", "0")
    outcomes = await asyncio.gather(
        *(run.write("plan", str(n), if_version=1) for n in range(20)), return_exceptions=True
    )
    assert sum(outcome == 2 for outcome in outcomes) == 1
    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 19


async def test_fifty_appends_side_by_side_leave_fifty_lines(run: RunScratch) -> None:  # C205, C210
    versions = await asyncio.gather(*(run.write("log", f"{n}\n", append=True) for n in range(50)))
    assert sorted(versions) == list(range(1, 51))
    lines = (await run.read("log")).text.splitlines()
    assert sorted(lines, key=int) == [str(n) for n in range(50)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, 70_000) | st.sampled_from([65_535, 65_536, 65_537, 131_072]), max_size=6))
async def test_appends_add_up_across_any_boundary(run: RunScratch, sizes: list[int]) -> None:
    await run.delete("log")
    expected = ""
    for number, size in enumerate(sizes):
        piece = "abcdefgh"[number % 8] * size
        await run.write("log", piece, append=True)
        expected += piece
    assert not sizes or (await run.read("log")).text == expected


async def test_an_appended_note_has_a_new_preview(run: RunScratch) -> None:
    await run.write("log", "first\n" * 1_000)
    await run.write("log", "the last line", append=True)
    (info,) = await run.list()
    assert info.preview.endswith("the last line")
    assert info.preview.startswith("first\n")
    assert info.size == 6_013


async def test_bytes_that_are_no_text_make_an_appended_note_binary(run: RunScratch) -> None:
    await run.write("n", "abc")
    await run.write("n", b"\xff", append=True)
    assert (await run.read("n")).content == b"abc\xff"
    await run.write("s", "a\ud835")
    await run.write("s", "\udd38b", append=True)
    assert (await run.read("s")).text == "a\ud835\udd38b"


async def test_a_mebibyte_is_the_most(run: RunScratch) -> None:
    await run.write("n", "x" * MIB)
    for value, append in (("x" * (MIB + 1), False), ("x", True)):
        with pytest.raises(LimitExceeded) as refused:
            await run.write("n", value, append=append)
        assert refused.value.data["most"] == MIB
    assert (await run.read("n")).info.size == MIB


@pytest.mark.parametrize("key", ["a", "é" * 128, "a b", "%", "_", "../x", "[/red]", "😀"])
async def test_printable_keys_of_up_to_256_bytes_are_taken(run: RunScratch, key: str) -> None:
    await run.write(key, "x")
    assert [info.key for info in await run.list()] == [key]


@pytest.mark.parametrize("key", ["", "a\0b", "a\nb", "é" * 129, "\ud835", "\u202e", 1, None, b"a"])
async def test_other_keys_are_refused_by_every_verb(run: RunScratch, key: str) -> None:  # C70
    for verb in (run.write(key, "x"), run.read(key), run.delete(key), run.renew(key, 1)):
        with pytest.raises(InvalidArgument) as refused:
            await verb
        assert refused.value.data["argument"] == "key"


async def test_a_key_that_looks_like_a_handle_is_refused(run: RunScratch) -> None:
    with pytest.raises(InvalidArgument, match="form of a generated handle"):
        await run.write("r_222222222222", "x")


async def test_percent_and_underscore_are_plain_characters(run: RunScratch) -> None:  # C82, C85
    for key in ("session_1", "sessionX1", "a%b", "aXb"):
        await run.write(key, "x")
    assert [info.key for info in await run.list(prefix="session_")] == ["session_1"]
    assert [info.key for info in await run.list(prefix="a%")] == ["a%b"]
    assert await run.delete("%") is False
    assert await run.delete("_") is False
    assert len(await run.list()) == 4


async def test_a_list_is_paged_by_key(run: RunScratch) -> None:
    keys = [*(f"k{n:03}" for n in range(25)), "é", "😀"]
    for key in reversed(keys):
        await run.write(key, "x")
    seen: list[str] = []
    while page := await run.list(limit=10, after=seen[-1] if seen else ""):
        seen += [info.key for info in page]
    assert seen == keys
    assert [info.key for info in await run.list(prefix="k00", after="k003", limit=3)] == ["k004", "k005", "k006"]
    assert await run.list(prefix="a", after="z") == []


@pytest.mark.parametrize(
    "arguments", [{"limit": 0}, {"limit": 1_001}, {"limit": True}, {"prefix": "a\0"}, {"prefix": 1}, {"after": None}]
)
async def test_a_bad_page_is_refused(run: RunScratch, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        await run.list(**arguments)  # type: ignore[arg-type]


async def test_an_empty_scope_lists_nothing_and_has_nothing_to_read(run: RunScratch) -> None:  # C51
    assert await run.list() == []
    with pytest.raises(NoteNotFound) as missing:
        await run.read("plan")
    assert missing.value.data == {"key": "plan"}
    assert await run.delete("plan") is False


async def test_notes_and_handles_are_listed_apart(run: RunScratch) -> None:
    captured = await run.capture(query("x" * 10_000))
    await run.write("plan", "x")
    assert [info.key for info in await run.list()] == ["plan"]
    assert [info.key for info in await run.list(kind=Kind.HANDLE)] == [captured.handle]
    assert captured.handle is not None
    assert await run.delete(captured.handle) is True
    assert await run.list(kind=Kind.HANDLE) == []


async def test_notes_of_two_agents_and_two_runs_are_apart(store: ScratchStore) -> None:
    scopes = [await store.run(run, agent_id=agent) for run in ("a", "b") for agent in ("x", "y")]
    for number, scope in enumerate(scopes):
        await scope.write("plan", str(number))
    assert [(await scope.read("plan")).text for scope in scopes] == ["0", "1", "2", "3"]
    await scopes[0].delete("plan")
    assert [len(await scope.list()) for scope in scopes] == [0, 1, 1, 1]
    assert json.dumps([info.version for scope in scopes[1:] for info in await scope.list()]) == "[1, 1, 1]"
