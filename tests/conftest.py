"""What the tests share: a clock that stands still, and a store that is checked when a test is done with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scratch import Observation, RunScratch, ScratchStore


class Clock:
    """Seconds since the epoch, as told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def query(content: object, tool: str = "run_query") -> Observation:
    """A result that may be spilled."""
    return Observation(content=content, tool=tool, tool_class="query")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scratch.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[ScratchStore]:
    """An open store; afterwards its file must be sound."""
    async with ScratchStore.open(path, clock=clock) as store:
        yield store
        report = await store.check()
        assert report.problems == ()


@pytest.fixture
async def run(store: ScratchStore) -> RunScratch:
    return await store.run("run-42", agent_id="researcher")
