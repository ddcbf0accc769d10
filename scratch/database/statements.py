"""The SQL of runs and entries. Each function runs on a connection's thread, inside one transaction or one statement.

Every statement on scratch_entries compares run_id, agent_id and expires_at, except where this page says why not.

A kind that is given is compared as ``CAST(? AS TEXT)``. With a bare parameter SQLite asks each time whether its value
lets it use the index of artifacts alone, and for that prepares the statement anew: 10 microseconds of 14.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from scratch.content import Content
from scratch.entries import EntryInfo, Kind, RunInfo, Scope
from scratch.errors import LimitExceeded, RunNotFound, VersionConflict

CHUNK = 65_536
"""Bytes of a content piece, as schema.sql says."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes: of one entry, and of all entries of a run."""

    max_entry_bytes: int
    max_run_bytes: int


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What is to be written. Times are milliseconds since the epoch."""

    scope: Scope
    kind: Kind
    key: str
    content: Content
    tokens: int | None
    preview: str = field(repr=False)
    source_tool: str | None
    now: int
    expires_at: int


# --- runs and agents

REGISTERED = "SELECT 1 FROM run_agents WHERE run_id = ? AND agent_id = ?"
ADD_AGENT = "INSERT INTO agents (agent_id) VALUES (?) ON CONFLICT DO NOTHING"
ADD_RUN = "INSERT INTO runs (run_id, agent_id, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
ADD_MEMBER = "INSERT INTO run_agents (run_id, agent_id) VALUES (?, ?) ON CONFLICT DO NOTHING"


def is_registered(connection: sqlite3.Connection, scope: Scope) -> bool:
    """Whether the agent takes part in the run."""
    return connection.execute(REGISTERED, (scope.run_id, scope.agent_id)).fetchone() is not None


def register(connection: sqlite3.Connection, scope: Scope, now: int) -> None:
    """Make the run with its owner, or let the agent join it. What is there already stays as it is."""
    connection.execute(ADD_AGENT, (scope.agent_id,))
    connection.execute(ADD_RUN, (scope.run_id, scope.agent_id, now))
    connection.execute(ADD_MEMBER, (scope.run_id, scope.agent_id))


COMPLETE_RUN = "UPDATE runs SET completed_at = coalesce(completed_at, ?) WHERE run_id = ?"


def complete_run(connection: sqlite3.Connection, run_id: str, now: int) -> bool:
    """Set completed_at, once; whether the run exists."""
    return connection.execute(COMPLETE_RUN, (now, run_id)).rowcount == 1


# Deleting starts with these: nothing of it is live from then on, and it can go in small steps, each holding the lock
# for a short time only. They name no agent: a run, or an agent, goes whole.
EXPIRE_RUN = "UPDATE scratch_entries SET expires_at = 0 WHERE run_id = ? AND expires_at > 0"
EXPIRE_AGENT = """
    UPDATE scratch_entries SET expires_at = 0
    WHERE +expires_at > 0  -- the plus keeps it from going through all that is live in the store
        AND run_id IN (SELECT run_id FROM run_agents WHERE agent_id = ?1)
        AND (agent_id = ?1 OR run_id IN (SELECT run_id FROM runs WHERE agent_id = ?1))
"""
STEP_OF_RUN = "SELECT entry_id FROM scratch_entries WHERE run_id = ? LIMIT 50"
STEP_OF_AGENT = """
    SELECT entry_id FROM scratch_entries WHERE run_id IN (
        SELECT run_id FROM run_agents WHERE agent_id = ?1
    ) AND (agent_id = ?1 OR run_id IN (SELECT run_id FROM runs WHERE agent_id = ?1)) LIMIT 50
"""
DELETE_RUN = "DELETE FROM runs WHERE run_id = ?"
DELETE_AGENT = "DELETE FROM agents WHERE agent_id = ?"

RUNS = """
    SELECT r.run_id, r.agent_id, r.created_at, r.completed_at,
        (SELECT count(*) FROM scratch_entries e WHERE e.run_id = r.run_id AND e.expires_at > ?1),
        (SELECT coalesce(sum(size), 0) FROM scratch_entries e WHERE e.run_id = r.run_id AND e.expires_at > ?1)
    FROM runs r ORDER BY r.created_at DESC, r.run_id
