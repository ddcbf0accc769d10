"""A scratch store for the runs of agents: large tool results stay out of the context and can be read back."""

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
from scratch.tokens import TokenCounter
from scratch.windows import Matches, MatchWindow, Window

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
