"""What an agent may still read: its context budget, and the figures of what it has read."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass

from scratch.errors import InvalidArgument
from scratch.jsontext import dumps
from scratch.windows import check_count

MAX_EXTRACTION_TOKENS = 10_000
"""The most tokens that one call of a tool returns."""
TURN_DEPTH_BONUS = 6
"""Extra turns that an agent loop should allow when the exploration tools are attached."""
SAFETY_MARGIN = 0.20
"""The part of a context window that is not handed out."""
USAGE_EVENT = "aura.scratchpad_usage"


class ContextBudget:
    """The tokens of one agent's context window, and how many of them are used.

    Each agent has its own. Its parallel tool calls, on one loop or in threads, share it: check and charge are one step.

    Args:
        context_window: Tokens; 1 or more.
        safety_margin: The part of the window that stays free: 0 or more, less than 1. What is usable is rounded down.

    Raises:
        InvalidArgument: a window that is no such integer, or a margin that is no such number.
    """

    def __init__(self, context_window: int, *, safety_margin: float = SAFETY_MARGIN) -> None:
        from fractions import Fraction  # noqa: PLC0415 - brings decimal numbers; not everybody has a budget

        window = check_count(context_window, "context_window", least=1)
        # as it is written: the double nearest to 0.2 is a little more, and would leave 799 of 1,000
        margin = Fraction(str(check_margin(safety_margin, "safety_margin")))
        self._usable = math.floor(window * (1 - margin))
        self._used = 0
        self._lock = threading.Lock()

    @property
    def usable(self) -> int:
        """Tokens that may be used in all."""
        return self._usable

    @property
    def used(self) -> int:
        """Tokens used so far; may be more than ``usable``."""
        return self._used

    @property
    def remaining(self) -> int:
        """Tokens that are left, 0 or more."""
        return max(0, self._usable - self._used)

    def charge(self, tokens: int) -> bool:
        """Charge ``tokens`` when they fit into what is left; if not, charge nothing and return False.

        Raises:
            InvalidArgument: not an integer of 0 or more.
        """
        check_count(tokens, "tokens", least=0)
        with self._lock:
            if self._used + tokens > self._usable:
                return False
            self._used += tokens
            return True

    def charge_anyway(self, tokens: int) -> None:
        """Charge what reaches the model whether it fits or not: an error, a stub.

        Raises:
            InvalidArgument: not an integer of 0 or more.
        """
        check_count(tokens, "tokens", least=0)
        with self._lock:
            self._used += tokens

    def record_usage(self, input_tokens: int, output_tokens: int) -> None:
        """Take what the model reported for its last call in place of what was counted; it may be less (a compaction).

        Raises:
            InvalidArgument: not integers of 0 or more.
        """
        used = check_count(input_tokens, "input_tokens", least=0) + check_count(output_tokens, "output_tokens", least=0)
        with self._lock:
            self._used = used


@dataclass(frozen=True, slots=True)
class ScratchpadUsage:
    """What a scope kept out of its agent's context, and what its tools gave back into it."""

    agent_id: str
    run_id: str | None = None
    spills: int = 0
    """Results that were stored and replaced by a stub."""
    tokens_intercepted: int = 0
    """Tokens of those results."""
    calls: int = 0
    """Calls of tools on what is stored."""
    tokens_extracted: int = 0
    """Tokens of the answers of those calls."""

    def to_event(self) -> dict[str, object]:
        """The event for a host's callbacks: plain values, its name under ``event``."""
        return {"event": USAGE_EVENT, **asdict(self)}

    def to_sse(self) -> str:
        """The event as one server-sent event: its name, one line of JSON, an empty line."""
        return f"event: {USAGE_EVENT}\ndata: {dumps(self.to_event())}\n\n"


def check_margin(value: object, argument: str) -> float:
    """Return ``value`` as a float when it is a number from 0 up to, but not including, 1: no bool, no text, no NaN.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        msg = f"{argument} must be a number, 0 or more and less than 1, such as {SAFETY_MARGIN}"
        raise InvalidArgument(msg, argument=argument)
    return float(value)
