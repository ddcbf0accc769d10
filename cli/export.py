"""The command that writes a run's entries as files: export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from scratch.cli.session import examples, json_option, open_to_read, run, run_argument
from scratch.cli.text import counted, on_terminal, print_fields, print_json, print_line, print_note
from scratch.export import ExportReport, export_run


@click.command(
    epilog=examples(
        "scratch export run-42 --to ./out",
        "scratch export run-42 --to ./out --all --agent researcher --dry-run",
        "scratch export run-42 --to ./out --json | jq -r '.files[].path'",
    )
)
@run_argument
@click.option(
    "--to",
    type=click.Path(),
    required=True,
    metavar="DIR",
    help="Where the run's folder is made; DIR too when it is missing.",
)
@click.option("--agent", metavar="AGENT", help="Only what this agent wrote.")
@click.option("--all", "everything", is_flag=True, help="Notes and results too.")
@json_option
@click.option("--dry-run", is_flag=True, help="Say what would be written; write nothing.")
@click.pass_obj
def export(path: Path, run_id: str, to: str, agent: str | None, everything: bool, as_json: bool, dry_run: bool) -> None:
    """Write the artifacts of a run as files; with --all its notes and results too.

    Into DIR/RUN, which must not be there yet, or be empty: artifacts/, iteration-N/scratchpad/, notes/, handles/. Names
    are made safe, files are 0600. All of it is written, or nothing. In a pipe one line a file: path, kind, key,
    agent, bytes.
    """
    if not to:  # a variable that is not set, more likely than the folder that one is in
        raise click.UsageError("--to must name a folder", click.get_current_context())

    async def work() -> ExportReport:
        async with open_to_read(path) as store:
            return await export_run(store, run_id, Path(to), agent_id=agent, everything=everything, dry_run=dry_run)

    report = run(work())
    if as_json:
        print_json(asdict(report))
        return
    for file in report.files:
        if on_terminal():
            print_line(f"{file.path} ({file.size:,} bytes)")
        else:
            print_fields(file.path, file.kind, file.key, file.agent_id, file.size)
    if report.gone:
        print_note(f"deleted or expired meanwhile, not written: {', '.join(report.gone)}")
    if report.files:
        wrote = "would write" if dry_run else "wrote"
        print_note(f"{wrote} {counted(len(report.files), 'file', 'files')} ({report.size:,} bytes) to {report.folder}")
    else:
        what = "nothing is live" if everything or not report.left_out else "there is no artifact"
        print_note(f"{what} in run {run_id!r}" + (f" of agent {agent!r}" if agent is not None else ""))
    if report.left_out:
        print_note(f"left out: {counted(report.left_out, 'note or result', 'notes and results')}; --all takes them too")
