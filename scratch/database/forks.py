"""A fork while stores are open.

SQLite remembers in memory which locks its process holds. A child inherits that memory, but not the locks: its own
connection to the same file would count on locks that nobody holds for it (and lose what it writes when the parent
closes as the last one), or wait for one that nobody gives back. So a fork waits until no connection is at work, and
the child closes what it has inherited. Then it can open a store of its own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PATIENCE_SECONDS = 10.0
"""A fork does not wait longer than that: it may have been called out of the work that it waits for."""


class _Gate:
    """Either connections are at work, or a fork is under way. One for the process, from any thread."""

    def __init__(self) -> None:
        self._connections: set[sqlite3.Connection] = set()
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._forking = 0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Keep forks away; wait for one that is under way."""
        with self._changed:
            if self._forking:
                self._changed.wait_for(lambda: not self._forking)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                if self._forking:
                    self._changed.notify_all()

    def watch(self, connection: sqlite3.Connection) -> None:
        """Close ``connection`` in forked children, until :meth:`close`."""
        self._connections.add(connection)

    def close(self, connection: sqlite3.Connection) -> None:
        """Close a watched connection."""
        self._connections.discard(connection)
        connection.close()

    def before(self) -> None:
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: not self._working, _PATIENCE_SECONDS)

    def after_in_parent(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()

    def after_in_child(self) -> None:
        if not self._working:
            for connection in self._connections:
                with suppress(sqlite3.Error):
                    connection.close()
            self._connections.clear()
        self._reset()  # a thread that is not here any more may have held the lock


GATE = _Gate()
os.register_at_fork(before=GATE.before, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child)
