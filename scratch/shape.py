"""One line about what a content is: JSON, a table, a web page, a log, a document. Pure functions.

Only the start of a content is looked at (and the lines of a table or a log counted, in pieces), so the answer is
careful rather than complete: what is not clearly of a kind gets no line.
"""

from __future__ import annotations

import csv
import json
import re
from itertools import islice

from scratch.content import Content

_PARSED_AT_MOST = 32 * 1024
"""Bytes of JSON text that are parsed for their shape (0.2 ms); parsing 100 KiB takes longer than storing them."""
_WINDOW = 64 * 1024
"""Characters at the start that are looked at otherwise."""
_JSON_WINDOW = 8 * 1024
"""The same for JSON (0.1 ms)."""
_COUNTED_FROM = 5
"""So many items at the start tell about how many there are in all."""
_ARRAYS = (list, tuple, set, frozenset)
_MAX_KEYS = 8
_MAX_KEY_CHARACTERS = 40
_MAX_TITLE_CHARACTERS = 160

_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_TOKEN = 12
"""A token of JSON that the end of the window cuts (an escape, ``-Infinity``) begins at most so far before it."""
_DECODER = json.JSONDecoder()
_CUT_KINDS = {"{": "object", "[": "array", '"': "text"}

_SEPARATORS = {",": "CSV", "\t": "TSV", ";": "CSV"}
_TABLE_RECORDS = 10
_COLUMN = re.compile(r"[#@]?[^\W\d][\w .%/&#+-]{0,79}(?:\([\w .%/°-]{1,40}\))?")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_LINE_ENDS = bytes(10 if byte in b"\r\n" else 120 for byte in range(256))
"""Every line end becomes a newline, every other byte an x."""
_NO_QUOTE = bytes(byte for byte in range(256) if byte not in b'\n"')

_HTML = re.compile(r"(?:<\?xml[^>]{0,200}>\s{0,99})?<(?:!doctype\s{1,9}html|html)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title(?:\s[^<>]{0,200})?>([^<]{0,2000})", re.IGNORECASE)

_COUNTED_AT_ONCE = 4 * 1024 * 1024
"""Characters or bytes (a millisecond, without a copy)."""
_LOG_LINES = 10
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"\d\d:\d\d:\d\d"
_TIMESTAMP = re.compile(
    rf"(?:<\d{{1,3}}>)?(?:\S{{1,80}} {{1,4}}(?:\| )?)??\[?\d{{4}}[-/.]\d\d[-/.]\d\d[T ,_]{{1,2}}\d\d:\d\d"
    rf"|(?:<\d{{1,3}}>)?\[?(?:[A-Z][a-z]{{2}},? )?{_MONTH} [ \d]\d (?:\d{{4}} )?{_TIME}"  # syslog
    rf"|\S{{1,80}} \S{{1,80}} \S{{1,80}} \[\d\d/{_MONTH}/\d{{4}}:{_TIME}"  # web servers
    rf"|\[?{_TIME}(?:[.,\]\s]|$)"
    r"|\[ {0,9}\d{1,9}\.\d{6}\] "  # a kernel's seconds
)

