"""Honest timing: what is compared runs in turn in one process, and ratios of medians are what counts.

A row says "met" or "missed" where there is a target. Nothing fails because a machine is slow.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import sqlite3
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.subjects import Subject

Step = Callable[[], Awaitable[object]]
Row = dict[str, object]
RESULTS = Path("bench.json")
WARM_UP = 2


@dataclass(slots=True)
class Times:
    """Milliseconds of the rounds of one step."""

    rounds: list[float] = field(default_factory=list)
    with_rest: list[float] = field(default_factory=list)
    """The same with the work that was left to the background."""

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def p99(self) -> float:
        """With fewer than a hundred rounds: the longest."""
        return sorted(self.rounds)[math.ceil(len(self.rounds) * 0.99) - 1]


async def timed(steps: Mapping[str, Step], *, rounds: int, before: Step | None = None) -> dict[str, Times]:
    """Time each step once a round, in another order each time, so that drift and neighbours hit all alike.

    ``before`` comes before each step, outside of the timing.
    """
    times = {name: Times() for name in steps}
    names = list(steps)
    draw = random.Random(1)
    for number in range(WARM_UP + rounds):
        draw.shuffle(names)
        for name in names:
            if before is not None:
                await before()
            started = time.perf_counter()
            await steps[name]()
            if number >= WARM_UP:
                times[name].rounds.append((time.perf_counter() - started) * 1000)
    return times


async def medians(steps: Mapping[str, Step], *, rounds: int) -> dict[str, float]:
    """Milliseconds a step takes, by name."""
    return {name: times.median for name, times in (await timed(steps, rounds=rounds)).items()}


async def timed_puts(
    subjects: Mapping[str, Subject], make: Callable[[int], str], *, rounds: int
) -> tuple[dict[str, Times], dict[str, str]]:
    """Time ``put`` of a new text each, in turn; return the times, and by name the key of what was put last.

    Outside of the timing: making the text, what goes on in the background, and deleting what was put two rounds ago (a
    file that only grows measures the machine's first touches of memory).
    """
    times = {name: Times() for name in subjects}
    held: dict[str, deque[str]] = {name: deque() for name in subjects}
    names = list(subjects)
    draw = random.Random(1)
    for number in range(WARM_UP + rounds):
        draw.shuffle(names)
        for name in names:
            subject = subjects[name]
            text = make(number)
            started = time.perf_counter()
            key = await subject.put(text)
            took = time.perf_counter() - started
            rest = await subject.settle()
            if number >= WARM_UP:
                times[name].rounds.append(took * 1000)
                times[name].with_rest.append((took + rest) * 1000)
            held[name].append(key)
            if len(held[name]) > 2:
                await subject.forget(held[name].popleft())
                await subject.settle()
    last = {name: keys[-1] for name, keys in held.items()}
    expected = make(WARM_UP + rounds - 1).encode()
    for name, key in last.items():
        assert await subjects[name].whole(key) == expected, name
    return times, last


def verdict(ratio: float, target: float | None, *, at_least: bool = False) -> Row:
    """The end of a row. ``at_least``: the ratio has to be as large as the target, not as small."""
    if target is None:
        return {"ratio": ratio, "target": "", "is": ""}
    met = ratio >= target if at_least else ratio <= target
    return {"ratio": ratio, "target": f"{'≥' if at_least else '≤'} {target:g}", "is": "met" if met else "missed"}


def against(baseline: str, ours: Times, theirs: Times, target: float | None) -> Row:
    """The figures of a row in ms: the medians, and beside them the p99."""
    return {
        "ours": ours.median,
        "p99": ours.p99,
        baseline: theirs.median,
        f"{baseline} p99": theirs.p99,
        **verdict(ours.median / theirs.median, target),
    }


def shown(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def report(title: str, rows: Sequence[Row], *, note: str = "") -> None:
    """Print a table and keep it in bench.json."""
    columns = list(rows[0])
    cells = [[shown(row[column]) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    print(f"\n\n{title}" + (f"\n({note})" if note else ""))
    for line in [columns, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    kept = read_results()
    kept["tables"][title] = {"note": note, "rows": list(rows)}
    write_results(kept)


def read_results() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    return results


def write_results(results: dict[str, Any]) -> None:
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def machine() -> Row:
    """What the figures depend on."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu[0].partition(": ")[2] if cpu else platform.machine(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }
