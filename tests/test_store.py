"""The store: runs and agents, who sees what, deleting, limits, closing, copies."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scratch import (
    DEFAULT_TTL,
    HandleNotFound,
    InvalidArgument,
    Kind,
    LimitExceeded,
    NoteNotFound,
    RunNotFound,
    RunScratch,
    ScratchStore,
    StoreClosed,
    StoreReadOnly,
)
from tests.support import Clock, query

TABLES = ("agents", "runs", "run_agents", "scratch_entries", "scratch_chunks")


def counts(path: Path) -> dict[str, int]:
    """How many rows there are in each table."""
    with closing(sqlite3.connect(path)) as connection:
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


async def spill(run: RunScratch, content: object = "x" * 20_000) -> str:
    captured = await run.capture(query(content))
    assert captured.handle is not None
    return captured.handle


async def fill(store: ScratchStore, run_id: str, agent_id: str) -> RunScratch:
    """A run with a note and a result of that agent."""
    run = await store.run(run_id, agent_id=agent_id)
    await run.write("note", "x")
    await spill(run)
    return run


# --- opening and closing


async def test_a_store_can_be_awaited_or_entered(path: Path) -> None:
    store = await ScratchStore.open(path)
    assert store.path == path
    await store.close()
    async with ScratchStore.open(str(path)) as store, store:
        assert await store.list_runs() == []
    await store.close()  # again


async def test_what_was_written_is_there_after_opening_again(path: Path, clock: Clock) -> None:
    async with ScratchStore.open(path, clock=clock) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("note", "x")
        handle = await spill(run)
    async with ScratchStore.open(path, clock=clock) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert (await run.read("note")).text == "x"
        assert (await run.read_handle(handle)).size == 20_000
        assert (await store.check()).problems == ()


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"ttl": 0}, "ttl"),
        ({"ttl": "1h"}, "ttl"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"max_entry_bytes": 0}, "max_entry_bytes"),
        ({"max_entry_bytes": True}, "max_entry_bytes"),
        ({"max_run_bytes": 1.5}, "max_run_bytes"),
        ({"max_run_bytes": 2**63}, "max_run_bytes"),
        ({"secure_delete": "off"}, "secure_delete"),
        ({"secure_delete": "ON; DROP TABLE runs"}, "secure_delete"),
    ],
)
def test_a_bad_option_is_refused_before_anything_is_made(path: Path, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ScratchStore.open(path, **options)
    assert caught.value.data["argument"] == argument
    assert not path.exists()


async def test_a_relative_path_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opening = ScratchStore.open("scratch.db")
    monkeypatch.chdir("/")
    async with opening as store:
        assert store.path == tmp_path / "scratch.db"
        monkeypatch.chdir(tmp_path.parent)
        await (await store.run("run-42", agent_id="researcher")).write("note", "x")
    assert counts(tmp_path / "scratch.db")["scratch_entries"] == 1


EVERY_METHOD: dict[str, Callable[[ScratchStore, RunScratch], Awaitable[object]]] = {
    "run": lambda store, run: store.run("run-43", agent_id="writer"),
    "list_runs": lambda store, run: store.list_runs(),
    "complete_run": lambda store, run: store.complete_run("run-42"),
    "delete_run": lambda store, run: store.delete_run("run-42"),
    "delete_agent": lambda store, run: store.delete_agent("researcher"),
    "list_scratch_entries_for_run": lambda store, run: store.list_scratch_entries_for_run("run-42"),
    "sweep": lambda store, run: store.sweep(),
    "dry run": lambda store, run: store.sweep(dry_run=True),
    "check": lambda store, run: store.check(),
    "stats": lambda store, run: store.stats(),
    "backup": lambda store, run: store.backup(store.path.with_name("copy.db")),
    "write": lambda store, run: run.write("note", "y"),
    "append": lambda store, run: run.write("note", "y", append=True),
    "read": lambda store, run: run.read("note"),
    "list": lambda store, run: run.list(),
    "delete": lambda store, run: run.delete("note"),
    "renew": lambda store, run: run.renew("note", 60),
    "read_handle": lambda store, run: run.read_handle("r_222222222222"),
    "find": lambda store, run: run.read_handle("r_222222222222", match="x"),
}


@pytest.mark.parametrize("method", EVERY_METHOD)
async def test_a_closed_store_says_so(path: Path, method: str) -> None:
    async with ScratchStore.open(path) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("note", "x")
    with pytest.raises(StoreClosed, match="open it again"):
        await EVERY_METHOD[method](store, run)
    assert [one.name for one in path.parent.iterdir()] == ["scratch.db"]


WRITING = {"complete_run", "delete_run", "delete_agent", "sweep", "write", "append", "delete", "renew"}


@pytest.mark.parametrize("method", WRITING)
async def test_a_store_opened_for_reading_refuses_to_write(path: Path, method: str) -> None:
    async with ScratchStore.open(path) as store:
        await fill(store, "run-42", "researcher")
    async with ScratchStore.open(path, read_only=True) as store:
        run = await store.run("run-42", agent_id="researcher")
        before = counts(path)
        with pytest.raises(StoreReadOnly, match="for reading only"):
            await EVERY_METHOD[method](store, run)
        for run_id, agent_id in (("run-43", "researcher"), ("run-42", "writer")):
            with pytest.raises(RunNotFound):
                await store.run(run_id, agent_id=agent_id)
    assert counts(path) == before


# --- runs and agents


async def test_the_first_agent_owns_the_run_and_others_join_it(store: ScratchStore, clock: Clock) -> None:
    await store.run("run-1", agent_id="owner")
    clock.advance(1)
    await store.run("run-1", agent_id="guest")
    await store.run("run-2", agent_id="guest")
    second, first = await store.list_runs()  # the newest first
    assert (first.run_id, first.agent_id, first.agents) == ("run-1", "owner", ("guest", "owner"))
    assert (second.run_id, second.agent_id, second.agents) == ("run-2", "guest", ("guest",))
    assert first.created_at == 1_800_000_000_000
    assert second.created_at == 1_800_000_001_000
    assert (first.completed_at, first.entries, first.size) == (None, 0, 0)


async def test_registering_again_keeps_all_that_is_there(path: Path, clock: Clock) -> None:  # C151
    async with ScratchStore.open(path, clock=clock) as store:
        run = await fill(store, "run-42", "researcher")
    before = counts(path)
    for _ in range(2):
        clock.advance(1)
        async with ScratchStore.open(path, clock=clock) as store:
            run = await store.run("run-42", agent_id="researcher")
            assert (await run.read("note")).text == "x"
            (info,) = await store.list_runs()
            assert info.created_at == 1_800_000_000_000
            assert info.agent_id == "researcher"
    assert counts(path) == before


async def test_many_tasks_may_register_one_run_at_once(store: ScratchStore) -> None:
    await asyncio.gather(*(store.run("run-42", agent_id=f"agent-{number % 5}") for number in range(50)))
    (info,) = await store.list_runs()
    assert len(info.agents) == 5
    assert info.agent_id in info.agents


async def test_completing_a_run_only_notes_when_and_the_first_time_counts(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    await run.write("note", "x", ttl=60)
    clock.advance(1)
    await store.complete_run("run-42")
    clock.advance(1)
    await store.complete_run("run-42")
    (info,) = await store.list_runs()
    assert info.completed_at == 1_800_000_001_000
    assert (await run.read("note")).text == "x"
    await run.write("late", "y")
    assert len(await store.list_scratch_entries_for_run("run-42")) == 2


async def test_an_unknown_run_cannot_be_completed_or_listed(store: ScratchStore) -> None:
    for unknown in (store.complete_run, store.list_scratch_entries_for_run):
        with pytest.raises(RunNotFound, match="'run-7'") as caught:
            await unknown("run-7")
        assert caught.value.data == {"run_id": "run-7"}


async def test_a_run_without_entries_lists_none(store: ScratchStore, run: RunScratch) -> None:  # C51
    assert await store.list_scratch_entries_for_run("run-42") == []


BAD_NAMES = ["", "a\0b", "a\nb", "\x7f", "\ud800", "x" * 257, "é" * 129, None, 7, b"run", ["run"]]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_an_id_is_1_to_256_bytes_of_printable_text(store: ScratchStore, name: Any) -> None:  # C70
    with pytest.raises(InvalidArgument) as caught:
        await store.run(name, agent_id="researcher")
    assert caught.value.data["argument"] == "run_id"
    with pytest.raises(InvalidArgument) as caught:
        await store.run("run-42", agent_id=name)
    assert caught.value.data["argument"] == "agent_id"
    for method in (store.complete_run, store.delete_run, store.delete_agent, store.list_scratch_entries_for_run):
        with pytest.raises(InvalidArgument):
            await method(name)
    assert await store.list_runs() == []


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "../../etc/passwd", "'; DROP TABLE runs; --", "%", "😀", " "])
async def test_any_other_id_is_taken_as_it_is(store: ScratchStore, name: str) -> None:
    run = await store.run(name, agent_id=name)
    await run.write("note", name)
    assert (run.run_id, run.agent_id) == (name, name)
    (info,) = await store.list_scratch_entries_for_run(name)
    assert (info.run_id, info.agent_id) == (name, name)
    assert await store.delete_run(name)


async def test_the_entries_of_a_run_are_listed_oldest_first_with_all_agents_and_no_content(
    store: ScratchStore, clock: Clock
) -> None:
    first = await store.run("run-42", agent_id="researcher")
    await first.write("b", "1" * 5_000, ttl=100)
    clock.advance(1)
    handle = await spill(await store.run("run-42", agent_id="writer"), ["y" * 30_000])
    clock.advance(1)
    await first.write("a", b"\xff\0", ttl=100)
    await first.write("b", "22", ttl=100)  # a new version is no new entry
    await (await store.run("run-43", agent_id="researcher")).write("other", "x")
    infos = await store.list_scratch_entries_for_run("run-42")
    assert [(info.kind, info.key, info.agent_id, info.size, info.version) for info in infos] == [
        (Kind.NOTE, "b", "researcher", 2, 2),
        (Kind.HANDLE, handle, "writer", 30_004, 1),
        (Kind.NOTE, "a", "researcher", 2, 1),
    ]
    assert [info.media_type for info in infos] == ["text/plain", "application/json", "application/octet-stream"]
    assert [info.source_tool for info in infos] == [None, "run_query", None]
    assert infos[0].created_at == 1_800_000_000_000
    assert infos[0].expires_at == 1_800_000_102_000
    assert max(len(info.preview.encode()) for info in infos) <= 1_024


# --- who sees what


async def other_scopes(store: ScratchStore) -> list[RunScratch]:
    return [
        await store.run("run-43", agent_id="researcher"),  # the same agent in another run
        await store.run("run-42", agent_id="writer"),  # another agent in the same run
        await store.run("run-43", agent_id="writer"),
        await store.run("RUN-42", agent_id="researcher"),
        await store.run("run-42", agent_id="researcher "),
    ]


async def test_no_verb_reaches_the_entries_of_another_scope(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C86 C87
    await run.write("note", "mine", ttl=100)
    handle = await spill(run)
    before = await store.list_scratch_entries_for_run("run-42")
    for other in await other_scopes(store):
        with pytest.raises(HandleNotFound):
            await other.read_handle(handle)
        with pytest.raises(HandleNotFound):
            await other.read_handle(handle, match="x")
        with pytest.raises(HandleNotFound):
            await other.renew(handle, 1_000)
        with pytest.raises(NoteNotFound):
            await other.renew("note", 1_000)
        with pytest.raises(NoteNotFound):
            await other.read("note")
        assert not await other.delete(handle)
        assert not await other.delete("note")
        assert await other.list() == []
        assert await other.list(kind=Kind.HANDLE) == []
        assert await other.write("note", "theirs", if_version=0, ttl=100) == 1
        assert await other.write("note", " too", append=True, ttl=100) == 2
        assert await other.delete("note")
    assert await store.list_scratch_entries_for_run("run-42") == before
    assert (await run.read("note")).text == "mine"


async def test_unknown_foreign_expired_deleted_and_malformed_get_one_answer(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C86 C87 C94 C103
    other = await store.run("run-43", agent_id="writer")
    foreign, expired, deleted = await spill(other), await spill(run), await spill(run)
    await other.write("foreign", "x")
    await run.write("expired", "x")
    await run.write("deleted", "x")
    await run.delete(deleted)
    await run.delete("deleted")
    clock.advance(DEFAULT_TTL)
    foreign = await spill(other)
    await other.write("foreign", "x")

    async def answer(call: Awaitable[object], name: str) -> tuple[str, str]:
        try:
            return "returned", str(await call)
        except (HandleNotFound, NoteNotFound) as error:
            return error.code, error.message.replace(repr(name), "…")

    handles = {"unknown": "r_222222222222", "foreign": foreign, "expired": expired, "deleted": deleted}
    verbs: list[Callable[[str], Awaitable[object]]] = [
        run.read_handle,
        lambda name: run.read_handle(name, offset=10**6),
        lambda name: run.read_handle(name, match="x"),
        lambda name: run.renew(name, 60),
        run.delete,
    ]
    for verb in verbs:
        assert len({await answer(verb(name), name) for name in handles.values()}) == 1
    for malformed in (
        "",
        "r_",
        "R_222222222222",
        foreign.upper(),
        "%",
        "r_22222222222\0",
        "r_2222222222222",
        "x" * 5_000,
    ):
        code, text = await answer(run.read_handle(malformed), malformed[:64])
        assert (code, text) == await answer(run.read_handle("r_222222222222"), "r_222222222222")
    for verb in (run.read, lambda name: run.renew(name, 60), run.delete):
        assert len({await answer(verb(name), name) for name in ("unknown", "foreign", "expired", "deleted")}) == 1
    assert "run the tool again" in (await answer(run.read_handle(expired), expired))[1]


# --- deleting


async def test_a_deleted_run_leaves_no_row_in_any_table_and_others_whole(store: ScratchStore) -> None:  # C120 C149
    await fill(store, "keep", "guest")
    before = counts(store.path)
    await fill(store, "run-42", "researcher")
    await fill(store, "run-42", "guest")
    assert await store.delete_run("run-42")
    assert counts(store.path) == before | {"agents": 2}  # an agent may own other runs
    assert await store.delete_agent("researcher")
    assert counts(store.path) == before
    assert not await store.delete_run("run-42")
    with pytest.raises(RunNotFound):
        await store.list_scratch_entries_for_run("run-42")


async def test_a_deleted_agent_goes_with_its_runs_and_with_what_it_stored_elsewhere(store: ScratchStore) -> None:
    guest = await fill(store, "theirs", "owner")
    before = counts(store.path)
    gone = await fill(store, "theirs", "leaver")
    await fill(store, "own", "leaver")
    joined = await fill(store, "own", "owner")
    assert await store.delete_agent("leaver")
    assert counts(store.path) == before
    assert [info.run_id for info in await store.list_runs()] == ["theirs"]
    assert (await guest.read("note")).text == "x"
    for scope in (gone, joined):
        assert await scope.list() == []
        with pytest.raises(RunNotFound, match=r"joined again"):
            await scope.write("note", "x")
        captured = await scope.capture(query("x" * 20_000))
        assert (captured.decision.reason, captured.handle) == ("store_failed", None)
    assert not await store.delete_agent("leaver")


@pytest.mark.parametrize(
    ("deleted", "kept"), [("run_1", "runX1"), ("user_auth", "user-auth"), ("%", "run"), ("a*", "ab")]
)
async def test_names_are_compared_exactly(store: ScratchStore, deleted: str, kept: str) -> None:  # C82 C83 C85
    bystander = await fill(store, kept, f"{kept} agent")
    assert not await store.delete_run(deleted)
    assert not await store.delete_agent(f"{deleted} agent")
    before = counts(store.path)
    await fill(store, deleted, f"{deleted} agent")
    assert len(await store.list_scratch_entries_for_run(deleted)) == 2
    assert await store.delete_run(deleted)
    assert await store.delete_agent(f"{deleted} agent")
    assert counts(store.path) == before
    assert (await bystander.read("note")).text == "x"


async def test_a_run_can_be_made_again_under_the_name_of_a_deleted_one(store: ScratchStore, run: RunScratch) -> None:
    await run.write("note", "old")
    await store.delete_run("run-42")
    assert await run.list() == []
    again = await store.run("run-42", agent_id="writer")
    assert await again.list() == []
    (info,) = await store.list_runs()
    assert info.agent_id == "writer"


async def test_a_run_that_is_deleted_while_it_is_written_to_is_gone_whole(store: ScratchStore, run: RunScratch) -> None:
    for number in range(60):
        await run.write(f"note-{number}", "x")
    outcomes = await asyncio.gather(
        store.delete_run("run-42"),
        *(run.write(f"late-{number}", "x") for number in range(20)),
        *(spill(run) for _ in range(5)),
        return_exceptions=True,
    )
    assert outcomes[0] is True
    assert counts(store.path) == {"agents": 1, "runs": 0, "run_agents": 0, "scratch_entries": 0, "scratch_chunks": 0}


# --- many at once


async def test_two_hundred_results_at_once_are_all_stored(store: ScratchStore, run: RunScratch) -> None:  # C133
    results = await asyncio.gather(*(run.capture(query(f"{number}|" + "x" * 20_000)) for number in range(200)))
    assert {captured.decision.reason for captured in results} == {"over_threshold"}
    handles = [captured.handle for captured in results]
    assert len(set(handles)) == 200
    for number, handle in enumerate(handles):
        assert handle is not None
        window = await run.read_handle(handle, length=10)
        assert window.text.startswith(f"{number}|")


async def test_eight_results_under_one_call_id_are_eight_entries(store: ScratchStore, run: RunScratch) -> None:  # C32
    call = replace(query("x" * 20_000), call_id="call_0")
    results = await asyncio.gather(*(run.capture(call) for _ in range(8)))
    assert len({captured.handle for captured in results}) == 8
    assert counts(store.path)["scratch_entries"] == 8


async def test_one_write_that_fails_takes_no_other_down(store: ScratchStore, run: RunScratch) -> None:  # C178
    gone = await store.run("gone", agent_id="researcher")
    await store.delete_run("gone")
    await run.write("taken", "x")
    outcomes = await asyncio.gather(
        run.write("a", "1"),
        gone.write("b", "2"),
        run.write("taken", "3", if_version=7),
        spill(run),
        run.write("c", "4"),
        return_exceptions=True,
    )
    assert [type(outcome).__name__ for outcome in outcomes] == ["int", "RunNotFound", "VersionConflict", "str", "int"]
    assert [info.key for info in await run.list()] == ["a", "c", "taken"]


# --- limits


async def test_what_is_over_max_entry_bytes_is_kept_or_refused(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:  # C121
    async with ScratchStore.open(path, clock=clock, max_entry_bytes=30_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert (await run.capture(query("x" * 30_000))).handle is not None
        captured = await run.capture(query("x" * 30_001))
        assert (captured.decision.reason, captured.text) == ("store_failed", "x" * 30_001)
        assert "30,001 bytes are over max_entry_bytes (30,000)" in caplog.text
        await run.write("note", "x" * 30_000)
        with pytest.raises(LimitExceeded) as caught:
            await run.write("note", "y" * 30_001)
        assert caught.value.data == {"limit": "max_entry_bytes", "size": 30_001, "most": 30_000}
        with pytest.raises(LimitExceeded):
            await run.write("note", "y", append=True)
        assert (await run.read("note")).text == "x" * 30_000
        assert (await store.check()).problems == ()


async def test_a_run_holds_no_more_than_max_run_bytes_whoever_writes(path: Path, clock: Clock) -> None:
    async with ScratchStore.open(path, clock=clock, max_run_bytes=50_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        guest = await store.run("run-42", agent_id="guest")
        handle = await spill(run, "x" * 20_000)
        await guest.write("note", "x" * 30_000)  # exactly full
        assert (await guest.capture(query("x" * 9_000))).decision.reason == "store_failed"
        with pytest.raises(LimitExceeded) as caught:
            await run.write("more", "x")
        assert caught.value.data == {"limit": "max_run_bytes", "size": 1, "held": 50_000, "most": 50_000}
        with pytest.raises(LimitExceeded):
            await guest.write("note", "x", append=True)
        assert await guest.write("note", "x" * 30_000) == 2  # not larger than it was
        assert await (await store.run("other", agent_id="guest")).write("note", "x") == 1  # another run
        assert await guest.write("note", "x" * 29_999) == 3
        assert await run.write("more", "x") == 1
        assert await run.delete(handle)
        assert (await run.capture(query("x" * 19_999))).handle is not None
        assert (await store.check()).problems == ()


async def test_what_has_expired_makes_room_before_anything_is_refused(path: Path, clock: Clock) -> None:  # C116
    async with ScratchStore.open(path, clock=clock, max_run_bytes=50_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        await spill(run, "x" * 40_000)
        live = await spill(await store.run("run-42", agent_id="guest"), "x" * 10_000)
        clock.advance(1_800)
        assert (await run.capture(query("x" * 30_000))).decision.reason == "store_failed"
        guest = await store.run("run-42", agent_id="guest")
        await guest.renew(live, 7_200)
        clock.advance(1_800)
        assert (await run.capture(query("x" * 30_000))).handle is not None
        assert (await guest.read_handle(live)).size == 10_000
        assert (await store.check()).problems == ()
        assert (await store.stats()).expired == 0


async def test_a_run_that_is_over_a_lowered_limit_can_be_made_smaller(path: Path, clock: Clock) -> None:
    async with ScratchStore.open(path, clock=clock) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("note", "x" * 50_000)
        await run.write("more", "x" * 50_000)
    async with ScratchStore.open(path, clock=clock, max_run_bytes=60_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        assert await run.write("note", "x" * 40_000) == 2
        with pytest.raises(LimitExceeded):
            await run.write("note", "x" * 40_001)
        assert await run.write("note", "x" * 5_000) == 3
        assert await run.write("note", "x" * 10_000) == 4


async def test_many_writers_at_once_never_get_over_the_limit(path: Path, clock: Clock) -> None:
    async with ScratchStore.open(path, clock=clock, max_run_bytes=100_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        results = await asyncio.gather(*(run.capture(query("x" * 15_000)) for _ in range(20)))
        assert sum(captured.handle is not None for captured in results) == 6
        assert (await store.stats()).live_bytes == 90_000
        assert (await store.check()).problems == ()


# --- figures and copies


async def test_figures_count_what_is_live_and_what_waits_for_a_sweep(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    await run.write("old", "x" * 10, ttl=10)
    await run.write("new", "x" * 100, ttl=100)
    await (await store.run("run-43", agent_id="writer")).write("new", "x" * 1_000, ttl=100)
    await store.complete_run("run-43")
    clock.advance(10)
    stats = await store.stats()
    assert (stats.runs, stats.open_runs) == (2, 1)
    assert (stats.live, stats.live_bytes, stats.expired, stats.expired_bytes) == (2, 1_100, 1, 10)
    assert stats.file_bytes == store.path.stat().st_size
    assert stats.disk_free_bytes > 0
    assert [(info.entries, info.size) for info in await store.list_runs()] == [(1, 100), (1, 1_000)]
    report = await store.check()
    assert report.problems == ()
    assert report.notes == ("1 expired entries (10 bytes) wait for a sweep",)


async def test_a_copy_holds_what_is_still_in_the_log(
    store: ScratchStore, run: RunScratch, tmp_path: Path
) -> None:  # C143
    await run.write("note", "only in the log")
    target = tmp_path / "copy.db"
    writing = asyncio.gather(*(spill(run) for _ in range(20)))
    await store.backup(target)
    await writing
    async with ScratchStore.open(target, clock=store._settings.clock) as copy:
        scope = await copy.run("run-42", agent_id="researcher")
        assert (await scope.read("note")).text == "only in the log"
        await scope.write("note", "the copy is a store like any other")
        assert (await copy.check()).problems == ()
    assert (await run.read("note")).text == "only in the log"


async def test_a_copy_overwrites_nothing_and_no_part_of_one_stays(
    store: ScratchStore, run: RunScratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(FileExistsError):
        await store.backup(target)
    assert target.read_text() == "precious"
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(FileExistsError):
        await store.backup(link)
    with pytest.raises(FileNotFoundError):
        await store.backup(tmp_path / "no folder" / "copy.db")
    await store.delete_run("run-42")
    engine = store._database._engine
    assert engine.upkeep is not None
    await engine.upkeep.call(lambda connection: connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0))
    failed = tmp_path / "failed.db"
    with pytest.raises(Exception, match="too many attached"):
        await store.backup(failed)
    assert not failed.exists()
    assert not (tmp_path / "elsewhere.db").exists()