_DOCUMENT_LINES = 100
_DOCUMENT_LINE_CHARACTERS = 500
_HEADING = re.compile(r"(#{1,6}) {1,9}(?=[^\s#])")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_COMMENT = re.compile(r"#+$|#{1,6}(?:[^#\s]|\t)|# .*\.$")
"""A hash that makes no heading: ``#!/bin/sh``, ``#include``, a ``#`` alone, a sentence."""
_CODE = re.compile(
    r"[\w.\[\]$-]{1,80} ?(?:[-+|:?]?=|<-)"  # an assignment, a setting
    r"|\w{2,80}\("  # a call
    r"|[a-z][\w.-]{0,80}: *\S|- [\w.-]{1,80}:(?:\s|$)"  # YAML, a make target
    r"|\[[\w. \"-]{1,80}\]$"  # a section of settings
    r"|import [\w.{*\"']|from \S{1,80} import |(?:async )?def \w|class \w{1,80}[(:]|@\w|require[ (]['\"]|with \S.*:$"
    r"|(?:print|puts)\b ?[(\"']|\"\"\"|'''|(?:if|for|while|elif|else|try)\b.{0,400}(?:; (?:then|do)|:)$"
    r"|(?:fi|done|esac|then|else|do|end|pass|set [-+]\w.*|exit \d+)$"
    r"|(?:export|sudo|apt-get|cd|echo|curl|mkdir|rm|cp|mv|chmod|(?:apt|git|pip|npm) (?:install|clone|add|run|ci)\b)"
    r"|(?:FROM|RUN|COPY|ADD|CMD|ENV|ARG|WORKDIR|ENTRYPOINT|EXPOSE) \S"
    r"|\S.{0,500}[;{}\\]$|\S.{0,400} && "
)
"""The start of a line that stands in a program or in settings, seldom in a document."""
_MARKUP = re.compile(
    r"\[[^\]\n]{1,200}\]\([^)\s]{1,200}|\*\*[^*\n]{1,200}\*\*|`[^`\n]{1,200}`|^\|?[ :|-]{0,99}---[ :|-]{0,99}\|"
    r"|^ {0,3}(?:[-*+]|\d{1,3}[.)]) \S{1,99} \S{1,99} \S"  # an item of a few words
    r"|^[^\W\d_][^{}=;<>$|\\]{20,500}[.!?:,。！？]$"  # a sentence  # noqa: RUF001 - Chinese has its own marks
)
"""What tells a document from comments."""


