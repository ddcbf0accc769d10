"""``secure_delete="on"``: what was deleted is in none of the files any more, once it was swept or closed."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path

import pytest

from scratch import RunScratch, ScratchStore, SpillPolicy
from scratch.database import database
from tests.support import Clock, query, read_back

ALL = SpillPolicy(threshold_bytes=0, stub_must_be_smaller=False)
MARK = b"SECRETCANARY"
PUBLIC = b"publicstuff."


def traces(folder: Path) -> dict[str, int]:
    """How often the secret stands in each file that has it."""
    found = {file.name: file.read_bytes().count(MARK) for file in folder.iterdir()}
    return {name: count for name, count in found.items() if count}


async def churn(run: RunScratch, choose: random.Random) -> None:
    """Write, replace and delete notes, half of them secret, in every order; in the end no secret one is left."""
    live: dict[str, bool] = {}
    for _ in range(choose.choice([60, 300])):
        key = f"note-{choose.randrange(10 ** choose.choice([1, 2, 6]))}" + "k" * choose.randrange(100)
        if choose.random() < 0.7 or not live:
            live[key] = choose.random() < 0.5
            size = choose.choice([10, 100, 200, 500, 900, 1_000, 3_000, 9_000])
            await run.write(key, (MARK if live[key] else PUBLIC) * (size // 12 + 1))
        elif choose.random() < 0.5:
            key = choose.choice(list(live))
            live[key] = False
            await run.write(key, "shorter")
        else:
            key = choose.choice(list(live))
            del live[key]
            await run.delete(key)
    for key in [key for key, is_secret in live.items() if is_secret]:
        await run.write(key, "y") if choose.random() < 0.5 else await run.delete(key)


@pytest.mark.parametrize("end", ["sweep", "close"])
@pytest.mark.parametrize("seed", [36, 38])  # with secure_delete alone each of them left something
async def test_nothing_deleted_stays_in_any_file_after_a_sweep_or_a_close(path: Path, seed: int, end: str) -> None:
    async with ScratchStore.open(path, policy=ALL, secure_delete="on") as store:
        await churn(await store.run("r", agent_id="a"), random.Random(seed))
        assert traces(path.parent)  # until then it stands in the WAL
        if end == "sweep":
            assert (await store.sweep()).wal_bytes == 0
            assert traces(path.parent) == {}
        assert (await store.check()).problems == ()
    assert traces(path.parent) == {}


SORTS = ["handle", "note", "artifact", "expired", "run", "agent", "replaced note", "replaced artifact", "by another"]


@pytest.mark.parametrize("size", [40, 5_000, 300_000])
@pytest.mark.parametrize("sort", SORTS)
async def test_nothing_of_any_sort_stays(path: Path, clock: Clock, sort: str, size: int) -> None:
    secret = MARK * (size // 12)
    key = MARK.decode()
    async with ScratchStore.open(path, policy=ALL, secure_delete="on", clock=clock) as store:
        run = await store.run("r", agent_id="a")
        await run.capture(query(PUBLIC * 1_000))
        other = await store.run("r2", agent_id="b")
        match sort:
            case "handle" | "by another":
                handle = (await run.capture(query(secret, tool=key))).handle or ""
                if sort == "handle":
                    await run.delete(handle)
                else:
                    async with ScratchStore.open(path, clock=clock) as fast:
                        await (await fast.run("r", agent_id="a")).delete(handle)
            case "note":
                await run.write(key, secret)
                await run.delete(key)
            case "replaced note":
                await run.write("note", secret)
                await run.write("note", "x")
            case "artifact" | "run" | "agent":
                await other.write_artifact("name.md", secret, source_tool=key)
                await other.write(key, "x")
                await (store.delete_agent("b") if sort == "agent" else store.delete_run("r2"))
            case "replaced artifact":
                await other.write_artifact("name.md", secret, source_tool=key)
                await run.write_artifact("name.md", "x")
                await other.write_artifact("name.md", "x")
            case "expired":
                await run.capture(query(secret, tool=key), ttl=1)
                clock.advance(2)
        report = await store.sweep()
        assert (report.wal_bytes, traces(path.parent)) == (0, {})
        assert traces(path.parent) == {}


async def test_what_is_live_is_there_after_the_file_was_written_anew(path: Path) -> None:
    async with ScratchStore.open(path, policy=ALL, secure_delete="on") as store:
        run = await store.run("r", agent_id="a")
        kept = {(await run.capture(query(bytes([n]) * 70_000))).handle or "": bytes([n]) * 70_000 for n in range(9)}
        await run.write("note", MARK)
        await run.delete("note")
        before = path.stat().st_ino
        await asyncio.gather(store.sweep(), *(run.write(f"meanwhile-{n}", "x") for n in range(50)))
        await store.sweep()
        assert {handle: await read_back(run, handle) for handle in kept} == kept
        assert len(await run.list()) == 50
        assert path.stat().st_ino == before
        assert (await store.check()).problems == ()


async def test_a_file_that_nobody_wrote_to_is_not_written_anew(path: Path) -> None:
    async with ScratchStore.open(path, policy=ALL, secure_delete="on") as store:
        run = await store.run("r", agent_id="a")
        await store.sweep()
        upkeep = store._database._engine.upkeep
        assert upkeep is not None
        seen: list[str] = []
        await upkeep.call(lambda connection: connection.set_trace_callback(seen.append))
        await store.sweep()
        assert "VACUUM" not in seen
        await run.write("note", "x")
        await store.sweep()
        assert "VACUUM" in seen


async def test_a_reader_in_the_way_is_told_and_the_next_sweep_erases(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_ERASE_SECONDS", 0.01)
    async with ScratchStore.open(path, policy=ALL, secure_delete="on") as store:
        reader = sqlite3.connect(path)
        run = await store.run("r", agent_id="a")
        await run.write("note", MARK)
        await run.delete("note")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        assert (await store.sweep()).wal_bytes > 0
        reader.execute("COMMIT")
        assert (await store.sweep()).wal_bytes == 0
        assert traces(path.parent) == {}
        await run.write("note", MARK)
        await run.delete("note")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
    assert [record.getMessage() for record in caplog.records] == [
        f"what was deleted from {path} can still be in it; sweep it"
    ]
    reader.close()
