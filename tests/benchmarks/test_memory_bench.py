"""Memory that 50 MiB take on their way in and out, and how long `import scratch` takes. Each in a fresh process."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.harness import Row, report, verdict
from tests.benchmarks.memory_child import TOOLS

pytestmark = pytest.mark.benchmark

MIB = 1024 * 1024
CASES: list[tuple[str, str, str, float | None]] = [
    ("capturing a str, ASCII", "capture", "ASCII", 4),
    ("capturing a str, Chinese", "capture", "Chinese", 4),
    ("capturing bytes", "capture", "bytes", 4),
    ("capturing a str, JSON, not all ASCII", "capture", "JSON", 4),
    ("reading 4 KiB in the middle", "window", "ASCII", 1),
    ("searching all of it", "match", "ASCII", None),
    *((f"{tool} on JSON", tool, "JSON", None) for tool in TOOLS),
]
PROGRAMS = ("pass", "import aiosqlite", "import scratch")
PROCESSES = 15


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process's peak of memory")
def test_memory(folder: Path) -> None:
    rows: list[Row] = []
    for number, (name, what, kind, target) in enumerate(CASES):
        command = [sys.executable, "-m", "tests.benchmarks.memory_child", what, kind, str(folder / f"{number}.db")]
        grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / MIB
        rows.append({"what": name, "MiB": grown, **verdict(grown, target)})
        del rows[-1]["ratio"]
    report("memory beside the value itself, 50 MiB each (MiB)", rows, note="growth of the peak of the resident set")


def test_import(tmp_path: Path) -> None:
    """From bytecode, as where pip has put it; an editable installation may have none, or be told to write none."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    times: dict[str, list[float]] = {program: [] for program in PROGRAMS}
    for _, program in itertools.product(range(PROCESSES + 1), PROGRAMS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
        times[program].append((time.perf_counter() - started) * 1000)
    bare, theirs, ours = (statistics.median(times[program][1:]) for program in PROGRAMS)  # the first one warms up
    rows: list[Row] = [
        {"what": "whole processes", "ours": ours, "aiosqlite": theirs, **verdict(ours / theirs, 1.5)},
        {
            "what": "without the interpreter's start",
            "ours": ours - bare,
            "aiosqlite": theirs - bare,
            **verdict((ours - bare) / (theirs - bare), None),
        },
    ]
    report("import scratch against import aiosqlite (ms)", rows)
