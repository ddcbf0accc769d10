"""What an exploration tool answers: a look at the content, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from scratch.errors import ScratchError
from scratch.jsontext import dumps

ErrorCode = Literal[
    "not_json", "key_path_not_found", "not_an_array", "invalid_argument", "bad_pattern", "pattern_too_slow"
]


@dataclass(frozen=True, slots=True)
class Call:
    """A ready-to-run call of a tool on the same handle; ``arguments`` are all but the handle."""

    tool: str
    arguments: Mapping[str, object]


PREFIX: ContextVar[str] = ContextVar("PREFIX", default="")
"""What stands before the tools' names where they are registered. Set around a call: its thread sees it too."""


def named(tool: str) -> str:
    """A tool's name as it is registered."""
    return PREFIX.get() + tool


def written(call: Call) -> str:
    """A call as it is written into a text: ``read_handle(offset=4096)``."""
    return f"{named(call.tool)}({', '.join(f'{name}={dumps(value)}' for name, value in call.arguments.items())})"


@dataclass(frozen=True, slots=True)
class Look:
    """What a tool shows.

    ``text`` is what the model reads, without the footer and without a newline at its end. ``covered`` says what of
    how much that is, for the footer. ``smaller`` are the calls to try when it is too large, most useful first.
    """

    text: str
    covered: str
    smaller: tuple[Call, ...] = ()


class TooLarge(Exception):
    """More room is needed than there is. Internal: the caller turns it into an answer."""

    def __init__(self, estimated_bytes: int, smaller: tuple[Call, ...]) -> None:
        super().__init__(f"needs about {estimated_bytes} bytes")
        self.estimated_bytes = estimated_bytes
        self.smaller = smaller


class ExploreError(ScratchError):
    """A call that cannot be answered; ``suggestions`` are calls that can, most useful first."""

    def __init__(self, code: ErrorCode, message: str, suggestions: tuple[Call, ...] = (), **data: object) -> None:
        super().__init__(message, **data)
        self.code = code  # type: ignore[misc]  # one class for all: each error has its own
        self.suggestions = suggestions
