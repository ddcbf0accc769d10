"""Whatever is done in whatever order, the store behaves like a dict whose entries expire."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from scratch import HandleNotFound, Kind, NoteNotFound, RunScratch, ScratchStore
from tests.support import Clock, query

SCOPES = [("run-1", "a"), ("run-1", "b")]
scopes = st.integers(0, len(SCOPES) - 1)
keys = st.sampled_from(["plan", "log", "%", "_x"])
texts = st.text(st.characters(codec=None), max_size=20)
lives = st.integers(1, 100)


class Model(RuleBasedStateMachine):
    """The model: by scope and key, the text, the version and when it expires (in seconds)."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock(1_000_000.0)
        self.runner = asyncio.Runner()
        self.store = self.runner.run(self._open())
        self.runs = [self.runner.run(self._join(*scope)) for scope in SCOPES]
        self.notes: list[dict[str, tuple[str, int, float]]] = [{} for _ in SCOPES]
        self.results: list[dict[str, tuple[str, float]]] = [{} for _ in SCOPES]

    async def _open(self) -> ScratchStore:
        return await ScratchStore.open(Path(self.folder.name) / "scratch.db", clock=self.clock)

    async def _join(self, run_id: str, agent_id: str) -> RunScratch:
        return await self.store.run(run_id, agent_id=agent_id)

    def live(self, scope: int) -> dict[str, tuple[str, int, float]]:
        return {key: note for key, note in self.notes[scope].items() if note[2] > self.clock.now}

    @rule(scope=scopes, key=keys, text=texts, life=lives, append=st.booleans())
    def write(self, scope: int, key: str, text: str, life: int, append: bool) -> None:
        old, version, expires = self.live(scope).get(key, ("", 0, 0.0))
        new = self.clock.now + life
        written = self.runner.run(self.runs[scope].write(key, text, ttl=life, append=append))
        assert written == version + 1
        self.notes[scope][key] = (old + text, written, max(expires, new)) if append else (text, written, new)

    @rule(scope=scopes, key=keys)
    def delete(self, scope: int, key: str) -> None:
        there = key in self.live(scope)
        assert self.runner.run(self.runs[scope].delete(key)) is there
        if there:
            del self.notes[scope][key]

    @rule(scope=scopes, key=keys, life=lives)
    def renew(self, scope: int, key: str, life: int) -> None:
        note = self.live(scope).get(key)
        if note is None:
            with pytest.raises(NoteNotFound):
                self.runner.run(self.runs[scope].renew(key, life))
            return
        expires = max(note[2], self.clock.now + life)
        assert self.runner.run(self.runs[scope].renew(key, life)).timestamp() == expires
        self.notes[scope][key] = (note[0], note[1], expires)

    @rule(target=handles, scope=scopes, text=texts, life=lives)
    def capture(self, scope: int, text: str, life: int) -> object:
        content = "x" * 9_000 + text
        captured = self.runner.run(self.runs[scope].capture(query(content), ttl=life))
        assert captured.handle is not None
        self.results[scope][captured.handle] = (content, self.clock.now + life)
        return captured.handle

    @rule(scope=scopes, handle=handles)
    def read_back(self, scope: int, handle: str) -> None:
        content, expires = self.results[scope].get(handle, ("", 0.0))
        read = self.runs[scope].read_handle(handle, length=32_768)
        if expires > self.clock.now:
            assert self.runner.run(read).text == content
        else:
            with pytest.raises(HandleNotFound):
                self.runner.run(read)

    @rule(scope=scopes, handle=consumes(handles))
    def delete_handle(self, scope: int, handle: str) -> None:
        there = self.results[scope].get(handle, ("", 0.0))[1] > self.clock.now
        assert self.runner.run(self.runs[scope].delete(handle)) is there
        if there:
            del self.results[scope][handle]

    @rule(seconds=st.integers(-60, 120))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(target=handles)
    def sweep(self) -> object:
        report = self.runner.run(self.store.sweep())
        gone = 0
        for scope in range(len(SCOPES)):
            before = len(self.notes[scope]) + len(self.results[scope])
            self.notes[scope] = self.live(scope)
            self.results[scope] = {h: r for h, r in self.results[scope].items() if r[1] > self.clock.now}
            gone += before - len(self.notes[scope]) - len(self.results[scope])
        assert report.entries <= gone  # what was written over after it had expired is gone already
        return multiple()

    @invariant()
    def is_the_model(self) -> None:
        listed = 0
        for scope, run in enumerate(self.runs):
            live = self.live(scope)
            assert [info.key for info in self.runner.run(run.list())] == sorted(live)
            for key, (text, version, expires) in live.items():
                note = self.runner.run(run.read(key))
                assert (note.text, note.version, note.info.expires_at) == (text, version, expires * 1000)
            handles = {h for h, (_, expires) in self.results[scope].items() if expires > self.clock.now}
            assert {info.key for info in self.runner.run(run.list(kind=Kind.HANDLE))} == handles
            listed += len(live) + len(handles)
        assert len(self.runner.run(self.store.list_scratch_entries_for_run("run-1"))) == listed

    def teardown(self) -> None:
        try:
            assert self.runner.run(self.store.check()).problems == ()
        finally:
            self.runner.run(self.store.close())
            self.runner.close()
            self.folder.cleanup()


Model.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestModel = Model.TestCase