def json_shape(content: Content) -> str | None:
    """One line about a JSON content, or None where it is none."""
    if content.value is not None:
        return f"JSON {_describe(content.value)}"
    start = content.head(64).lstrip("\ufeff \t\r\n")[:1]
    if not start or start not in "[{":
        return None
    try:
        if content.size > _PARSED_AT_MOST:  # a whole parse of 50 MB holds the GIL for seconds
            return f"JSON {_describe_start(content)}"
        value: object = json.loads(content.text().removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return f"JSON {_describe(value)}"


def text_shape(content: Content) -> str | None:
    """One line about a table, a web page, a log or a document in text, or None where it is none of them."""
    window = content.head(_WINDOW).removeprefix("\ufeff")
    whole = len(content.body) <= _WINDOW
    if page := _html_shape(window):
        return page
    if table := _table_header(window, whole=whole):
        name, columns = table
        lines, exact = _count_records(content)
        names = _listed([_name(column) for column in columns[:_MAX_KEYS]], len(columns))
        return f"{name}, {'' if exact else 'about '}{lines - 1:,} rows, columns: {names}"
    if _is_log(window):
        return f"log, {_count_lines(content):,} lines"
    heading = _first_heading(window)
    return None if heading is None else f"markdown, first heading: {_title(heading)}"


# --- JSON


def _describe(value: object) -> str:
    if isinstance(value, dict):
        parts = [f"{_name(key)} ({_kind(item)})" for key, item in islice(value.items(), _MAX_KEYS)]
        return f"object: {_listed(parts, len(value))}" if parts else "object, empty"
    if not isinstance(value, _ARRAYS):
        return _kind(value)
    if not value:
        return "array, empty"
    first = next(iter(value))
    if not all(type(item) is type(first) for item in value):
        return f"array of {len(value):,} items of mixed kinds"
    if not isinstance(first, dict):
        return f"array of {len(value):,} items ({_kind(first)})"
    names = [_name(key) for key in islice(first, _MAX_KEYS)]
    keys = f"keys {_listed(names, len(first))}" if names else "no keys"
    return f"array of {len(value):,} objects, the first with {keys}"


def _describe_start(content: Content) -> str:
    """What the start of a large JSON text tells.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    text = content.head(_JSON_WINDOW).removeprefix("\ufeff")
    at = _skip(text, 0)
    if content.tail(64).rstrip()[-1:] != {"{": "}", "[": "]"}.get(text[at : at + 1]):
        msg = "the end does not fit the start"
        raise ValueError(msg)
    entries, closed = _entries(text, at)
    if closed or not entries:
        msg = "something follows, as in JSON lines"
        raise ValueError(msg)
    if text[at] == "{":
        parts = [f"{_name(key)} ({kind})" for key, kind in entries[:_MAX_KEYS]]
        return f"object, the first keys: {', '.join(parts)}"
    array = "array of"
    if len(entries) >= _COUNTED_FROM:  # the others are taken to be as long
        array += f" about {_rounded(len(entries) * content.size // len(text.encode('utf-8', 'surrogatepass'))):,}"
    if len({kind.partition(" ")[0] for _, kind in entries}) > 1:
        return f"{array} items of mixed kinds"
    kind = entries[0][1]
    if kind != "object":
        return f"{array} items ({kind})"
    members, closed = _entries(text, _skip(text, at + 1))
    names = [_name(key) for key, _ in members[:_MAX_KEYS]]
    if not closed:
        return f"{array} objects, the first with keys {', '.join([*names, '…'])}"
    keys = f"keys {_listed(names, len({key for key, _ in members}))}" if names else "no keys"
    return f"{array} objects, the first with {keys}"


def _entries(text: str, at: int) -> tuple[list[tuple[object, str]], bool]:
    """Key and kind of what is in the object or array at ``at``, as far as ``text`` goes; whether that is all."""
    keyed = text[at] == "{"
    closing = "}" if keyed else "]"
    entries: list[tuple[object, str]] = []
    try:
        at = _skip(text, at + 1)
        if text[at] == closing:
            return entries, True
        while True:
            key: object = None
            if keyed:
                if text[at] != '"':
                    msg = "a key must be text"
                    raise ValueError(msg)
                key, at = _decode(text, at)
                at = _skip(text, _pass(text, _skip(text, at), ":"))
            start = text[at]
            try:
                value, at = _decode(text, at)
            except EOFError:
                if start in _CUT_KINDS:
                    entries.append((key, _CUT_KINDS[start]))
                raise
            entries.append((key, _kind(value)))
            at = _skip(text, at)
            if text[at] == closing:
                return entries, True
            at = _skip(text, _pass(text, at, ","))
    except (EOFError, IndexError):  # the text ends here
        return entries, False


def _decode(text: str, at: int) -> tuple[object, int]:
    """The value at ``at`` and where it ends; EOFError when the text ends within."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string") or error.pos >= len(text) - _LONGEST_TOKEN:
            raise EOFError from None
        raise


def _pass(text: str, at: int, sign: str) -> int:
    if text[at] == sign:
        return at + 1
    if at >= len(text) - _LONGEST_TOKEN:  # the rest of a number that was cut
        raise EOFError
    msg = f"{sign} expected"
    raise ValueError(msg)


def _skip(text: str, at: int) -> int:
    space = _JSON_SPACE.match(text, at)
    assert space is not None
    return space.end()


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case list() | tuple() | set() | frozenset():
            return f"array of {len(value):,}"
        case _:  # what JSON has no form for is written as text
            return "text"


# --- text


def _html_shape(window: str) -> str | None:
    if not _HTML.match(window, _skip(window, 0)):
        return None
    import html  # noqa: PLC0415 - brings all names of characters

    found = _TITLE.search(window)
    title = _title(html.unescape(found[1])) if found else ""
    return f"HTML, title: {title}" if title else "HTML"


