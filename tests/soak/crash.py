"""A process that does one kind of thing to a store until it is killed, or kills itself at a point it was given.

It tells each write in a line of JSON before it begins ("will") and after it was acknowledged ("did").
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scratch import NoteNotFound, ScratchStore
from tests.support import query

RUN = "run-42"
AGENT = "p0"
POINTS = {
    "capture": ("BEGIN", "INSERT INTO scratch_entries", "INSERT INTO scratch_chunks", "COMMIT"),
    "write": ("UPDATE", "DELETE", "INSERT INTO scratch_chunks", "COMMIT"),
    "append": ("UPDATE", "DELETE", "INSERT INTO scratch_chunks", "COMMIT"),
    "if_version": ("UPDATE", "DELETE", "INSERT INTO scratch_chunks", "COMMIT"),
    "sweep": ("DELETE FROM scratch_entries", "COMMIT"),
    "vacuum": ("PRAGMA incremental_vacuum",),
    "checkpoint": ("PRAGMA wal_checkpoint",),
    "delete_run": ("UPDATE scratch_entries", "DELETE FROM scratch_entries", "DELETE FROM runs", "COMMIT"),
}
"""What can be done until it is killed, and at the beginnings of which statements it can kill itself."""
END = "end of life"


def say(**what: object) -> None:
    # one write(): a line is there whole or not at all, whatever the other threads say, or do
    os.write(1, json.dumps(what).encode() + b"\n")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def die(where: str) -> None:
    say(**{END: where})
    os.kill(os.getpid(), signal.SIGKILL)


class Doom:
    """When the process kills itself: at a statement, a little after its beginning, or after so many steps of SQLite.

    In which of these, the dice say. The little while goes by on a thread: it can end inside a commit, a checkpoint or
    a vacuum step, which are one step for SQLite.
    """

    def __init__(self, how: str, kind: str, dice: random.Random) -> None:
        self._start = dice.choice(POINTS[kind])
        self._left = dice.randint(1, 6 if kind in ("vacuum", "checkpoint", "delete_run") else 30)
        self._steps = round(30_000 ** dice.random())
        self._delay = dice.uniform(0, 0.004) if how == "moment" else 0.0
        self._how = how

    def arm(self, connection: sqlite3.Connection) -> None:
        if self._how == "steps":
            connection.set_progress_handler(self._on_step, 1)
        elif self._how in ("statement", "moment"):
            connection.set_trace_callback(self._on_statement)

    def _on_step(self) -> int:
        self._steps -= 1
        if self._steps == 0:
            die("a step")
        return 0

    def _on_statement(self, sql: str) -> None:
        if not sql.lstrip().startswith(self._start):
            return
        self._left -= 1
        if self._left == 0 and self._delay:
            threading.Thread(target=self._die_later, daemon=True).start()
        elif self._left == 0:
            die(f"before {self._start}")

    def _die_later(self) -> None:
        time.sleep(self._delay)
        die(f"in {self._start}")


class Worker:
    """Does the same thing again and again."""

    def __init__(self, store: ScratchStore, dice: random.Random, doom: Callable[[], Any]) -> None:
        self._store = store
        self._dice = dice
        self._arm = doom

    async def work(self, kind: str) -> None:
        self._run = await self._store.run(RUN, agent_id=AGENT)
        self._key = f"note-{kind}"
        try:
            note = await self._run.read(self._key)
            self._version, self._text = note.version, note.text
        except NoteNotFound:
            self._version, self._text = 0, ""
        if kind not in ("vacuum", "delete_run"):
            await self._arm()
        while True:
            await getattr(self, f"_{kind}")()

    def _body(self, least: int, most: int) -> str:
        size = round(least * (most / least) ** self._dice.random())
        return self._dice.randbytes(size // 2).hex()

    async def _store_one(self, least: int = 9 * 1024, most: int = 1024 * 1024, **options: Any) -> str:
        text = self._body(least, most)
        captured = await self._run.capture(query(text), **options)
        assert captured.handle is not None
        if "ttl" not in options:
            say(did="capture", handle=captured.handle, digest=digest(text))
        return captured.handle

    async def _capture(self) -> None:
        await asyncio.gather(*(self._store_one() for _ in range(self._dice.randint(1, 5))))

    async def _write(self, text: str | None = None, **options: Any) -> None:
        text = text or self._body(1_000, 300_000)
        whole = self._text + text if "append" in options else text
        say(will="write", key=self._key, version=self._version + 1, digest=digest(whole))
        self._version = await self._run.write(self._key, text, **options)
        self._text = whole
        say(did="write", key=self._key, version=self._version, digest=digest(whole))

    async def _append(self) -> None:
        if len(self._text) > 400_000:
            await self._write()
        else:
            await self._write(self._body(100, 40_000), append=True)

    async def _if_version(self) -> None:
        await self._write(if_version=self._version)

    async def _sweep(self) -> None:
        await self._store_one(most=100_000)
        await asyncio.gather(*(self._store_one(most=100_000, ttl=0.001) for _ in range(20)))
        await self._store.sweep()
        say(did="sweep")

    async def _vacuum(self) -> None:
        """Nothing has expired when it sweeps: all that there is to do is to give space back."""
        await self._store_one()
        for handle in [await self._store_one(most=3_000_000, ttl=60) for _ in range(10)]:
            await self._run.delete(handle)
        await self._arm()
        await self._store.sweep()
        say(did="vacuum")

    async def _checkpoint(self) -> None:
        await self._capture()
        if self._dice.random() < 0.3:
            await self._store.sweep()

    async def _delete_run(self) -> None:
        say(will="fill")
        side = await self._store.run("side", agent_id=AGENT)
        for _ in range(60):
            assert (await side.capture(query(self._body(9 * 1024, 50_000)))).handle is not None
        say(will="delete_run", entries=60)
        await self._arm()
        await self._store.delete_run("side")
        say(did="delete_run")


async def main(path: Path, kind: str, how: str, seed: str) -> None:
    logging.basicConfig(level=logging.ERROR)
    dice = random.Random(seed)
    doom = Doom(how, kind, dice)
    store = await ScratchStore.open(path)
    engine = store._database._engine

    async def arm() -> None:
        assert engine.writer is not None
        assert engine.upkeep is not None
        for worker in (engine.writer, engine.upkeep):
            await worker.call(doom.arm)

    say(did="open")
    await Worker(store, dice, arm).work(kind)
