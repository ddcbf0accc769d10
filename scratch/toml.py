"""Reading a TOML text against a schema: every value is checked, and every fault has its table, key and line.

The standard library's parser gives values without their places, so the lines of the keys come from a scan of our own.
It runs over valid TOML only, and so needs no more than to find strings, brackets and keys.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from scratch.regex import compiled

KeyPath = tuple[str, ...]
"""The tables from the outermost to the key, and the key."""
Check = Callable[[Any], object]
"""Returns a value as it is to be used. Raises ValueError, with a sentence for the user, for one that cannot be."""


@dataclass(frozen=True, slots=True)
class Named:
    """A table whose keys are names that the file chooses; under each of them is a table of one form."""

    inside: Table
    check_name: Check = str


Table: TypeAlias = "Named | Mapping[str, Check | Table]"
"""What may stand in a table."""

_MOST = 2**63 - 1
_SHOWN = 60
_BARE = compiled(r"[A-Za-z0-9_-]+")
_WHERE = compiled(r" \(at (?:line (\d+), column \d+|end of document)\)$")

_STRING = (
    r'"""(?:\\.|[^\\])*?""""{0,2}'  # up to two quotes more than the three that end it are its own
    r"|'''.*?''''{0,2}"
    r'|"(?:\\.|[^"\\])*+"'
    r"|'[^']*'"
)
_SPACE = compiled(r"(?:[ \t\n]|#[^\n]*)*+")
_KEY = compiled(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*+"|'[^']*'""")
_DOT = compiled(r"[ \t]*\.[ \t]*")
_EQUALS = compiled(r"[ \t]*=[ \t]*")
_OPENING = compiled(r"\[{1,2}[ \t]*")
_CLOSING = compiled(r"[ \t]*\]{1,2}")
_SCALAR = compiled(rf"{_STRING}|[^,\]}}\n#]+", re.DOTALL)
_IN_ARRAY = compiled(rf"{_STRING}|#[^\n]*|[^\[\]\"'#]+|[\[\]]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file. ``table`` is empty at its top; ``key`` and ``line`` are None where there is none."""

    table: str
    key: str | None
    message: str
    line: int | None = None

    def __str__(self) -> str:
        words = [f"line {self.line}:"] if self.line is not None else []
        words += [f"[{self.table}]"] if self.table else []
        words += [f"{quoted(self.key)}:"] if self.key is not None else []
        return " ".join([*words, self.message])


@dataclass(frozen=True, slots=True)
class Reading:
    """The values that passed, table in table; the line of each key; and the faults, to which more may be added."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def add_fault(self, path: KeyPath, message: str) -> None:
        """Note what is wrong with a key."""
        table = ".".join(map(quoted, path[:-1]))
        self.faults.append(Fault(table, path[-1], message, self.lines.get(path)))


def read(text: str, schema: Table) -> Reading:
    """Read a TOML text. Never raises for a text: what is wrong with it is in ``faults``."""
    try:
        document = tomllib.loads(text)
        reading = Reading(lines=key_lines(text))
    except RecursionError:
        return Reading(faults=[Fault("", None, "arrays or tables are nested too deeply; write them flat")])
    except ValueError as error:
        return Reading(faults=[_syntax_fault(error, text)])
    reading.values.update(_read_table(reading, document, schema, ()))
    return reading


def _syntax_fault(error: ValueError, text: str) -> Fault:
    if not isinstance(error, tomllib.TOMLDecodeError):
        return Fault("", None, "a whole number has more digits than can be read; no key takes so large a number")
    message, line = str(error), None
    if where := _WHERE.search(message):
        message = message[: where.start()]
        line = int(where[1] or text.count("\n") + 1)
        if not where[1]:
            message += " at the end of the file: a quote or bracket above may lack its end"
    return Fault("", None, f"this is not TOML: {message}; mend it and load again to see whether there is more", line)


def _read_table(
    reading: Reading, table: dict[str, Any], schema: Table, path: KeyPath, *, has_name: bool = False
) -> dict[str, Any]:
    """The values of a table that pass. ``has_name``: the last key of its path is a name that the file chose."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        at = (*path, key)
        if isinstance(schema, Named):
            rule: Check | Table = schema.inside
            try:
                schema.check_name(key)
            except ValueError as error:
                reading.add_fault(at, str(error))
        else:
            rule = schema[key] if key in schema else _unknown(key, list(schema), path[-1] if has_name else None)
        try:
            if callable(rule):
                values[key] = rule(value)
            elif isinstance(value, dict):
                values[key] = _read_table(reading, value, rule, at, has_name=isinstance(schema, Named))
            else:
                inside = "name = { … }" if isinstance(rule, Named) else f"{next(iter(rule))} = …"
                raise no(f"must be one table, such as {{ {inside} }}", value)
        except ValueError as error:
            reading.add_fault(at, str(error))
    return values


def _unknown(key: str, known: list[str], name: str | None) -> Check:
    """The check of a key that is not known: nothing passes. ``name`` is the name that the file chose for its table."""

    def check(value: object) -> object:
        [closest] = difflib.get_close_matches(key[:_SHOWN], known, n=1, cutoff=0)
        message = f'unknown key; the closest known one is "{closest}"'
        if len(known) > 1:
            message += f" (of {', '.join(known)})"
        if name is not None and isinstance(value, dict):
            message += f"; a name with a dot in it needs quotes: {quoted(f'{name}.{key}')}"
        raise ValueError(message)

    return check


def flag(value: object) -> bool:
    """A check: true or false."""
    if not isinstance(value, bool):
        raise no("must be true or false", value)
    return value


def text(value: object) -> str:
    """A check: a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise no("must be a text in quotes that is not blank", value)
    return value


def whole(least: int) -> Check:
    """A check: an integer from ``least`` up."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise no(f"must be a whole number, {least} or more", value)
        return value

    return check


def number(what: str, accepts: Callable[[float], bool]) -> Check:
    """A check: a number with or without a fraction, that is ``what``; ``accepts`` must refuse NaN."""

    def check(value: object) -> float:
        # an integer is not made a float before it has passed: 10**400 does not fit
        if isinstance(value, bool) or not isinstance(value, int | float) or not accepts(value):
            raise no(f"must be a number {what}", value)
        return float(value)

    return check


def no(demand: str, value: object) -> ValueError:
    """The error for a value that is not what it must be."""
    if isinstance(value, dict):
        shown = "a table"
    elif isinstance(value, list):
        shown = "an array"
    elif isinstance(value, bool):
        shown = str(value).lower()
    elif isinstance(value, str):
        shown = quoted(value, bare=False)
    elif isinstance(value, int) and abs(value) > _MOST:  # it may have more digits than str() agrees to write
        shown = "a number beyond 2**63"
    else:
        shown = str(value)
    return ValueError(f"{demand}, not {shown}")


def quoted(key: str, *, bare: bool = True) -> str:
    """A key or a text as it could stand in the file, on one line, without its far end when it is long."""
    if bare and _BARE.fullmatch(key):
        return key
    shown = key if len(key) <= _SHOWN else f"{key[:_SHOWN]}…"
    return json.dumps(shown, ensure_ascii=not shown.isprintable())


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, counted from 1, on which each key and table of a valid TOML text is first named.

    Keys inside arrays are left out, and all tables of an array of tables are one.
    """
    scan = _Scan(text.replace("\r\n", "\n"))
    scan.document()
    return scan.lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._line = 1

    def document(self) -> None:
        table: KeyPath = ()
        while first := self._next():
            if first == "[":
                self._take(_OPENING)
                table = self._key(())
                self._take(_CLOSING)
            else:
                self._pair(table)

    def _pair(self, table: KeyPath) -> None:
        path = self._key(table)
        self._take(_EQUALS)
        self._value(path)

    def _key(self, path: KeyPath) -> KeyPath:
        while True:
            part = self._take(_KEY)
            path = (*path, tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part)
            self.lines.setdefault(path, self._line)
            if not self._take(_DOT, optional=True):
                return path

    def _value(self, path: KeyPath) -> None:
        first = self._next()
        if first == "{":
            self._skip(1)
            while self._next() != "}":
                self._pair(path)
                if self._next() == ",":
                    self._skip(1)
            self._skip(1)
        elif first == "[":
            depth = 1
            self._skip(1)
            while depth:
                part = self._take(_IN_ARRAY)
                depth += (part == "[") - (part == "]")
        else:
            self._take(_SCALAR)

    def _next(self) -> str:
        """The next character that is neither white space nor in a comment; nothing at the end."""
        self._take(_SPACE, optional=True)
        return self._text[self._at : self._at + 1]

    def _take(self, token: re.Pattern[str], *, optional: bool = False) -> str:
        found = token.match(self._text, self._at)
        if found is None:
            assert optional, f"line {self._line} is not valid TOML"
            return ""
        self._skip(found.end() - self._at)
        return found[0]

    def _skip(self, characters: int) -> None:
        self._line += self._text.count("\n", self._at, self._at + characters)
        self._at += characters
