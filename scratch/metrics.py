"""What an open store counts. Names and numbers only: never content, keys, handles or ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

E = TypeVar("E", bound=Exception)

GROUPS = ("kept", "reads", "misses", "failures")
"""What is counted by a word; such a counter is named ``kept.tool_class``."""

_HELD_BACK: ContextVar[list[str] | None] = ContextVar("_HELD_BACK", default=None)


@dataclass(frozen=True, slots=True)
class StoreMetrics:
    """What was done with a store, counted. Mappings have only the words that occurred."""

    captures: int
    """Results that were given to ``capture``: ``spills`` and all of ``kept`` together."""
    spills: int
    """Those that were stored, with a stub in their place."""
    kept: Mapping[str, int]
    """Those that stayed in context, by the reason of the decision (``store_failed``: storing went wrong)."""
    bytes_kept_out: int
    """Bytes of the spilled contents less the bytes of their stubs."""
    reads: Mapping[str, int]
    """Answers that hold stored content: ``window`` and ``matches`` (``read_handle``), ``note`` (``read``), ``explore``
    (the eight exploration tools), ``artifact`` (the tool ``read_artifact``). A toolset's refusals are none."""
    bytes_read: int
    """Bytes that those gave back: of content, or of a toolset's whole answer."""
    misses: Mapping[str, int]
    """Questions for what is not live or not there, by the error's name: ``HandleNotFound`` (handles and artifacts),
    ``NoteNotFound``, ``RunNotFound``."""
    note_writes: int
    artifacts_written: int
    sweeps: int
    """Passes that came to their end."""
    swept_entries: int
    swept_bytes: int
    """Content bytes of those."""
    bytes_given_back: int
    """Bytes by which sweeps made the file smaller."""
    failures: Mapping[str, int]
    """Operations that the store could not do, by the error's name (``StoreBusy``, ``StoreFull``, ``LimitExceeded``,
    ``VersionConflict``, …). Bad arguments are not counted."""

    @classmethod
    def of(cls, values: Mapping[str, int]) -> Self:
        """From counters by name; names that this version does not know are left out."""
        known: dict[str, Any] = {field.name: values.get(field.name, 0) for field in fields(cls)}
        known |= {group: {} for group in GROUPS}
        for name, value in values.items():
            group, _, word = name.partition(".")
            if word and group in GROUPS:
                known[group][word] = value
        return cls(**known)


class Counters:
    """The counters of one open store. Only the tasks of its loop count; any thread may take a :meth:`snapshot`.

    What is counted costs a fraction of a microsecond: it stands in the way of every capture.
    """

    def __init__(self) -> None:
        self.values: defaultdict[str, int] = defaultdict(int)
        self._saved: dict[str, int] = {}

    def snapshot(self) -> StoreMetrics:
        """All of them as they are now."""
        return StoreMetrics.of(dict(self.values))  # the copy is one step, whatever the loop counts meanwhile

    def captured(self, reason: str, kept_out: int | None = None) -> None:
        """Count a result: kept for ``reason``, or spilled, which kept so many bytes out of the context."""
        values = self.values
        values["captures"] += 1
        if kept_out is None:
            values[f"kept.{reason}"] += 1
        else:
            values["spills"] += 1
            values["bytes_kept_out"] += max(0, kept_out)  # a small content that was put on purpose

    def read(self, kind: str, size: int) -> None:
        """Count an answer with so many bytes of stored content; see :func:`held_back`."""
        held = _HELD_BACK.get()
        if held is not None:
            held.append(kind)
            return
        self.values[f"reads.{kind}"] += 1
        self.values["bytes_read"] += size

    def missed(self, error: E) -> E:
        """Count a question for what is not there; return the error, to be raised."""
        self.values[f"misses.{type(error).__name__}"] += 1
        return error

    def __enter__(self) -> None:
        """``with counters:`` around an operation counts it when it fails."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self.values[f"failures.{type(error).__name__}"] += 1

    def take_unsaved(self) -> dict[str, int]:
        """What was counted since the last time, which counts as saved from now on."""
        values = dict(self.values)
        unsaved = {name: value - self._saved.get(name, 0) for name, value in values.items()}
        self._saved = values
        return {name: value for name, value in unsaved.items() if value}

    def put_back(self, unsaved: Mapping[str, int]) -> None:
        """It could not be saved."""
        for name, value in unsaved.items():
            self._saved[name] -= value


@contextmanager
def held_back() -> Iterator[list[str]]:
    """Reads inside are not counted; their kinds are listed. For a toolset, which refuses many an answer."""
    kinds: list[str] = []
    token = _HELD_BACK.set(kinds)
    try:
        yield kinds
    finally:
        _HELD_BACK.reset(token)
