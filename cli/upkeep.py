"""The commands about the store as a whole: stats, sweep, doctor, backup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from scratch import CheckReport, ScratchStore, StoreMetrics, StoreStats, SweepReport
from scratch.cli.render import print_figures
from scratch.cli.session import EXIT_FAILED, dry_run_option, examples, json_option, open_to_read, run
from scratch.cli.text import counted, on_terminal, print_fields, print_json, print_line


@click.command(epilog=examples("scratch stats", "scratch stats --json | jq .live_bytes,.counters.spills"))
@json_option
@click.pass_obj
def stats(path: Path, as_json: bool) -> None:
    """Show how much of everything there is.

    Runs, entries, bytes of the file, free disk space; then how often what was done with it, by all processes since the
    store was made. In a pipe each line has: name, figure, unit.
    """

    async def work() -> StoreStats:
        async with open_to_read(path) as store:
            return await store.stats()

    figures = run(work())
    if as_json:
        print_json(asdict(figures))
        return
    print_figures(
        [
            ("runs", figures.runs, ""),
            ("runs not ended", figures.open_runs, ""),
            ("live entries", figures.live, ""),
            ("live content", figures.live_bytes, "bytes"),
            ("expired entries", figures.expired, ""),
            ("expired content", figures.expired_bytes, "bytes"),
            ("file", figures.file_bytes, "bytes"),
            ("write-ahead log", figures.wal_bytes, "bytes"),
            ("free in the file", figures.free_bytes, "bytes"),
            ("free on the disk", figures.disk_free_bytes, "bytes"),
        ]
    )
    if on_terminal():
        print_line("")
        print_line(f"since {datetime.fromtimestamp(figures.counted_since / 1000, UTC):%Y-%m-%d %H:%M} UTC")
    else:
        print_fields("counted since", figures.counted_since, "ms")
    print_figures(_counted(figures.counters))


def _counted(counters: StoreMetrics) -> list[tuple[str, int, str]]:
    def words(name: str, counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
        return [(f"{name}, {word}", counts[word], "") for word in sorted(counts)]

    return [
        ("captures", counters.captures, ""),
        ("spills", counters.spills, ""),
        *words("kept", counters.kept),
        ("kept out of context", counters.bytes_kept_out, "bytes"),
        *words("reads", counters.reads),
        ("read back", counters.bytes_read, "bytes"),
        *words("misses", counters.misses),
        ("notes written", counters.note_writes, ""),
        ("artifacts written", counters.artifacts_written, ""),
        ("sweeps", counters.sweeps, ""),
        ("swept entries", counters.swept_entries, ""),
        ("swept content", counters.swept_bytes, "bytes"),
        ("given back", counters.bytes_given_back, "bytes"),
        *words("failures", counters.failures),
    ]


@click.command(epilog=examples("scratch sweep --dry-run", "scratch sweep"))
@dry_run_option
@json_option
@click.pass_obj
def sweep(path: Path, dry_run: bool, as_json: bool) -> None:
    """Delete what has expired.

    Its space goes back to the disk. Others may read and write meanwhile. Once; `scratch-sweeper` is the one that
    keeps at it.
    """

    async def work() -> SweepReport:
        async with open_to_read(path) if dry_run else ScratchStore.open(path, create=False) as store:
            return await store.sweep(dry_run=dry_run)

    report = run(work())
    if as_json:
        print_json(asdict(report))
    else:
        print_sweep(report)


def print_sweep(report: SweepReport) -> None:
    """What a sweep did, in one line."""
    what = f"{counted(report.entries, 'expired entry', 'expired entries')} ({report.bytes:,} bytes)"
    if report.dry_run:
        print_line(f"would delete {what}")
    else:
        print_line(f"deleted {what}; the file became {report.given_back:,} bytes smaller")


@click.command(epilog=examples("scratch doctor", "scratch doctor --json | jq -r '.problems[]'"))
@json_option
@click.pass_obj
def doctor(path: Path, as_json: bool) -> None:
    """Check the whole store.

    For damage, orphans, counts that do not add up, access rights; and it tells the free disk space. Exit code 1 when
    there is a problem. It reads all of the file and changes nothing.
    """

    async def work() -> CheckReport:
        async with open_to_read(path) as store:
            return await store.check()

    report = run(work())
    if as_json:
        print_json(asdict(report))
    else:
        for problem in report.problems:
            print_line(f"problem: {problem}")
        for note in report.notes:
            print_line(f"note: {note}")
        print_line(f"disk: {report.stats.disk_free_bytes:,} bytes free where the store lies")
        print_line(counted(len(report.problems), "problem", "problems") if report.problems else "no problems")
    if report.problems:
        click.get_current_context().exit(EXIT_FAILED)


@click.command(epilog=examples("scratch backup /var/backups/scratch.db"))
@click.argument("target", type=click.Path(path_type=Path))
@click.pass_obj
def backup(path: Path, target: Path) -> None:
    """Write a copy of the store to TARGET.

    Consistent, compact, mode 0600; there must be nothing at TARGET. Others may go on writing meanwhile. Copying the
    file with `cp` would miss what is still in the write-ahead log.
    """

    async def work() -> None:
        async with open_to_read(path) as store:
            await store.backup(target)

    run(work())
    print_line(f"wrote {target} ({target.stat().st_size:,} bytes)")
