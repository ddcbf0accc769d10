"""One process of the load: a writer, a sweeper or a reader, on a store that the others use at the same time.

It says "ready", begins when it is told to go, and ends with one line of JSON. Whatever is not as promised is raised.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from scratch import HandleNotFound, Kind, NoteNotFound, RunScratch, ScratchStore
from scratch.tools import Toolset
from tests.soak.common import SWEEPER, WRITERS, Meter, body, is_whole, journal, mark, run_of
from tests.soak.writer import Writer


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
