"""kill -9 again and again, at random points of everything that writes: what was acknowledged is there afterwards."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from scratch import NoteNotFound, RunNotFound, ScratchStore
from tests.processes import start
from tests.soak.crash import AGENT, END, POINTS, RUN
from tests.support import read_back

CHILD = """
from tests.soak.crash import main
asyncio.run(main(Path(path), *name.split(":")))
"""
HOWS = ("from outside", "statement", "moment", "steps")
PATIENCE = 120
"""Seconds after which a process that does not die fails the test; none gets near it."""
SAMPLE = 20
HELD = 60

Note = tuple[int, str]
"""Version and digest; version 0 stands for no note."""


def killed(path: Path, kind: str, how: str, seed: str, dice: random.Random) -> list[dict[str, str | int]]:
    """What a process said until it was killed."""
    process = start(CHILD, path, f"{kind}:{how}:{seed}")
    assert process.stdout is not None
    try:
        lines = []
        if how == "from outside":
            acknowledged = dice.randint(1, 20)
            while acknowledged and (line := process.stdout.readline()):
                lines.append(line)
                acknowledged -= "did" in json.loads(line)
            time.sleep(dice.uniform(0, 0.01))  # not to wait for anything: to hit another point each time
            process.kill()
            lines += process.stdout.readlines()  # communicate() does not see what was read ahead
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors) == (-signal.SIGKILL, ""), errors
    lines += output.splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Promises:
    """What was acknowledged, over all rounds."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._handles: dict[str, str] = {}
        self._notes: dict[str, Note] = {}
        self._under_way: dict[str, Note] = {}
        self._side: int | None = None  # how many entries a run had whose deletion has begun; 0: it is acknowledged
        self.read_back = 0

    def hear(self, said: list[dict[str, str | int]]) -> int:
        """Take in what a process said; how many writes of it were acknowledged."""
        self._fresh: list[str] = []
        self._side = None
        for line in said:
            match line:
                case {"did": "capture", "handle": str(handle), "digest": str(digest)}:
                    self._handles[handle] = digest
                    self._fresh.append(handle)
                case {"will": "write", "key": str(key), "version": int(version), "digest": str(digest)}:
                    self._under_way[key] = version, digest
                case {"did": "write", "key": str(key), "version": int(version), "digest": str(digest)}:
                    assert self._under_way.pop(key) == (version, digest)
                    self._notes[key] = version, digest
                case {"will": "fill"}:
                    self._side = None
                case {"will": "delete_run", "entries": int(entries)}:
                    self._side = entries
                case {"did": "delete_run"}:
                    self._side = 0
        return sum("did" in line and line["did"] != "open" for line in said)

    async def check(self, store: ScratchStore) -> None:
        """All of it holds, and the file is sound. Afterwards some of it is deleted, or the file would grow."""
        assert (await store.check()).problems == ()
        run = await store.run(RUN, agent_id=AGENT)
        older = [handle for handle in self._handles if handle not in self._fresh]
        for handle in self._fresh + self._dice.sample(older, min(SAMPLE, len(older))):
            assert hashlib.sha256(await read_back(run, handle)).hexdigest() == self._handles[handle]
            self.read_back += 1
        for key in self._notes.keys() | self._under_way.keys():
            try:
                note = await run.read(key)
                found = note.version, hashlib.sha256(note.content).hexdigest()
            except NoteNotFound:
                found = 0, ""
            acknowledged = self._notes.get(key, (0, ""))
            assert found in (acknowledged, self._under_way.get(key, acknowledged))
            self._notes[key] = found
            self.read_back += 1
        self._under_way.clear()
        if self._side is not None:
            try:
                live = len(await store.list_scratch_entries_for_run("side"))
            except RunNotFound:
                live = 0
            assert live in (0, self._side)
        await store.delete_run("side")
        for handle in list(self._handles)[:-HELD]:
            del self._handles[handle]
            assert await run.delete(handle)

    async def check_all(self, store: ScratchStore) -> None:
        self._fresh = list(self._handles)
        await self.check(store)


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.soak)])
async def test_what_was_acknowledged_survives_kill_9_at_any_point(
    path: Path, kills: int, seed: int, figures: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(seed)
    promises = Promises(dice)
    kinds: Counter[str] = Counter()
    points: Counter[str] = Counter()
    acknowledged = 0
    for number in range(kills):
        kind, how = list(POINTS)[number % len(POINTS)], dice.choice(HOWS)
        # every other time the store is also open here, so that its locks and the index of its WAL outlive the process
        survivor = await ScratchStore.open(path) if number % 2 else None
        print(f"kill {number}: {kind}, {how}")
        said = killed(path, kind, how, f"{seed} {number}", dice)
        kinds[kind] += 1
        points[next((str(line[END]) for line in said if END in line), "from outside")] += 1
        acknowledged += promises.hear(said)
        async with ScratchStore.open(path) as store:
            await promises.check(store)
            if number % 5 == 4:
                await store.sweep()
        if survivor is not None:
            run = await survivor.run(RUN, agent_id="survivor")
            await run.write("note", str(number))
            await survivor.close()
    async with ScratchStore.open(path) as store:
        await promises.check_all(store)
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # nothing was set aside
    figures += [
        ("kills: seed", str(seed)),
        ("kills", f"{kills} ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"),
        ("they came", ", ".join(f"{point}: {count}" for point, count in points.most_common())),
        ("acknowledged", f"{acknowledged:,} operations before them; {promises.read_back:,} times read back"),
        ("lost by kills", "0"),
    ]
