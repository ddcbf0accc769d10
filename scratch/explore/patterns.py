"""What to search for: a text, or a regular expression that cannot blow up.

The engine is RE2 because its time is linear in the text whatever the pattern is, its memory is bounded, and it lets
other threads run while it searches. Python's ``re`` backtracks without a limit and cannot be stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]  # google-re2 has no types

from scratch.explore.look import Call, ExploreError
from scratch.explore.text import shown

MAX_PATTERN_BYTES = 1_024
BLOCK = 256 * 1024
"""Bytes of whole lines that are searched at once."""
LONG_LINE = 4 * 1024 * 1024
"""Bytes of one line that are searched at once; fewer for a large pattern."""
_LEAST_WINDOW = 128 * 1024
_OVERLAP = 64 * 1024
_WORK = 2**30
"""Bytes times instructions of one uninterrupted search: 3 s where RE2 is slowest, usually a few milliseconds."""
_MAX_MEMORY = 512 * 1024
"""Bytes for a compiled pattern, and what it keeps between searches. RE2 holds the GIL while it compiles."""
_MOST_REPEATS = 1_001
_MOST_CLASSES = 10
_REPEAT = re.compile(r"(\)?)\{([0-9]+)(?:,([0-9]*))?\}")
_CLASS = re.compile(r"\\[pP]")
_WITHIN_ITSELF = re.compile(r"\\[AzC]|\(\?[a-zA-Z]*-")
"""May be the start or end of the text, a single byte, or a flag that is taken back."""
_MAY_BE_LONG = frozenset("*+{")


@dataclass(frozen=True, slots=True)
class Matcher:
    """A pattern, ready to search. Threads may share it.

    ``hits(data, start, end)`` gives the byte ranges of the matches in ``data`` from ``start`` to ``end``, in order;
    what lies outside counts as their surroundings. No match spans lines unless ``by_line`` is set: then each line
    must be handed over by itself. A line of more than ``window`` bytes is searched in pieces that overlap by
    ``overlap``; ``bounded`` says that no match can be longer than that.
    """

    hits: Callable[[bytes, int, int], Iterator[tuple[int, int]]]
    window: int
    overlap: int
    bounded: bool
    by_line: bool = False


def compile_pattern(pattern: object, *, literal: bool, ignore_case: bool, as_literal: Call) -> Matcher:
    """The matcher for a pattern that a model gave.

    Args:
        pattern: 1 to 1,024 bytes; RE2 syntax, or the text itself when ``literal``.
        literal: Nothing in the pattern has a meaning of its own.
        ignore_case: Letters match in either case, in all scripts (by simple folding: ``ß`` is not ``ss``).
        as_literal: The call to suggest when the pattern is no regular expression.

    Raises:
        ExploreError: ``invalid_argument`` for what is no text, empty or too long; ``bad_pattern`` for what RE2 does
            not take.
    """
    needle = _checked(pattern)
    if literal and not ignore_case and b"\n" not in needle:
        return Matcher(_finder(needle), window=BLOCK, overlap=len(needle), bounded=True)
    text = needle.decode("utf-8", "surrogatepass")
    if not literal and _takes_long_to_compile(text):
        raise _bad_pattern(text, "too many counted repetitions ({n,m}) or \\p classes", as_literal)
    try:
        # lone surrogates go through as three bytes each; ^ and $ shall stand for the ends of a line
        regex = re2.compile(needle if literal else b"(?m)" + needle, _options(literal=literal, ignore_case=ignore_case))
    except re2.error as error:
        raise _bad_pattern(text, _reason(error), as_literal) from None
    window = min(LONG_LINE, max(_LEAST_WINDOW, _WORK // regex.programsize))
    return Matcher(
        _searcher(regex),
        window=window,
        overlap=_OVERLAP,
        bounded=literal or _MAY_BE_LONG.isdisjoint(text),
        by_line=not literal and _WITHIN_ITSELF.search(text) is not None,
    )


def _checked(pattern: object) -> bytes:
    if not isinstance(pattern, str):
        msg = f"pattern must be text, not {type(pattern).__name__}"
        raise ExploreError("invalid_argument", msg, argument="pattern")
    needle = pattern[: MAX_PATTERN_BYTES + 1].encode("utf-8", "surrogatepass")
    if not 0 < len(needle) <= MAX_PATTERN_BYTES:
        msg = f"pattern must be 1 to {MAX_PATTERN_BYTES:,} bytes of text"
        raise ExploreError("invalid_argument", msg, argument="pattern")
    return needle


def _options(*, literal: bool, ignore_case: bool) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False  # RE2 writes to stderr otherwise
    options.never_nl = True  # not even [^x] or \s matches a newline
    options.never_capture = True  # to find groups costs more than to find the match
    options.literal = literal
    options.case_sensitive = not ignore_case
    return options


def _takes_long_to_compile(text: str) -> bool:
    """Whether RE2 could take more than about 10 ms. It writes repetitions out, and time grows with their square."""
    copies, of_groups = 1, 1
    for after_group, least, most in _REPEAT.findall(text):
        times = max(1, int(most or least))
        if after_group:  # what is in the group, repetitions too, comes so many times
            of_groups *= times
        else:
            copies += times
    return copies * of_groups > _MOST_REPEATS or len(_CLASS.findall(text)) > _MOST_CLASSES


def _bad_pattern(text: str, reason: str, as_literal: Call) -> ExploreError:
    return ExploreError(
        "bad_pattern",
        f"the pattern cannot be used: {reason}. Patterns are RE2: no lookaround, no backreferences; "
        "with literal=true it is searched for as it stands",
        (as_literal,),
        reason=reason,
        pattern=text,
    )


def _reason(error: Exception) -> str:
    """RE2's words, without the flag that was put in front."""
    said = error.args[0] if error.args else b""
    data = said if isinstance(said, bytes) else str(said).encode("utf-8", "surrogatepass")
    return shown(data.replace(b"(?m)", b"", 1))


def _finder(needle: bytes) -> Callable[[bytes, int, int], Iterator[tuple[int, int]]]:
    def hits(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        at = data.find(needle, start, end)
        while at >= 0:
            yield at, at + len(needle)
            at = data.find(needle, at + len(needle), end)

    return hits


def _searcher(regex: Any) -> Callable[[bytes, int, int], Iterator[tuple[int, int]]]:  # noqa: ANN401 - re2 has no types
    def hits(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        for match in regex.finditer(data, start, end):
            yield match.span()

    return hits
