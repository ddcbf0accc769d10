"""Many processes on one store for a while: no error, nothing lost, a WAL that stays small."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from scratch import ScratchStore
from scratch.database.connection import BUSY_TIMEOUT_SECONDS
from tests.processes import go, results, several, start
from tests.soak.common import LOGS, READERS, WRITERS, body, line, run_of
from tests.support import read_back

PATIENT = """
from scratch.database import connection
connection.BUSY_TIMEOUT_SECONDS = PATIENCE
"""
CHILD = """
from tests.soak.load import main
asyncio.run(main(Path(path), name, SEED, SECONDS))
"""
DAEMON = """
from scratch.sweeper.daemon import main
sys.stderr = open(path + ".log", "w", buffering=1)
main(["--db", path, "--interval", "0.5", "--log-format", "json"])
"""
MIB = 1024 * 1024
WAL_BOUND = 128 * MIB
"""From 16 MiB on a writer waits for a checkpoint, 0.2 seconds at most, and then goes on until there are 16 MiB more.
So the WAL grows while the disk stands still under a checkpoint; this is each of the eight going on once."""
TARGET_MS = 250
WRITES = ("capture", "note", "append", "if_version", "count", "renew", "delete")


# In the short form nobody gives up after 5 seconds: a shared machine's disk can stand still for longer.
@pytest.mark.parametrize(
    ("seconds", "patience"), [(6, 60.0), pytest.param(60, BUSY_TIMEOUT_SECONDS, marks=pytest.mark.soak)]
)
async def test_writers_sweepers_and_readers_at_once_lose_nothing(
    path: Path, seconds: int, patience: float, seed: int, figures: list[tuple[str, str]]
) -> None:
    logs = [f"log-{number}" for number in range(LOGS)]
    async with ScratchStore.open(path) as store:
        shared = await store.run("shared", agent_id="shared")
        await shared.write("counter", "0")
        for key in logs:
            await shared.write(key, line("begun"))
    patient = PATIENT.replace("PATIENCE", str(patience))
    child = patient + CHILD.replace("SEED", str(seed)).replace("SECONDS", str(seconds))
    daemon = start(patient + DAEMON, path)
    try:
        with several(child, path, WRITERS + 1 + READERS) as processes:
            go(processes)
            reports = [json.loads(one) for (one,) in results(processes, patience=seconds + 120)]
        daemon.send_signal(signal.SIGTERM)
        assert results([daemon]) == [[]]
    finally:
        daemon.kill()
        daemon.communicate()
    log = [json.loads(one) for one in Path(f"{path}.log").read_text(encoding="utf-8").splitlines()]
    assert {record["level"] for record in log} <= {"INFO", "WARNING"}  # a pass that is still running is a warning
    swept = [sum(record.get("entries", 0) for record in log), reports[WRITERS]["counts"]["entries swept"]]
    assert sum(swept) > 0

    async with ScratchStore.open(path, clock=lambda: time.time() + 10) as store:  # all that was short-lived is over
        assert (await store.sweep()).wal_bytes == 0
        lists = [await store.list_scratch_entries_for_run(run.run_id) for run in await store.list_runs()]
        live = {(info.agent_id, info.key) for infos in lists for info in infos}
        expected = {("shared", key) for key in ["counter", *logs]}
        for number, report in enumerate(reports[:WRITERS]):
            name = f"p{number}"
            run = await store.run(run_of(name), agent_id=name)
            for handle, written in report["held"].items():
                expected.add((name, handle))
                assert (await read_back(run, handle)).decode() == body(name, *written)
            for key, (version, digest) in report["notes"].items():
                expected.add((name, key))
                note = await run.read(key)
                assert (note.version, hashlib.sha256(note.content).hexdigest()) == (version, digest)
        assert live == expected
        shared = await store.run("shared", agent_id="shared")
        counter = await shared.read("counter")
        counted = sum(report["counted"] for report in reports[:WRITERS])
        assert (counter.text, counter.version) == (str(counted), counted + 1)
        logged = [(await shared.read(key)).text for key in logs]
        told = [one for report in reports[:WRITERS] for one in report["logged"]] + ["begun"] * LOGS
        assert sorted("".join(logged).splitlines(keepends=True)) == sorted(map(line, told))
        assert (await store.check()).problems == ()

    counts: Counter[str] = Counter()
    waits: dict[str, list[float]] = {}
    for report in reports:
        counts.update(report["counts"])
        for what, some in report["waits"].items():
            waits.setdefault(what, []).extend(some)
    wal = max(report["wal"] for report in reports)
    writes = sorted(wait for what in WRITES for wait in waits.get(what, []))
    each = ", ".join(f"{len(some):,} {what}" for what, some in sorted(waits.items()))
    figures += [
        ("load: seed", f"{seed}, {seconds} s, {WRITERS} writers, 2 sweepers, {READERS} readers"),
        ("operations", f"{sum(map(len, waits.values())):,} ({each})"),
        ("swept", f"{sum(swept):,} entries ({swept[0]:,} by the daemon); {dict(counts)}"),
        ("a write waited", f"median {writes[len(writes) // 2]:.1f} ms, p99 {writes[len(writes) * 99 // 100]:.1f} ms"),
        ("longest by kind", ", ".join(f"{what} {max(waits[what]):.0f} ms" for what in WRITES if what in waits)),
        ("longest wait", f"{writes[-1]:.1f} ms, target {TARGET_MS}: {'met' if writes[-1] < TARGET_MS else 'missed'}"),
        ("WAL at most", f"{wal / MIB:.1f} MiB, bound {WAL_BOUND // MIB}"),
        ("lost", f"0 of {len(expected):,} entries, {len(told):,} appended lines, {counted:,} counted"),
    ]
    if seconds >= 60:  # how far it gets in the short form is a matter of the machine's disk
        assert wal <= WAL_BOUND
