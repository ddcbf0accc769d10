"""Real processes that tests start, let go all at once, and hear of."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIPE = subprocess.PIPE

PRELUDE = """
import asyncio, hashlib, signal, sys
from pathlib import Path
from scratch import NoteNotFound, Observation, ScratchStore, VersionConflict

path, name = sys.argv[1], sys.argv[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it

def query(content):
    return Observation(content=content, tool="run_query", tool_class="query")

def say(*words):
    print(*words, flush=True)
"""


def start(program: str, path: Path, name: str = "p0", *options: str) -> subprocess.Popen[str]:
    """A Python process that runs ``program`` after the prelude; it talks through pipes."""
    command = [sys.executable, *options, "-c", PRELUDE + program, str(path), name]
    return subprocess.Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


@contextmanager
def several(program: str, path: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """``count`` processes that have all said "ready"."""
    processes = [start(program, path, f"p{number}") for number in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate(timeout=60)[1]
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def go(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def results(processes: list[subprocess.Popen[str]], *, patience: float = 60) -> list[list[str]]:
    """What each wrote, line by line, when all have ended well. One that hangs fails after ``patience`` seconds."""
    outputs = [process.communicate(timeout=patience) for process in processes]
    errors = "".join(errors for _, errors in outputs)
    assert not errors, errors
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [output.splitlines() for output, _ in outputs]