def _table_header(window: str, *, whole: bool) -> tuple[str, list[str]] | None:
    """The kind of a table and its columns."""
    first = window.lstrip("\r\n").partition("\n")[0]
    for separator, name in _SEPARATORS.items():
        if first.count(separator) < 2:  # noqa: PLR2004 - three columns; no name of one has a line end in it
            continue
        try:
            reader = csv.reader((line[0] for line in _LINE.finditer(window)), delimiter=separator)
            records = list(islice((record for record in reader if record), _TABLE_RECORDS + 1))
        except csv.Error:
            continue
        if len(records) > _TABLE_RECORDS or not whole:  # the end of the window may have cut the last one
            records.pop()
        if len(records) < 3 or len(records[0]) < 3 or len({len(record) for record in records}) > 1:  # noqa: PLR2004 - a table
            continue
        columns = [column.strip() for column in records[0]]
        named = columns if columns[0] else columns[1:]  # pandas gives its index no name
        if all(_COLUMN.fullmatch(column) for column in named) and len(set(named)) == len(named):
            return name, columns
    return None


def _count_lines(content: Content) -> int:
    """Lines, as an editor counts them."""
    body = content.body
    steps = [(start, start + _COUNTED_AT_ONCE) for start in range(0, len(body), _COUNTED_AT_ONCE)]
    if isinstance(body, str):
        return sum(body.count("\n", *step) for step in steps) + (body[-1:] != "\n")
    return sum(body.count(b"\n", *step) for step in steps) + (body[-1:] != b"\n")


def _count_records(content: Content) -> tuple[int, bool]:
    """Lines that are not empty, and whether each is a record: none has an odd number of quotes."""
    lines = 0
    exact = True
    before, quote = b"\n", b""
    for piece in content.pieces():
        data = bytes(piece)
        ends = before + data.translate(_LINE_ENDS)
        lines += ends.count(b"\nx")
        before = ends[-1:]
        if exact:
            odd = (quote + data.translate(None, _NO_QUOTE)).replace(b'""', b"")
            exact = b'"\n' not in odd
            quote = odd[-1:].strip()  # of a line that the next piece goes on with
    return lines, exact and not quote


def _is_log(window: str) -> bool:
    lines = [line for line in window.split("\n", 2 * _LOG_LINES)[: 2 * _LOG_LINES] if line.strip()][:_LOG_LINES]
    stamped = sum(_TIMESTAMP.match(line) is not None for line in lines)
    return stamped >= 3 and stamped * 2 > len(lines)  # noqa: PLR2004 - the others go on a message, as in a traceback


def _first_heading(window: str) -> str | None:
    """The first heading of a markdown document; None where hashes may begin comments."""
    lines = [line[:_DOCUMENT_LINE_CHARACTERS].rstrip() for line in window.split("\n", _DOCUMENT_LINES)]
    lines = lines[:_DOCUMENT_LINES]
    if lines[0] == "---" and "---" in lines[1:]:  # front matter
        lines = lines[lines.index("---", 1) + 1 :]
    heading: str | None = None
    fence = ""
    level_before = 0
    before = ""
    levels: set[int] = set()
    is_document = False
    for line in lines:
        level = 0
        line_before, before = before, line
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
            is_document = True
        elif fence:
            continue
        elif _COMMENT.match(line) or _CODE.match(line) or _TIMESTAMP.match(line):
            return None
        elif found := _HEADING.match(line):
            level = len(found[1])
            # a comment of several lines, or one beside what it speaks of
            if level == level_before or (heading is None and line_before and line_before[0] not in "#`~"):
                return None
            levels.add(level)
            heading = heading or line[found.end() :].rstrip("# \t")
        elif _MARKUP.search(line):
            is_document = True
        level_before = level
    return heading if is_document or len(levels) > 1 else None


# --- words


def _listed(parts: list[str], of: int) -> str:
    more = f", and {of - len(parts):,} more" if of > len(parts) else ""
    return ", ".join(parts) + more


def _name(key: object) -> str:
    """A key in one line."""
    return _one_line(str(key)[: _MAX_KEY_CHARACTERS + 1], _MAX_KEY_CHARACTERS)


def _rounded(number: int) -> int:
    """The two first digits of it."""
    return round(number, 2 - len(str(number)))


def _title(text: str) -> str:
    return _one_line(" ".join(text.split()), _MAX_TITLE_CHARACTERS)


def _one_line(text: str, most: int) -> str:
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
