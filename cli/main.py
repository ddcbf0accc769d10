"""The `scratch` command: its group, and what holds for every command: exit codes, errors of one line, encodings."""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path

import click

from scratch.cli import demo, exploring, export, reading, tokens, upkeep, writing
from scratch.cli.session import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_MISUSE,
    EXIT_OK,
    default_path,
    examples,
    os_error_text,
)
from scratch.cli.text import discard_output, flush
from scratch.visible import escape


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "scratch demo",
        "kubectl get pods -A -o json | scratch put --run run-42",
        "scratch list run-42",
    ),
)
@click.option(
    "--db",
    type=click.Path(path_type=Path),
    default=default_path,
    envvar="SCRATCH_DB",
    show_envvar=True,
    show_default="scratch.db in the user's state folder",
    metavar="FILE",
    help="The store.",
)
@click.version_option(package_name="run-scratch")
@click.pass_context
def cli(context: click.Context, db: Path) -> None:
    """Look into the scratch of agents' runs: large tool results that stay out of the context, and notes.

    Exit codes: 0 fine, 1 failed, 2 misuse.
    """
    context.obj = db


for command in (
    reading.list_entries,
    reading.runs,
    reading.show,
    reading.find,
    writing.put,
    writing.note,
    writing.rm,
    upkeep.stats,
    upkeep.sweep,
    upkeep.doctor,
    upkeep.backup,
    exploring.explore,
    exploring.tools,
    tokens.tokens,
    export.export,
    demo.demo,
):
    cli.add_command(command)


def main() -> int:
    """Run the command; return its exit code. No error shows a traceback (but with ``python -X dev``)."""
    _prepare_streams()
    _log_to_stderr()
    try:
        code = cli.main(prog_name="scratch", standalone_mode=False)
        flush()
    except click.exceptions.Exit as stop:  # the reader of the pipe has gone
        return stop.exit_code
    except click.UsageError as error:
        if error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        return _fail(error.format_message(), EXIT_MISUSE)
    except click.ClickException as error:
        return _fail(error.format_message(), EXIT_FAILED)
    except click.Abort:
        return EXIT_INTERRUPTED
    except OSError as error:
        discard_output()
        return _fail(f"the output could not be written: {os_error_text(error)}", EXIT_FAILED)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        return _fail(f"unexpected: {type(error).__name__}: {error}", EXIT_FAILED)
    return code if isinstance(code, int) else EXIT_OK


def _fail(message: str, code: int) -> int:
    click.echo(f"Error: {escape(message)}", err=True)
    return code


def _prepare_streams() -> None:
    """No output fails for its encoding, and a stream that the caller has closed is an empty one."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as above
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _log_to_stderr() -> None:
    """What the library logs becomes one line on standard error, with its cause in place of a traceback."""
    handler = logging.StreamHandler()
    handler.addFilter(_in_one_line)
    logging.getLogger("scratch").addHandler(handler)


def _in_one_line(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        text += f": {record.exc_info[1]}"
    record.msg, record.args = f"{record.levelname.lower()}: {escape(text)}", ()
    record.exc_info = record.exc_text = record.stack_info = None
    return record.levelno >= logging.WARNING


if __name__ == "__main__":
    sys.exit(main())
