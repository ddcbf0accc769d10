"""Every error that run-scratch raises.

Each is a :class:`ScratchError` with a stable ``code`` for programs, a ``message`` that says what to do, and
``data`` with the values that it is about. The cause of a storage error is its ``__cause__``.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ForeignDatabase",
    "HandleNotFound",
    "InvalidArgument",
    "LimitExceeded",
    "NoteNotFound",
    "RunNotFound",
    "SchemaTooNew",
    "ScratchError",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMissing",
    "StoreReadOnly",
    "UnsafePath",
    "VersionConflict",
    "WrongLoop",
    "WrongProcess",
]


class ScratchError(Exception):
    """The base of all. ``str(error)`` is the message; ``error.data`` holds what it is about."""

    code: ClassVar[str] = "scratch_error"

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class InvalidArgument(ScratchError, ValueError):
    """An argument is not of the kind that is asked for; ``data["argument"]`` names it."""

    code = "invalid_argument"


class HandleNotFound(ScratchError, LookupError):
    """No live handle of that name in this scope: unknown, foreign, malformed and expired look alike."""

    code = "handle_not_found"


class NoteNotFound(ScratchError, LookupError):
    """No live note under that key in this scope."""

    code = "note_not_found"


class RunNotFound(ScratchError, LookupError):
    """The run (or the agent in it) is not registered in this store."""

    code = "run_not_found"


class VersionConflict(ScratchError):
    """``if_version`` is stale; ``data["current_version"]`` is the note's version now (0: there is none)."""

    code = "version_conflict"


class LimitExceeded(ScratchError):
    """A content is over ``max_entry_bytes``, a note over its size, or a run over ``max_run_bytes``."""

    code = "limit_exceeded"


class StoreError(ScratchError):
    """The store itself could not do it. The base of the errors below."""

    code = "store_error"


class StoreBusy(StoreError):
    """Another process held the write lock for longer than ``busy_timeout``. Nothing was written."""

    code = "store_busy"


class StoreClosed(StoreError):
    """The store was closed (or never opened)."""

    code = "store_closed"


class StoreFull(StoreError):
    """The disk, or the file at its page limit, has no room left. Nothing was written."""

    code = "store_full"


class StoreMissing(StoreError):
    """There is no store at that path and none was to be made, or its file was taken away while it was open."""

    code = "store_missing"


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written, or the store was opened with ``read_only=True``."""

    code = "store_read_only"


class StoreCorrupt(StoreError):
    """SQLite found the file damaged."""

    code = "store_corrupt"


class SchemaTooNew(StoreError):
    """A newer version of run-scratch wrote this file. Nothing was touched."""

    code = "schema_too_new"


class ForeignDatabase(StoreError):
    """The file is a database (or a file) that is not ours. Nothing was touched."""

    code = "foreign_database"


class UnsafePath(StoreError):
    """The path is a symbolic link, not a regular file, or lies on a file system where WAL does not work."""

    code = "unsafe_path"


class WrongLoop(StoreError):
    """The store belongs to the event loop that opened it."""

    code = "wrong_loop"


class WrongProcess(StoreError):
    """The store belongs to the process that opened it; after a fork, open one of your own."""

    code = "wrong_process"
