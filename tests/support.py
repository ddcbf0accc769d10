"""Small things that tests say often."""

from __future__ import annotations

from scratch import Observation


class Clock:
    """Seconds since the epoch, as told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def query(content: object, tool: str = "run_query") -> Observation:
    """A result that may be spilled."""
    return Observation(content=content, tool=tool, tool_class="query")
