"""One process of the load: a writer, a sweeper or a reader, on a store that the others use at the same time.

It says "ready", begins when it is told to go, and ends with one line of JSON. Whatever is not as promised is raised.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from scratch import HandleNotFound, Kind, NoteNotFound, RunScratch, ScratchStore, VersionConflict
from scratch.database.maintenance import wal_bytes
from scratch.tools import Toolset
from tests.support import query

T = TypeVar("T")

WRITERS = 8
SWEEPER = WRITERS  # the number of the process that sweeps; the readers come after it
READERS = 2
LOGS = 8
SIZES = (9 * 1024, 1024 * 1024)
LONG = 3_600.0
"""Seconds that an entry lives which must be there at the end."""
SLACK = 0.002
"""Seconds: times in the store are whole milliseconds."""
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


def run_of(writer: str) -> str:
    """Two writers share a run."""
    return f"run-{int(writer[1:]) % 4}"


def mark(writer: str, number: int) -> str:
    """Stands at the beginning and at the end of a result, and nowhere else."""
    return f"<{writer}-{number}>"


def body(writer: str, number: int, size: int) -> str:
    """A result of about ``size`` bytes in lines of 80, which anybody can make again."""
    lines = random.Random(f"{writer} {number}").randbytes(size // 2).hex("\n", 40)
    return f"{mark(writer, number)}\n{lines}\n{mark(writer, number)}\n"


def line(text: str) -> str:
    """A line of a note that tells whether it is whole."""
    return f"{digest(text)} {text}\n"


def is_whole(note: str) -> bool:
    """Whether every line of a note is."""
    return note.endswith("\n") and all(line(one.partition(" ")[2]) == f"{one}\n" for one in note.splitlines())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def journal(path: Path, writer: str) -> Path:
    """Where a writer tells what was acknowledged."""
    return path.with_name(f"{writer}.journal")


class Meter:
    """Counts operations, and keeps how long each took and how large the WAL was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = 0
        self._waits: dict[str, list[float]] = {}
        self.counts: Counter[str] = Counter()

    async def time(self, what: str, operation: Awaitable[T]) -> T:
        started = time.perf_counter()
        result = await operation
        self._waits.setdefault(what, []).append(round((time.perf_counter() - started) * 1000, 3))
        self._wal = max(self._wal, wal_bytes(self._path))
        return result

    def report(self, **more: object) -> dict[str, object]:
        return {"waits": self._waits, "wal": self._wal, "counts": self.counts, **more}


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


class Reader:
    """Reads at random what the writers have told."""

    def __init__(self, store: ScratchStore, dice: random.Random, meter: Meter) -> None:
        self._store = store
        self._dice = dice
        self._meter = meter
        self._writers = [f"p{number}" for number in range(WRITERS)]
        self._told: dict[str, dict[str, tuple[int, int, float]]] = {}
        self._read_to = dict.fromkeys(self._writers, 0)

    async def work(self, until: float) -> dict[str, object]:
        verbs: dict[str, Callable[..., Awaitable[None]]] = {
            "range": self._range,
            "match": self._match,
            "list": self._list,
            "grep": self._grep,
            "read": self._read_note,
        }
        runs = {name: await self._store.run(run_of(name), agent_id=name) for name in self._writers}
        while time.monotonic() < until:
            writer = self._dice.choice(self._writers)
            self._listen(writer)
            told = list(self._told[writer].items())
            if self._dice.random() < 0.9:  # else what has expired is asked for, too
                told = [one for one in told if one[1][2] > time.time()]
            if not told:
                await asyncio.sleep(0.01)  # nobody has written yet
                continue
            handle, (number, size, lives) = self._dice.choice(told)
            verb = self._dice.choice(list(verbs))
            try:
                await self._meter.time(verb, verbs[verb](runs[writer], writer, handle, number, size))
            except (HandleNotFound, NoteNotFound):
                self._listen(writer)
                *_, lives = self._told[writer].get(handle, (0, 0, 0.0))
                assert verb == "read" or time.time() >= lives, f"{handle} was lost"
                self._meter.counts["gone"] += 1
        return self._meter.report()

    def _listen(self, writer: str) -> None:
        told = self._told.setdefault(writer, {})
        path = journal(self._store.path, writer)
        if not path.exists():
            return
        with path.open(encoding="utf-8") as file:
            file.seek(self._read_to[writer])
            while (line := file.readline()).endswith("\n"):
                self._read_to[writer] = file.tell()
                handle, *what = json.loads(line)
                told.pop(handle, None)
                if what:
                    told[handle] = (what[0], what[1], what[2])

    async def _range(self, run: RunScratch, writer: str, handle: str, number: int, size: int) -> None:
        whole = body(writer, number, size)
        start = self._dice.randrange(len(whole))
        window = await run.read_handle(handle, offset=start, length=32_768)
        assert (window.text, window.size) == (whole[start : start + 32_768], len(whole))

    async def _match(self, run: RunScratch, writer: str, handle: str, number: int, size: int) -> None:
        whole = body(writer, number, size)
        found = await run.read_handle(handle, match=mark(writer, number), context=0)
        assert [start for window in found.windows for start in window.matches] == [
            0,
            whole.rindex(mark(writer, number)),
        ]
        assert found.total_matches == 2
        assert found.searched_bytes == len(whole)

    async def _list(self, run: RunScratch, writer: str, handle: str, number: int, size: int) -> None:
        infos = await run.list(kind=Kind.HANDLE, prefix=handle)
        if not infos:
            raise HandleNotFound(handle)
        assert [(info.key, info.size) for info in infos] == [(handle, len(body(writer, number, size)))]

    async def _grep(self, run: RunScratch, writer: str, handle: str, number: int, size: int) -> None:
        answer = await Toolset(run).call("grep", {"handle": handle, "pattern": mark(writer, number)})
        if answer.is_error:
            assert json.loads(answer)["error"] == "handle_not_found", answer
            raise HandleNotFound(handle)
        assert answer.count(mark(writer, number)) >= 2

    async def _read_note(self, run: RunScratch, writer: str, *_: object) -> None:
        note = await run.read(f"{writer}-{self._dice.choice(['note', 'append', 'brief', 0, 1, 2, 3])}")
        assert is_whole(note.text)


async def sweep_on(store: ScratchStore, dice: random.Random, meter: Meter, until: float) -> dict[str, object]:
    """Sweep again and again, with short pauses as a schedule has them."""
    while time.monotonic() < until:
        report = await meter.time("sweep", store.sweep())
        meter.counts["entries swept"] += report.entries
        meter.counts["bytes given back"] += report.given_back
        await asyncio.sleep(dice.uniform(0, 0.2))
    return meter.report()


async def main(path: Path, name: str, seed: int, seconds: float) -> None:
    logging.basicConfig(level=logging.ERROR)  # to standard error, which has to stay empty
    dice = random.Random(f"{seed} {name}")
    number = int(name[1:])
    meter = Meter(path)
    async with ScratchStore.open(path) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + seconds
        if number < WRITERS:
            report = await Writer(store, name, dice, meter).work(until)
        elif number == SWEEPER:
            report = await sweep_on(store, dice, meter, until)
        else:
            report = await Reader(store, dice, meter).work(until)
    print(json.dumps(report), flush=True)
