"""Text and bytes to standard output, safely: what a terminal would obey is made visible, and no encoding fails."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

import click

from scratch.visible import UNSAFE, escape

_BYTES_A_BASE64_LINE = 57

BASE64_BYTES = _BYTES_A_BASE64_LINE * 512
"""Bytes in pieces of this length (the last one shorter) give base64 that can be joined."""


def encodable(text: str) -> str:
    """``text`` with escapes for what the output's encoding cannot say."""
    encoding = output_encoding()
    return text.encode(encoding, "backslashreplace").decode(encoding)


def output_encoding() -> str:
    """How standard output encodes text."""
    return sys.stdout.encoding or "utf-8"


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def on_terminal() -> bool:
    """Whether a person reads the output."""
    return sys.stdout.isatty()


def write(text: str) -> None:
    """Write text that is safe already.

    Raises:
        click.exceptions.Exit: the reader of the pipe has gone (`| head`). It has what it wanted: that is no failure.
        OSError: the disk is full, or the like.
    """
    try:
        sys.stdout.write(encodable(text))
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit from None


def write_bytes(data: bytes) -> None:
    """Write exactly these bytes.

    Raises:
        click.exceptions.Exit, OSError: as for :func:`write`.
    """
    flush()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit from None


def write_base64(data: bytes) -> None:
    """Write bytes as lines of base64."""
    for start in range(0, len(data), _BYTES_A_BASE64_LINE):
        write(base64.b64encode(data[start : start + _BYTES_A_BASE64_LINE]).decode("ascii") + "\n")


def flush() -> None:
    """Hand over what was written: the interpreter's end would be too late to say what goes wrong with that.

    Raises:
        click.exceptions.Exit, OSError: as for :func:`write`.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit from None


def discard_output() -> None:
    """Let what is still in the buffer go nowhere, or flushing it at the interpreter's end would complain again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_line(text: str) -> None:
    """One line."""
    write(escape(text) + "\n")


def print_fields(*fields: object) -> None:
    """One line of a pipe: tabs between whole values, nothing for None."""
    write("\t".join("" if field is None else escape(str(field)) for field in fields) + "\n")


def print_note(text: str) -> None:
    """One line beside the output, on standard error."""
    flush()
    click.echo(escape(text), err=True)


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON can express
    """A value as JSON."""
    print_json_text(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_text(text: str) -> None:
    """JSON text; what is unsafe or cannot be encoded gets JSON's own escapes, so that the value stays the same."""
    encoding = output_encoding()
    for line in text.split("\n"):
        safe = UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
        try:
            safe.encode(encoding)
        except UnicodeEncodeError:
            # in JSON, text that is not ASCII stands in strings only
            safe = "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in safe)
        write(safe + "\n")
