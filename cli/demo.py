"""`scratch demo`: the main job on results made on the spot. Every figure that it prints comes from the store."""

from __future__ import annotations

import importlib.metadata
import json
import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from click.core import ParameterSource

from scratch import Captured, HandleNotFound, Observation, RunScratch, ScratchStore, StoreStats
from scratch.cli.proof import EXPLORED_RUN, prove
from scratch.cli.render import print_entries, print_matches
from scratch.cli.session import examples, failure, run
from scratch.cli.text import counted, flush, print_line, write
from scratch.cli.upkeep import print_sweep
from scratch.clock import now_ms, system_clock
from scratch.visible import escape_block

_RUN = "demo"
_AGENT = "demo"
_SHORT_TTL = 600.0
"""Seconds that the first result lives; everything else has the default of an hour."""
_PIP_SECONDS = 60


@dataclass(slots=True)
class _Clock:
    """The system's clock, and a number of seconds on top."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return system_clock() + self.ahead


@click.command(
    epilog=examples(
        "scratch demo",
        "scratch demo --explore",
        "scratch --db /tmp/demo.db demo && scratch --db /tmp/demo.db list demo",
    )
)
@click.option("--explore", is_flag=True, help="Answer questions about large results, with a model's tools only.")
@click.pass_context
def demo(context: click.Context, explore: bool) -> None:
    """Show what it is for, on real results.

    They are of this machine: what pip has installed, and Python's own files. In a temporary store that is removed at
    the end; with --db in a new store at that path, which stays.
    """
    source = context.find_root().get_parameter_source("db")
    if source is ParameterSource.COMMANDLINE:
        path: Path = context.obj
        if path.exists():
            raise click.UsageError(f"the demo sweeps with a clock of its own, so it wants a new store; {path} exists")
        run(_explore(path) if explore else _demo(path))
        print_line(f"\nthe store stays: scratch --db {path} list {EXPLORED_RUN if explore else _RUN}")
        return
    with tempfile.TemporaryDirectory(prefix="scratch-demo-") as folder:
        path = Path(folder) / "scratch.db"
        run(_explore(path) if explore else _demo(path))


async def _explore(path: Path) -> None:
    async with ScratchStore.open(path) as store:
        await prove(store, installed_packages())


async def _demo(path: Path) -> None:
    clock = _Clock()
    async with ScratchStore.open(path, clock=clock) as store:
        _title(f"a store: {store.path}")
        scope = await store.run(_RUN, agent_id=_AGENT)

        _title("two tool results are captured; the model gets stubs in their place")
        packages = await _capture(scope, installed_packages(), "pip_inspect", "query", ttl=_SHORT_TTL)
        files = await _capture(scope, directory_listing(), "list_files", "workspace", ttl=None)
        entries = await store.list_scratch_entries_for_run(_RUN)
        whole = sum(info.size for info in entries)
        stubs = sum(len(captured.text.encode()) for captured in (packages, files))
        print_line(f"on every later call the model would have paid {whole:,} bytes; now it pays {stubs:,}")
        print_line("the second stub, as the model sees it:")
        print_line(files.text)

        await _read_back(scope, packages.handle or "", files.handle or "")
        await _take_notes(scope)

        _title(f"scratch list {_RUN}")
        print_entries(await store.list_scratch_entries_for_run(_RUN), now_ms(clock))

        await _expire_and_sweep(store, scope, clock, packages.handle or "")


async def _capture(scope: RunScratch, content: str, tool: str, tool_class: str, ttl: float | None) -> Captured:
    captured = await scope.capture(Observation(content, tool=tool, tool_class=tool_class), ttl=ttl)
    if captured.handle is None:
        raise failure(f"the result of {tool} stayed in the context: {captured.decision.reason}")
    size = (await scope.read_handle(captured.handle, length=1)).size
    stub = len(captured.text.encode())
    print_line(f"{tool:<12}{size:>11,} bytes -> {stub:>5,} bytes  {captured.handle}  ({captured.decision.reason})")
    return captured


async def _read_back(scope: RunScratch, packages: str, files: str) -> None:
    _title("a range of bytes of the first result")
    window = await scope.read_handle(packages, offset=1_000, length=240)
    print_line(f"bytes [{window.offset}, {window.end}) of {window.size}:")
    write(escape_block(window.text) + "\n")

    word = "sqlite3"
    _title(f'where "{word}" stands in the second one')
    matches = await scope.read_handle(files, match=word, context=80, max_windows=2)
    print_matches(matches, word)
    print_line(f"{counted(matches.total_matches, 'match', 'matches')} in the {matches.searched_bytes:,} bytes searched")


async def _take_notes(scope: RunScratch) -> None:
    _title("the agent's own notes")
    version = await scope.write("plan", "1. look at the packages\n")
    print_line(f"plan written, version {version}")
    version = await scope.write("plan", "2. look at the files\n", append=True)
    print_line(f"plan appended to, version {version}; it reads:")
    write(escape_block((await scope.read("plan")).text))


async def _expire_and_sweep(store: ScratchStore, scope: RunScratch, clock: _Clock, handle: str) -> None:
    _title("scratch sweep, while everything is live")
    print_sweep(await store.sweep())
    print_line(f"on disk: {_on_disk(await store.stats())}")

    _title("time passes: the clock that this store was given is put 15 minutes ahead (nothing waits)")
    clock.ahead += 900
    try:
        await scope.read_handle(handle)
    except HandleNotFound as error:
        print_line(f"reading the first result now: {error.message}")

    _title("scratch sweep")
    print_sweep(await store.sweep())
    after = await store.stats()
    print_line(f"on disk: {_on_disk(after)}")
    print_line(f"live: {counted(after.live, 'entry', 'entries')}, {after.live_bytes:,} bytes")


def _on_disk(stats: StoreStats) -> str:
    return f"{stats.file_bytes:,} bytes of file, {stats.wal_bytes:,} bytes of write-ahead log"


def _title(text: str) -> None:
    write("\n")
    print_line(f"# {text}")
    flush()  # the next result takes a moment to make


def installed_packages() -> str:
    """What `pip inspect` says of this environment, as JSON; without pip, from Python's own metadata."""
    command = [sys.executable, "-m", "pip", "inspect"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PIP_SECONDS, check=False)  # noqa: S603 - fixed
    except (OSError, subprocess.TimeoutExpired):
        pass
    else:
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace")
    installed = [{"metadata": found.metadata.json} for found in importlib.metadata.distributions()]
    return json.dumps({"version": "1", "installed": installed}, indent=2)


def directory_listing() -> str:
    """The files of Python's standard library, as `ls -lR` lists them."""
    lines = []
    for folder, folders, names in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = sorted(name for name in folders if name not in {"site-packages", "dist-packages"})
        lines.append(f"{folder}:")
        for name in sorted(names):
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - as os.walk does
            changed = datetime.fromtimestamp(status.st_mtime, UTC)
            lines.append(f"{stat.filemode(status.st_mode)} {status.st_size:>9} {changed:%Y-%m-%d %H:%M} {name}")
        lines.append("")
    return "\n".join(lines)
