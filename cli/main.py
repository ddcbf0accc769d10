"""The `scratch` command: its group, and what holds for every command: exit codes, errors of one line, encodings."""

from __future__ import annotations

import io
import logging
import os
import sys
from importlib import import_module
from pathlib import Path

import click

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

_COMMANDS = {
    "backup": "upkeep.backup",
    "demo": "demo.demo",
    "doctor": "upkeep.doctor",
    "explore": "exploring.explore",
    "export": "export.export",
    "find": "reading.find",
    "list": "reading.list_entries",
    "note": "writing.note",
    "put": "writing.put",
    "rm": "writing.rm",
    "runs": "reading.runs",
    "show": "reading.show",
    "stats": "upkeep.stats",
    "sweep": "upkeep.sweep",
    "tokens": "tokens.tokens",
    "tools": "exploring.tools",
}
"""Where each command is."""


class _Group(click.Group):
    """Imports a command when it is asked for: to import all of them takes longer than most of them run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click gives it
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(".")
        command: click.Command = getattr(import_module(f"scratch.cli.{module}"), name)
        return command


@click.group(
    cls=_Group,
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
