"""A writer of the load."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from typing import Any

from scratch import HandleNotFound, Kind, RunScratch, ScratchStore, VersionConflict
from tests.soak.common import LOGS, LONG, SIZES, SLACK, Meter, body, digest, journal, line, run_of
from tests.support import query

HELD = 40
"""Long-lived results of a writer; for one more, the oldest is deleted."""
WEIGHTS = {
    "capture": 40,
    "capture_long": 15,
    "burst": 4,
    "note": 10,
    "append": 10,
    "if_version": 8,
    "brief": 5,
    "count": 4,
    "log": 6,
    "renew": 6,
    "delete": 4,
    "delete_run": 1,
}


class Writer:
    """Writes at random, and knows what must be there."""

    def __init__(self, store: ScratchStore, name: str, dice: random.Random, meter: Meter) -> None:
        self._store = store
        self._name = name
        self._dice = dice
        self._meter = meter
        self._number = 0
        self._journal = journal(store.path, name).open("a", encoding="utf-8")
        self._held: dict[str, tuple[int, int]] = {}  # handle: number and size
        self._short: deque[tuple[str, int, int, float]] = deque(maxlen=20)  # handle, number, size, until
        self._notes: dict[str, tuple[int, str]] = {}  # key: version and text
        self._last_brief = (0, 0.0)  # version, and until when it lives at least
        self._counted = 0
        self._logged: list[str] = []

    async def work(self, until: float) -> dict[str, object]:
        self._run = await self._store.run(run_of(self._name), agent_id=self._name)
        self._shared = await self._store.run("shared", agent_id="shared")
        while time.monotonic() < until:
            (verb,) = self._dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await getattr(self, f"_{verb}")()
        self._journal.close()
        notes = {key: [version, digest(text)] for key, (version, text) in self._notes.items()}
        return self._meter.report(held=self._held, notes=notes, counted=self._counted, logged=self._logged)

    def _tell(self, handle: str, *what: object) -> None:
        """What the readers hear: after the acknowledgement, and before a deletion."""
        self._journal.write(json.dumps([handle, *what]) + "\n")
        self._journal.flush()

    async def _store_result(self, run: RunScratch, ttl: float) -> tuple[str, int, int, float]:
        self._number += 1
        number = self._number
        size = round(SIZES[0] * (SIZES[1] / SIZES[0]) ** self._dice.random())
        content = query(body(self._name, number, size))
        until = time.time() + ttl - SLACK
        captured = await self._meter.time("capture", run.capture(content, ttl=ttl))
        if captured.handle is None:
            msg = f"a result was kept in context: {captured.decision.reason}"
            raise AssertionError(msg)
        return captured.handle, number, size, until

    async def _capture(self) -> None:
        entry = await self._store_result(self._run, self._dice.uniform(1, 2))
        self._tell(*entry)
        self._short.append(entry)

    async def _burst(self) -> None:
        await asyncio.gather(*(self._capture() for _ in range(4)))

    async def _capture_long(self) -> None:
        handle, number, size, until = await self._store_result(self._run, LONG)
        self._tell(handle, number, size, until)
        self._held[handle] = number, size
        if len(self._held) > HELD:
            await self._drop(next(iter(self._held)))

    async def _delete(self) -> None:
        if self._held:
            await self._drop(self._dice.choice(list(self._held)))
        if self._notes:
            key = self._dice.choice(list(self._notes))
            del self._notes[key]
            assert await self._meter.time("delete", self._run.delete(key))

    async def _drop(self, handle: str) -> None:
        self._tell(handle)
        del self._held[handle]
        assert await self._meter.time("delete", self._run.delete(handle))

    async def _renew(self) -> None:
        if not self._short:
            return
        handle, number, size, until = self._short.popleft()
        renewed = time.time() + LONG - SLACK
        try:
            await self._meter.time("renew", self._run.renew(handle, LONG))
        except HandleNotFound:
            assert time.time() >= until, f"{handle} was lost"
            self._meter.counts["expired before it was renewed"] += 1
            return
        self._held[handle] = number, size
        self._tell(handle, number, size, renewed)

    def _text(self, most: int) -> str:
        return line(self._dice.randbytes(self._dice.randrange(10, most)).hex())

    async def _write(self, what: str, text: str, **options: Any) -> None:
        key = f"{self._name}-{self._dice.randrange(4)}" if what == "if_version" else f"{self._name}-{what}"
        version, held = self._notes.get(key, (0, ""))
        if what == "if_version":
            options = {"if_version": version}
        written = await self._meter.time(what, self._run.write(key, text, **options))
        assert written == version + 1, f"{key} has version {written}, not {version + 1}"
        self._notes[key] = written, (held if "append" in options else "") + text

    async def _note(self) -> None:
        await self._write("note", self._text(60_000))

    async def _if_version(self) -> None:
        await self._write("if_version", self._text(20_000))

    async def _append(self) -> None:
        _, held = self._notes.get(f"{self._name}-append", (0, ""))
        options = {"append": True} if len(held) < 200_000 else {}
        await self._write("append", self._text(10_000), **options)

    async def _brief(self) -> None:
        """A note that expires between two writes of it, or does not."""
        version, until = self._last_brief
        ttl = self._dice.uniform(0.5, 1)
        lives = time.time() + ttl - SLACK
        written = await self._meter.time("note", self._run.write(f"{self._name}-brief", self._text(5_000), ttl=ttl))
        assert written == version + 1 or (written == 1 and time.time() >= until)
        self._last_brief = written, lives

    async def _count(self) -> None:
        """All writers count in one note."""
        while True:
            note = await self._shared.read("counter")
            try:
                write = self._shared.write("counter", str(int(note.text) + 1), if_version=note.version)
                await self._meter.time("count", write)
            except VersionConflict:
                self._meter.counts["conflicts"] += 1
                continue
            self._counted += 1
            return

    async def _log(self) -> None:
        """All writers append to the same notes."""
        self._number += 1
        entry = f"{self._name} {self._number}"
        await self._meter.time("append", self._shared.write(f"log-{self._number % LOGS}", line(entry), append=True))
        self._logged.append(entry)

    async def _delete_run(self) -> None:
        name = f"side-{self._name}"
        side = await self._store.run(name, agent_id=self._name)
        handles = [(await self._store_result(side, LONG))[0] for _ in range(3)]
        self._meter.counts["runs deleted"] += 1
        assert {info.key for info in await side.list(kind=Kind.HANDLE)} == set(handles)
        assert await self._store.delete_run(name)
        assert await side.list(kind=Kind.HANDLE) == []
