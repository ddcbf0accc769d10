"""The SQL of artifacts: entries that every agent of their run can read and replace by name.

Each function runs on a connection's thread, inside one transaction. A reader's or writer's place in ``run_agents`` is
compared in every statement; what is found is then read as any entry is, in the scope of the agent that wrote it.
"""

from __future__ import annotations

import sqlite3

from scratch.database import statements
from scratch.database.statements import Limits, NewEntry
from scratch.entries import EntryInfo, Kind, Scope

FIND_OWNER = """
    SELECT e.agent_id FROM scratch_entries e
    WHERE e.run_id = ?1 AND e.kind = 'artifact' AND e.key = ?3 AND e.expires_at > ?4
        AND EXISTS (SELECT 1 FROM run_agents m WHERE m.run_id = ?1 AND m.agent_id = ?2)
"""
LIST_KEYS = """
    SELECT e.agent_id, e.key FROM scratch_entries e
    WHERE e.run_id = ?1 AND e.kind = 'artifact' AND e.expires_at > ?4
        AND EXISTS (SELECT 1 FROM run_agents m WHERE m.run_id = ?1 AND m.agent_id = ?2)
        AND e.key >= max(?3, ?5) AND e.key <> ?3
        AND e.key < ?5 || char(1114111)  -- U+10FFFF, which is not printable, hence in no key
    ORDER BY e.key LIMIT ?6
"""
# An expired one goes as well: its name is free, and there can be only one row of that name.
DROP_NAMED = """
    DELETE FROM scratch_entries
    WHERE run_id = ?1 AND kind = 'artifact' AND key = ?3
        AND EXISTS (SELECT 1 FROM run_agents m WHERE m.run_id = ?1 AND m.agent_id = ?2)
    RETURNING version, created_at, expires_at
"""
GO_ON_FROM = """
    UPDATE scratch_entries SET version = ?, created_at = ?
    WHERE run_id = ? AND agent_id = ? AND kind = 'artifact' AND key = ? AND expires_at > ?
"""


def find_owner(connection: sqlite3.Connection, scope: Scope, key: str, now: int) -> Scope | None:
    """The scope that a live artifact stands in; None when there is none that ``scope``'s agent can read."""
    row = connection.execute(FIND_OWNER, (scope.run_id, scope.agent_id, key, now)).fetchone()
    return None if row is None else Scope(scope.run_id, row[0])


def list_artifacts(
    connection: sqlite3.Connection, scope: Scope, now: int, *, prefix: str, after: str, limit: int
) -> list[EntryInfo]:
    """The run's live artifacts by name, from the one after ``after`` on. Inside a transaction."""
    rows = connection.execute(LIST_KEYS, (scope.run_id, scope.agent_id, after, now, prefix, limit)).fetchall()
    infos = (statements.get_info(connection, Scope(scope.run_id, row[0]), Kind.ARTIFACT, row[1], now) for row in rows)
    return [info for info in infos if info is not None]


def write_artifact(connection: sqlite3.Connection, new: NewEntry, limits: Limits, *, replace: bool) -> int | None:
    """Write an artifact, whichever agent of the run wrote the one of that name; return its version.

    Args:
        connection: Inside a transaction.
        new: The artifact; its scope's agent is the one that has written it from then on.
        limits: Bytes.
        replace: False: when the name is taken, write nothing and return None.

    Raises:
        LimitExceeded, RunNotFound: as for :func:`scratch.database.statements.insert_entry`; nothing was changed.
    """
    if not replace and find_owner(connection, new.scope, new.key, new.now) is not None:
        return None
    # First the old one goes, so that the limits are compared with what the run will hold. The caller's savepoint
    # brings it back when the new one is refused.
    old = connection.execute(DROP_NAMED, (new.scope.run_id, new.scope.agent_id, new.key)).fetchone()
    statements.insert_entry(connection, new, limits)
    if old is None or old[2] <= new.now:
        return 1
    version = int(old[0]) + 1
    name = (new.scope.run_id, new.scope.agent_id, new.key, new.now)
    connection.execute(GO_ON_FROM, (version, old[1], *name))
    return version
