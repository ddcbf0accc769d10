"""Every verb, cancelled at every place where it waits: the file stays sound, nothing hangs, the verb works again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scratch import ScratchStore
from scratch import artifacts as documents
from tests.faults_support import (
    FIGURES,
    LARGE,
    READS,
    TOOL_READS,
    TOOL_WRITES,
    WRITES,
    Kit,
    Verb,
    call,
    cancelled_everywhere,
    open_kit,
)
from tests.support import Clock, add_expired, query

HEAVY = "heavy " * 200_000
"""So large that it is worked on in a thread."""
NAMES = itertools.count()


async def sweep_some(kit: Kit) -> None:
    add_expired(kit.path, 3)
    await kit.store.sweep(batch_entries=1)


VERBS: dict[str, Verb] = {
    **WRITES,
    **READS,
    **FIGURES,
    "sweep": sweep_some,
    "capture": lambda kit: kit.run.capture(query(LARGE)),
    "heavy capture": lambda kit: kit.run.capture(query(HEAVY)),
    "capture by tools": lambda kit: kit.tools.capture(query(LARGE)),
    "heavy artifact": lambda kit: kit.run.write_artifact("heavy.md", HEAVY),
    "capture_result": lambda kit: documents.capture_result(kit.run, LARGE, task=1, worker="w", iteration=1),
    "backup": lambda kit: kit.store.backup(kit.path.with_name(f"copy-{next(NAMES)}")),
    **{f"tool {tool}": lambda kit, tool=tool: call(kit, tool) for tool in {**TOOL_READS, **TOOL_WRITES}},  # type: ignore[misc]
}


async def files_at_rest(kit: Kit) -> list[str]:
    """The open files when the checkpoints are over that writes have asked for: one opens the WAL for its turn."""
    await kit.store._database._engine.maintain(lambda _: None)
    return sorted(open_files(kit.path))


def open_files(path: Path) -> Iterator[str]:
    """The store's own, as often as they are open in this process."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith(str(path)):
                yield target


@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_cancelled_at_every_await_harms_nothing(path: Path, name: str) -> None:
    async with asyncio.timeout(60), open_kit(path) as kit:
        await VERBS[name](kit)
        files = await files_at_rest(kit)

        def verb() -> Coroutine[Any, Any, object]:
            async def run() -> object:
                return await VERBS[name](kit)

            return run()

        times = 0
        async for _ in cancelled_everywhere(verb):
            times += 1
            assert await kit.run.write("after", str(times)) == times  # no transaction was left open
        assert times >= 2
        await VERBS[name](kit)
        assert (await kit.store.check()).problems == ()
        assert await files_at_rest(kit) == files


@pytest.mark.parametrize("what", ["open", "open to read", "enter and close"])
async def test_opening_and_closing_cancelled_at_every_await_leave_nothing_open(path: Path, what: str) -> None:
    async with open_kit(path):
        pass

    async def run() -> None:
        if what == "enter and close":
            async with ScratchStore.open(path) as store:
                kept = await store.run("run-42", agent_id="researcher")
                await kept.write("note", "x")
            return
        store = await ScratchStore.open(path, read_only=what == "open to read")
        await store.close()

    times = 0
    async with asyncio.timeout(60):
        async for _ in cancelled_everywhere(run):
            times += 1
            assert list(open_files(path)) == []
    assert times >= 2
    async with ScratchStore.open(path, clock=Clock()) as store:
        assert (await store.check()).problems == ()
