"""A scratch store for the runs of agents: large tool results stay out of the context and can be read back."""

from typing import TYPE_CHECKING, Any

from scratch.budget import ContextBudget, ScratchpadUsage
from scratch.capturing import Captured
from scratch.database import CheckReport, StoreStats
from scratch.entries import Entry, EntryInfo, Kind, RunInfo
from scratch.errors import (
    ForeignDatabase,
    HandleNotFound,
    InvalidArgument,
    LimitExceeded,
    NoteNotFound,
    RunNotFound,
    SchemaTooNew,
    ScratchError,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    UnsafePath,
    VersionConflict,
    WrongLoop,
    WrongProcess,
)
from scratch.metrics import StoreMetrics
from scratch.run import RunScratch
from scratch.spill import (
    SPILL_THRESHOLD_BYTES,
    Observation,
    OwnText,
    SpillDecision,
    SpillPolicy,
    Stub,
    should_spill,
)
from scratch.store import DEFAULT_TTL, ScratchStore
from scratch.sweeper.sweep import SweepReport
from scratch.windows import Matches, MatchWindow, Window

if TYPE_CHECKING:
    from scratch.tokens import TokenCounter

__all__ = [
    "DEFAULT_TTL",
    "SPILL_THRESHOLD_BYTES",
    "Captured",
    "CheckReport",
    "ContextBudget",
    "Entry",
    "EntryInfo",
    "ForeignDatabase",
    "HandleNotFound",
    "InvalidArgument",
    "Kind",
    "LimitExceeded",
    "MatchWindow",
    "Matches",
    "NoteNotFound",
    "Observation",
    "OwnText",
    "RunInfo",
    "RunNotFound",
    "RunScratch",
    "SchemaTooNew",
    "ScratchError",
    "ScratchStore",
    "ScratchpadUsage",
    "SpillDecision",
    "SpillPolicy",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMetrics",
    "StoreMissing",
    "StoreReadOnly",
    "StoreStats",
    "Stub",
    "SweepReport",
    "TokenCounter",
    "UnsafePath",
    "VersionConflict",
    "Window",
    "WrongLoop",
    "WrongProcess",
    "should_spill",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's names are of any type
    """Import TokenCounter when it is asked for; see :mod:`scratch.tokens`."""
    if name == "TokenCounter":
        from scratch.tokens import TokenCounter  # noqa: PLC0415

        return TokenCounter
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
