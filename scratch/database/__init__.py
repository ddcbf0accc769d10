"""Everything that knows SQLite. Outside this package nobody sees a connection, a statement or a sqlite3 error.

``files`` looks after the file, ``connection`` makes connections and the schema, ``forks`` keeps them out of forked
children; ``worker`` runs functions on aiosqlite's threads and groups commits; ``engine`` opens and closes all that;
``statements`` holds the SQL of the entries, ``maintenance`` that of the sweep and the checks; ``database`` is what the
rest of the package sees.
"""

from scratch.database.connection import SecureDelete
from scratch.database.database import Database
from scratch.database.maintenance import CheckReport, StoreStats
from scratch.database.statements import Limits, NewEntry

__all__ = ["CheckReport", "Database", "Limits", "NewEntry", "SecureDelete", "StoreStats"]
