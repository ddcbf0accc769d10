"""Everything that knows SQLite. Outside this package nobody sees a connection, a statement or a sqlite3 error.

``connection`` opens files and makes connections; ``worker`` runs functions on aiosqlite's threads and groups commits;
``statements`` holds the SQL of the entries, ``maintenance`` that of the sweep and the checks; ``database`` puts them
together.
"""

from scratch.database.connection import SecureDelete
from scratch.database.database import Database
from scratch.database.maintenance import CheckReport, StoreStats
from scratch.database.statements import Limits, NewEntry

__all__ = ["CheckReport", "Database", "Limits", "NewEntry", "SecureDelete", "StoreStats"]
