"""The store against a dict: whatever is done in whatever order, both hold the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scratch import HandleNotFound, Kind, NoteNotFound, RunScratch, ScratchStore, VersionConflict
from tests.support import Clock, query

T = TypeVar("T")

SCOPES = [("run-1", "a"), ("run-1", "b"), ("run-2", "a")]
KEYS = ["k", "K", "%", "k_", "é"]
scopes = st.integers(0, len(SCOPES) - 1)
keys = st.sampled_from(KEYS)
lives = st.sampled_from([0.001, 1, 5, timedelta(seconds=30), 3_600])
notes = st.one_of(st.text(max_size=8), st.binary(max_size=8), st.sampled_from([65_535, 65_536, 70_000]).map(bytes))
results = st.sampled_from(["x" * 9_000, "é" * 70_000, b"\xff\0" * 40_000])


@dataclass(frozen=True, slots=True)
class Row:
    content: bytes
    version: int
    created_at: int
    expires_at: int


def milliseconds(life: float | timedelta) -> int:
    seconds = life.total_seconds() if isinstance(life, timedelta) else life
    return round(seconds * 1_000)


def stored(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


class StoreMachine(RuleBasedStateMachine):
    """``rows`` is the model: by scope, kind and key. What has expired stays in it until it is swept or replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.rows: dict[tuple[int, Kind, str], Row] = {}
        self.handles: list[tuple[int, str]] = []

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def now(self) -> int:
        return int(self.clock.now * 1_000)

    def live(self, scope: int, kind: Kind, key: str) -> Row | None:
        row = self.rows.get((scope, kind, key))
        return row if row is not None and row.expires_at > self.now else None

    async def open(self) -> None:
        self.store = await ScratchStore.open(self.folder / "scratch.db", clock=self.clock)
        self.runs: list[RunScratch] = [await self.store.run(run, agent_id=agent) for run, agent in SCOPES]

    @initialize()
    def begin(self) -> None:
        self.do(self.open())

    # --- what is done

    @rule(seconds=st.sampled_from([0.001, 0.999, 1, 4, 29, 4_000, -0.5, -3, -5_000]))
    def set_the_clock(self, seconds: float) -> None:
        self.clock.now = round(self.clock.now + seconds, 3)

    @rule(
        scope=scopes,
        key=keys,
        value=notes,
        life=lives,
        append=st.booleans(),
        expected=st.one_of(st.none(), st.integers(0, 3)),
    )
    def write(
        self, scope: int, key: str, value: str | bytes, life: float | timedelta, append: bool, expected: int | None
    ) -> None:
        row = self.live(scope, Kind.NOTE, key)
        version = 0 if row is None else row.version
        work = self.runs[scope].write(key, value, ttl=life, append=append, if_version=expected)
        if expected not in (None, version):
            with pytest.raises(VersionConflict) as caught:
                self.do(work)
            assert caught.value.data["current_version"] == version
            return
        assert self.do(work) == version + 1
        expires_at = self.now + milliseconds(life)
        if row is None:
            row = Row(stored(value), 1, self.now, expires_at)
        elif append:
            row = Row(row.content + stored(value), version + 1, row.created_at, max(row.expires_at, expires_at))
        else:
            row = Row(stored(value), version + 1, row.created_at, expires_at)
        self.rows[scope, Kind.NOTE, key] = row

    @rule(scope=scopes, value=results, life=lives)
    def capture(self, scope: int, value: str | bytes, life: float | timedelta) -> None:
        captured = self.do(self.runs[scope].capture(query(value), ttl=life))
        assert captured.handle is not None
        row = Row(stored(value), 1, self.now, self.now + milliseconds(life))
        self.rows[scope, Kind.HANDLE, captured.handle] = row
        self.handles.append((scope, captured.handle))

    def _some_handle(self, number: int) -> str:
        return self.handles[number % len(self.handles)][1] if self.handles else "r_222222222222"

    @rule(scope=scopes, key=st.one_of(keys, st.integers(0, 50)))
    def delete(self, scope: int, key: str | int) -> None:
        kind, name = (Kind.NOTE, key) if isinstance(key, str) else (Kind.HANDLE, self._some_handle(key))
        row = self.live(scope, kind, name)
        assert self.do(self.runs[scope].delete(name)) is (row is not None)
        if row is not None:
            del self.rows[scope, kind, name]

    @rule(scope=scopes, key=st.one_of(keys, st.integers(0, 50)), life=lives)
    def renew(self, scope: int, key: str | int, life: float | timedelta) -> None:
        kind, name = (Kind.NOTE, key) if isinstance(key, str) else (Kind.HANDLE, self._some_handle(key))
        row = self.live(scope, kind, name)
        work = self.runs[scope].renew(name, life)
        if row is None:
            with pytest.raises((HandleNotFound, NoteNotFound)):
                self.do(work)
            return
        row = replace(row, expires_at=max(row.expires_at, self.now + milliseconds(life)))
        assert round(self.do(work).timestamp() * 1_000) == row.expires_at
        self.rows[scope, kind, name] = row

    @rule()
    def sweep(self) -> None:
        expired = [name for name, row in self.rows.items() if row.expires_at <= self.now]
        report = self.do(self.store.sweep())
        assert (report.entries, report.bytes) == (len(expired), sum(len(self.rows[name].content) for name in expired))
        for name in expired:
            del self.rows[name]

    @rule(run_id=st.sampled_from(["run-1", "run-2"]))
    def delete_a_run(self, run_id: str) -> None:
        assert self.do(self.store.delete_run(run_id))
        self.rows = {name: row for name, row in self.rows.items() if SCOPES[name[0]][0] != run_id}
        self.runs = [self.do(self.store.run(run, agent_id=agent)) for run, agent in SCOPES]

    @rule()
    def open_again(self) -> None:
        self.do(self.store.close())
        self.do(self.open())

    # --- what must hold

    @rule(scope=scopes, key=keys)
    def read(self, scope: int, key: str) -> None:
        row = self.live(scope, Kind.NOTE, key)
        if row is None:
            with pytest.raises(NoteNotFound):
                self.do(self.runs[scope].read(key))
        else:
            note = self.do(self.runs[scope].read(key))
            assert (note.content, note.version, note.info.expires_at) == (row.content, row.version, row.expires_at)

    @rule(scope=scopes, number=st.integers(0, 50), offset=st.sampled_from([0, 1, 65_535, 65_536, 139_999, 10**9]))
    def read_a_result(self, scope: int, number: int, offset: int) -> None:
        handle = self._some_handle(number)
        row = self.live(scope, Kind.HANDLE, handle)
        work = self.runs[scope].read_handle(handle, offset=offset, length=1_000)
        if row is None:
            with pytest.raises(HandleNotFound):
                self.do(work)
        else:
            window = self.do(work)
            assert window.data == row.content[window.offset : window.end]
            assert window.size == len(row.content)

    @invariant()
    def both_list_the_same(self) -> None:
        for run_id in ("run-1", "run-2"):
            found = {
                (SCOPES.index((info.run_id, info.agent_id)), info.kind, info.key): (
                    info.size,
                    info.version,
                    info.created_at,
                    info.expires_at,
                )
                for info in self.do(self.store.list_scratch_entries_for_run(run_id))
            }
            assert found == {
                name: (len(row.content), row.version, row.created_at, row.expires_at)
                for name, row in self.rows.items()
                if row.expires_at > self.now and SCOPES[name[0]][0] == run_id
            }

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                report = self.do(self.store.check())
                self.do(self.store.close())
                assert report.problems == ()
                assert (report.stats.live + report.stats.expired, report.stats.runs) == (len(self.rows), 2)
        finally:
            self.do(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.folder)


StoreMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestStoreIsLikeADict = StoreMachine.TestCase