"""
MEMBERS = "SELECT run_id, agent_id FROM run_agents ORDER BY run_id, agent_id"


def list_runs(connection: sqlite3.Connection, now: int) -> list[RunInfo]:
    """All runs, the newest first (the operator's view: no scope)."""
    agents: dict[str, list[str]] = {}
    for run_id, agent_id in connection.execute(MEMBERS):
        agents.setdefault(run_id, []).append(agent_id)
    return [
        RunInfo(run_id, owner, tuple(agents.get(run_id, ())), created, completed, entries, size)
        for run_id, owner, created, completed, entries, size in connection.execute(RUNS, (now,))
    ]


RUN_EXISTS = "SELECT 1 FROM runs WHERE run_id = ?"


def run_exists(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether the run is registered."""
    return connection.execute(RUN_EXISTS, (run_id,)).fetchone() is not None


# --- writing entries

INSERT_ENTRY = """
    INSERT INTO scratch_entries
        (run_id, agent_id, kind, key, size, tokens, media_type, preview, source_tool, version, created_at, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)
"""
INSERT_CHUNK = "INSERT INTO scratch_chunks (entry_id, seq, data) VALUES (?, ?, ?)"
RUN_BYTES = "SELECT bytes FROM runs JOIN run_agents USING (run_id) WHERE run_id = ? AND run_agents.agent_id = ?"
PURGE_RUN = "DELETE FROM scratch_entries WHERE run_id = ? AND expires_at <= ?"  # reclaims, whoever owned it


def insert_entry(connection: sqlite3.Connection, new: NewEntry, limits: Limits) -> int:
    """Store a new entry with its content; return its entry_id.

    Raises:
        sqlite3.IntegrityError: the key is taken.
        RunNotFound: the scope is not registered (any more).
        LimitExceeded: the entry, or the run with it, would be too large.
    """
    _check_limits(connection, new, new.content.size, limits)
    entry_id = connection.execute(
        INSERT_ENTRY,
        (
            new.scope.run_id,
            new.scope.agent_id,
            new.kind.value,
            new.key,
            new.content.size,
            new.tokens,
            new.content.media_type,
            new.preview,
            new.source_tool,
            new.now,
            new.expires_at,
        ),
    ).lastrowid
    assert entry_id is not None
    connection.executemany(INSERT_CHUNK, _chunks(entry_id, 0, new.content.pieces()))
    return entry_id


def _check_limits(connection: sqlite3.Connection, new: NewEntry, added: int, limits: Limits) -> None:
    scope = (new.scope.run_id, new.scope.agent_id)
    row = connection.execute(RUN_BYTES, scope).fetchone()
    if row is None:
        msg = f"the run {new.scope.run_id!r} is gone, or {new.scope.agent_id!r} is not in it: it has to be joined again"
        raise RunNotFound(msg, run_id=new.scope.run_id, agent_id=new.scope.agent_id)
    if new.content.size > limits.max_entry_bytes:
        msg = f"{new.content.size:,} bytes are over max_entry_bytes ({limits.max_entry_bytes:,})"
        raise LimitExceeded(msg, limit="max_entry_bytes", size=new.content.size, most=limits.max_entry_bytes)
    (held,) = row
    if held + added > limits.max_run_bytes:
        connection.execute(PURGE_RUN, (new.scope.run_id, new.now))
        (held,) = connection.execute(RUN_BYTES, scope).fetchone()
    if added > 0 and held + added > limits.max_run_bytes:  # what makes it smaller is always allowed
        msg = f"the run holds {held:,} bytes; {added:,} more are over max_run_bytes ({limits.max_run_bytes:,})"
        raise LimitExceeded(msg, limit="max_run_bytes", size=added, held=held, most=limits.max_run_bytes)


def _chunks(
    entry_id: int, seq: int, pieces: Iterable[bytes | memoryview]
) -> Iterator[tuple[int, int, bytes | memoryview]]:
    """Regroup pieces of any length into chunk rows from ``seq`` on, copying only what crosses a boundary."""
    rest = b""
    for piece in pieces:
        view = memoryview(piece)
        if rest:
            need = CHUNK - len(rest)
            rest += view[:need]
            view = view[need:]
            if len(rest) < CHUNK:
                continue
            yield entry_id, seq, rest
            seq += 1
            rest = b""
        whole = len(view) - len(view) % CHUNK
        for start in range(0, whole, CHUNK):
            yield entry_id, seq, view[start : start + CHUNK]
            seq += 1
        rest = bytes(view[whole:])
    if rest:
        yield entry_id, seq, rest


FIND_ENTRY = """
    SELECT entry_id, version, size FROM scratch_entries
    WHERE run_id = ? AND agent_id = ? AND kind = CAST(? AS TEXT) AND key = ? AND expires_at > ?
"""
DROP_EXPIRED = """
    DELETE FROM scratch_entries
    WHERE run_id = ? AND agent_id = ? AND kind = CAST(? AS TEXT) AND key = ? AND expires_at <= ?
"""
UPDATE_ENTRY = """
    UPDATE scratch_entries SET size = ?, tokens = ?, media_type = ?, preview = ?, version = version + 1, expires_at = ?
    WHERE run_id = ? AND agent_id = ? AND kind = CAST(? AS TEXT) AND key = ? AND expires_at > ?
    RETURNING version
"""
DROP_CHUNKS = "DELETE FROM scratch_chunks WHERE entry_id = ? AND seq >= ?"


def write_note(
    connection: sqlite3.Connection,
    new: NewEntry,
    limits: Limits,
    *,
    if_version: int | None = None,
    append_to: Callable[[EntryInfo, bytes], NewEntry] | None = None,
) -> int:
    """Write a note, new or over the live one; return its version.

    Args:
        connection: Inside a transaction.
        new: The note as it is when there is none yet, or when it replaces the one that is there.
        limits: Bytes.
        if_version: Write only when this is the live version; 0 stands for no note.
        append_to: Makes the longer note out of the one that is there; its beginning stays as it is.

    Raises:
        VersionConflict: ``if_version`` is not the live version.
        LimitExceeded, RunNotFound: as for :func:`insert_entry`.
    """
    name = (new.scope.run_id, new.scope.agent_id, new.kind.value, new.key)
    found = connection.execute(FIND_ENTRY, (*name, new.now)).fetchone()
    version = 0 if found is None else found[1]
    if if_version is not None and if_version != version:
        has = f"has version {version}" if version else "does not exist"
        msg = f"the note {has}, not version {if_version}; read it and try again"
        raise VersionConflict(msg, key=new.key, current_version=version, if_version=if_version)
    if found is None:
        connection.execute(DROP_EXPIRED, (*name, new.now))
        insert_entry(connection, new, limits)
        return 1
    entry_id, _, size = found
    keep = 0
    if append_to is not None:
        info = get_info(connection, new.scope, new.kind, new.key, new.now)
        held = read_range(connection, new.scope, new.kind, new.key, new.now, 0, size)
        assert info is not None
        assert held is not None
        new = append_to(info, held[2])
        keep = size // CHUNK
    _check_limits(connection, new, new.content.size - size, limits)
    row = (new.content.size, new.tokens, new.content.media_type, new.preview, new.expires_at, *name, new.now)
    (version,) = connection.execute(UPDATE_ENTRY, row).fetchone()
    connection.execute(DROP_CHUNKS, (entry_id, keep))
    pieces = new.content.pieces() if keep == 0 else [b"".join(new.content.pieces())[keep * CHUNK :]]
    connection.executemany(INSERT_CHUNK, _chunks(entry_id, keep, pieces))
    return int(version)


RENEW = """
    UPDATE scratch_entries SET expires_at = max(expires_at, ?)
    WHERE run_id = ? AND agent_id = ? AND kind IN ('handle', 'note') AND key = ? AND expires_at > ?
    RETURNING expires_at
"""
DELETE_ENTRY = """
    DELETE FROM scratch_entries
    WHERE run_id = ? AND agent_id = ? AND kind IN ('handle', 'note') AND key = ? AND expires_at > ?
"""


def renew(connection: sqlite3.Connection, scope: Scope, key: str, now: int, expires_at: int) -> int | None:
    """Prolong a live handle or note; return when it expires now, None when there is none."""
    row = connection.execute(RENEW, (expires_at, scope.run_id, scope.agent_id, key, now)).fetchone()
    return None if row is None else row[0]


def delete_entry(connection: sqlite3.Connection, scope: Scope, key: str, now: int) -> bool:
    """Delete a live handle or note; whether there was one."""
    return connection.execute(DELETE_ENTRY, (scope.run_id, scope.agent_id, key, now)).rowcount > 0


# --- reading entries

_INFO = """
    e.run_id, e.agent_id, e.kind, e.key, e.size, e.tokens, e.media_type, e.preview, e.source_tool, e.version,
    e.created_at, e.expires_at
"""
GET_INFO = f"""
    SELECT {_INFO} FROM scratch_entries e
    WHERE e.run_id = ? AND e.agent_id = ? AND e.kind = CAST(? AS TEXT) AND e.key = ? AND e.expires_at > ?
"""  # noqa: S608 - a constant column list
LIST_SCOPE = f"""
    SELECT {_INFO} FROM scratch_entries e
    WHERE e.run_id = ?1 AND e.agent_id = ?2 AND e.kind = CAST(?3 AS TEXT) AND e.expires_at > ?5
        AND e.key >= max(?4, ?6) AND e.key <> ?4
        AND e.key < ?6 || char(1114111)  -- U+10FFFF, which is not printable, hence in no key
    ORDER BY e.key LIMIT ?7
"""  # noqa: S608 - a constant column list
# The operator's view of a run: every agent that takes part in it.
LIST_RUN = f"""
    SELECT {_INFO} FROM scratch_entries e JOIN run_agents a ON a.run_id = e.run_id AND a.agent_id = e.agent_id
    WHERE a.run_id = ? AND e.expires_at > ?
    ORDER BY e.created_at, e.entry_id
"""  # noqa: S608 - a constant column list
RANGE = """
    SELECT e.size, e.media_type, c.rowid FROM scratch_entries e
    LEFT JOIN scratch_chunks c ON c.entry_id = e.entry_id AND c.seq BETWEEN ?6 AND ?7
    WHERE e.run_id = ?1 AND e.agent_id = ?2 AND e.kind = CAST(?3 AS TEXT) AND e.key = ?4 AND e.expires_at > ?5
    ORDER BY c.seq
"""


def _info(row: tuple[Any, ...]) -> EntryInfo:
    return EntryInfo(row[0], row[1], Kind(row[2]), *row[3:])


def get_info(connection: sqlite3.Connection, scope: Scope, kind: Kind, key: str, now: int) -> EntryInfo | None:
    """A live entry's metadata."""
    row = connection.execute(GET_INFO, (scope.run_id, scope.agent_id, kind.value, key, now)).fetchone()
    return None if row is None else _info(row)


def list_scope(
    connection: sqlite3.Connection, scope: Scope, kind: Kind, now: int, *, prefix: str, after: str, limit: int
) -> list[EntryInfo]:
    """Live entries of a kind by key, from the one after ``after`` on."""
    values = (scope.run_id, scope.agent_id, kind.value, after, now, prefix, limit)
    return [_info(row) for row in connection.execute(LIST_SCOPE, values)]


def list_run(connection: sqlite3.Connection, run_id: str, now: int) -> list[EntryInfo]:
    """Live entries of all agents of a run, the oldest first."""
    return [_info(row) for row in connection.execute(LIST_RUN, (run_id, now))]


def read_range(
    connection: sqlite3.Connection, scope: Scope, kind: Kind, key: str, now: int, start: int, stop: int
) -> tuple[int, str, bytes] | None:
    """Size and media type of a live entry, and its bytes ``[start, stop)`` as far as it goes; None when not live.

    Inside a transaction: what it reads is of one moment. Only the pages that the range touches are read.
    """
    first, last = start // CHUNK, max(start, stop - 1) // CHUNK
    # substr() and the binding have narrower integers than Python: a seq past 2**31 holds nothing
    first, last = min(first, 2**31), min(last, 2**31)
    rows = connection.execute(RANGE, (scope.run_id, scope.agent_id, kind.value, key, now, first, last)).fetchall()
    if not rows:
        return None
    size, media_type, chunk = rows[0]
    if chunk is None:
        return size, media_type, b""
    parts = []
    for at, (_, _, rowid) in enumerate(rows, first):
        with connection.blobopen("scratch_chunks", "data", rowid, readonly=True) as blob:
            begin = min(max(0, start - at * CHUNK), len(blob))
            blob.seek(begin)
            parts.append(blob.read(min(stop - at * CHUNK, CHUNK) - begin))
    return size, media_type, parts[0] if len(parts) == 1 else b"".join(parts)
