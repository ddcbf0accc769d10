"""What the tests share: a clock that stands still, and a store that is checked when a test is done with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from scratch import RunScratch, ScratchStore
from tests.support import Clock

# A long run: pytest tests/test_hostile.py --hypothesis-profile=soak
settings.register_profile("soak", max_examples=10_000, deadline=None)


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
