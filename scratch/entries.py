"""What the store hands out about its entries, and names of things. Plain data, no behaviour."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from random import SystemRandom

from scratch.errors import InvalidArgument

MAX_KEY_BYTES = 256
MAX_NOTE_BYTES = 1024 * 1024

_HANDLE_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no 0/o, 1/l/i: models and people copy handles
_RANDOM = SystemRandom()
_HANDLE = re.compile(f"r_[{_HANDLE_ALPHABET}]{{12}}")


class Kind(StrEnum):
    """What an entry is."""

    HANDLE = "handle"
    """A spilled result under a generated name."""
    NOTE = "note"
    """What an agent wrote under a key of its own."""
    ARTIFACT = "artifact"
    """A document that every agent of the run can read."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose entries: every read and write names both, and the SQL compares both."""

    run_id: str
    agent_id: str


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """An entry without its content. Sizes are bytes, times milliseconds since the epoch."""

    run_id: str
    agent_id: str
    kind: Kind
    key: str
    size: int
    tokens: int | None
    media_type: str
    preview: str = field(repr=False)  # a repr ends up in logs, where no content belongs
    source_tool: str | None
    version: int
    created_at: int
    expires_at: int

    @property
    def created(self) -> datetime:
        """``created_at`` as a UTC datetime."""
        return datetime.fromtimestamp(self.created_at / 1000, UTC)

    @property
    def expires(self) -> datetime:
        """``expires_at`` as a UTC datetime."""
        return datetime.fromtimestamp(self.expires_at / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """A note with its content."""

    info: EntryInfo
    content: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The content as it was written; what is not UTF-8 has replacement characters."""
        return decode_text(self.content)

    @property
    def version(self) -> int:
        """The version to give as ``if_version`` when writing what was made from this."""
        return self.info.version


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run and what it holds. ``entries`` and ``size`` (bytes) count what is live."""

    run_id: str
    agent_id: str
    agents: tuple[str, ...]
    created_at: int
    completed_at: int | None
    entries: int
    size: int


def decode_text(data: bytes) -> str:
    """Stored text as it was given: lone surrogates come back, what is not UTF-8 is replaced."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def new_handle() -> str:
    """A handle that nobody guesses: 12 of 31 letters and digits, about 59 bits."""
    number = _RANDOM.randrange(len(_HANDLE_ALPHABET) ** 12)
    letters = []
    for _ in range(12):
        number, index = divmod(number, len(_HANDLE_ALPHABET))
        letters.append(_HANDLE_ALPHABET[index])
    return "r_" + "".join(letters)


def looks_like_handle(key: str) -> bool:
    """Whether ``key`` has the form of a generated handle."""
    return _HANDLE.fullmatch(key) is not None


def check_name(name: object, argument: str) -> str:
    """Return ``name`` when it can be an id or a key: 1 to 256 bytes of printable text.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(name, str):
        msg = f"{argument} must be text, not {type(name).__name__}"
        raise InvalidArgument(msg, argument=argument)
    # isprintable() refuses control characters, NUL and lone surrogates
    if not name or not name.isprintable() or len(name.encode()) > MAX_KEY_BYTES:
        msg = f"{argument} must be 1 to {MAX_KEY_BYTES} bytes of printable text"
        raise InvalidArgument(msg, argument=argument)
    return name


def check_note_key(key: object) -> str:
    """Return ``key`` when it can name a note.

    Raises:
        InvalidArgument: not 1 to 256 bytes of printable text, or it has the form of a handle.
    """
    name = check_name(key, "key")
    if looks_like_handle(name):
        msg = "key has the form of a generated handle; choose another"
        raise InvalidArgument(msg, argument="key")
    return name
