"""Honest timing: what is compared runs in turn in one process, and ratios of medians are what counts."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

Step = Callable[[], Awaitable[object]]
RESULTS = Path("bench.json")


async def medians(steps: dict[str, Step], *, rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Milliseconds a step takes, by name: each round runs every step once, so that drift hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(warm_up + rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            await step()
            if number >= warm_up:
                times[name].append((time.perf_counter() - started) * 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def report(title: str, rows: list[dict[str, object]]) -> None:
    """Print a table and keep it in bench.json."""
    columns = list(rows[0])
    cells = [[f"{row[c]:.3f}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    print(f"\n\n{title}")
    for line in [columns, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[title] = rows
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
