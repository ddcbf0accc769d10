"""What the processes of the load have in common: contents that anybody can make again, and what is measured."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from scratch.database.maintenance import wal_bytes

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
