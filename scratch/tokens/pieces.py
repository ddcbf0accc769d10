"""Where a long text can be cut so that its pieces together have the tokens of the whole."""

from __future__ import annotations

import re

PIECE = 16 * 1024
"""Characters counted in one call at most: tokenizers need time and memory out of proportion for a longer one, and
panic on the longest."""
_REACH = 1024
"""Characters before the end of a piece in which a safe place is looked for."""

# Both encodings split a text by a regular expression first, and merge bytes within the parts only. So a cut where a
# part ends in any case changes nothing. These are places that the expressions of both never step over; each was also
# tried against tiktoken (tests/test_tokens.py). An apostrophe is missing on purpose ("it's" is one part), and a letter
# after punctuation ("(it" is one part). What Python calls space is a little more than what the expressions do.
_CJK_PUNCTUATION = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
_CUT = re.compile(
    r"""
      (?<=\S) (?=[ \t])               # before a word
    | (?<=\n) (?=[^\s/])              # after a line
    | (?<=[A-Za-z]) (?=[0-9])
    | (?<=[0-9]) (?=[A-Za-z])
    | (?<=[^\W_]) (?=[!-&(-/:-@\[-`{-~"""
    + _CJK_PUNCTUATION
    + r"""])  # a letter or digit, then punctuation
    | (?<=[!-/:-@\[-`{-~]) (?=[0-9])
    """,
    re.VERBOSE,
)


def next_cut(text: str, start: int) -> tuple[int, bool]:
    """Where the piece that begins at ``start`` ends, and whether a cut there leaves all tokens as they are."""
    end = start + PIECE
    if end >= len(text):
        return len(text), True
    found = _CUT.search(text, end - _REACH, end + 1)  # a place at the end itself needs the character after it
    return (end, False) if found is None else (found.start(), True)
