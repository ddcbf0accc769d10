"""Small things that tests say often."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import click

from scratch import Observation, RunScratch
from scratch.cli.main import cli


class Clock:
    """Seconds since the epoch, as told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def query(content: object, tool: str = "run_query") -> Observation:
    """A result that may be spilled."""
    return Observation(content=content, tool=tool, tool_class="query")


async def read_back(run: RunScratch, handle: str) -> bytes:
    """All that is stored, window by window."""
    content = b""
    offset: int | None = 0
    while offset is not None:
        window = await run.read_handle(handle, offset=offset, length=32_768)
        content += window.data
        offset = window.next_offset
    return content


def add_expired(path: Path, entries: int, *, size: int = 100) -> None:
    """Put entries that expired in 1970 into a store that is there, straight with SQL: ``size`` bytes each."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO agents VALUES ('old') ON CONFLICT DO NOTHING")
    connection.execute("INSERT INTO runs VALUES ('old', 'old', 0, NULL, 0) ON CONFLICT DO NOTHING")
    connection.execute("INSERT INTO run_agents VALUES ('old', 'old') ON CONFLICT DO NOTHING")
    (last,) = connection.execute("SELECT coalesce(max(entry_id), 0) FROM scratch_entries").fetchone()
    connection.executemany(
        """
        INSERT INTO scratch_entries
            (entry_id, run_id, agent_id, kind, key, size, media_type, preview, version, created_at, expires_at)
        VALUES (?1, 'old', 'old', 'note', 'old-' || ?1, ?2, 'text/plain', '', 1, 0, 1)
        """,
        ((last + number, size) for number in range(1, entries + 1)),
    )
    connection.executemany(
        "INSERT INTO scratch_chunks SELECT entry_id, ?, zeroblob(?) FROM scratch_entries WHERE entry_id > ?",
        ((seq, min(65_536, size - seq * 65_536), last) for seq in range(-(-size // 65_536))),
    )
    connection.execute("COMMIT")
    connection.close()


def count_entries(path: Path) -> int:
    """How many entries there are in the file, live or not."""
    connection = sqlite3.connect(path)
    (entries,) = connection.execute("SELECT count(*) FROM scratch_entries").fetchone()
    connection.close()
    return int(entries)


def cli_commands() -> dict[str, click.Command]:
    """Every command of ``scratch`` by name."""
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def unhurried(errors: str) -> str:
    """Without what asyncio's debug mode says of a step that took 0.1 s: that is the machine's doing."""
    return re.sub(r"^.*Executing <.* took [\d.]+ seconds.*\n", "", errors, flags=re.MULTILINE)
