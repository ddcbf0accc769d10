"""Regular expressions of our own, the same on every Python that we run on."""

from __future__ import annotations

import re
import sys
from typing import AnyStr

_SOUND = sys.version_info >= (3, 11, 5)
_POSSESSIVE_GROUP = r"\)([*+?])\+"


def compiled(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """``re.compile``, but before CPython 3.11.5 without the possession of groups, which is matched wrongly there.

    (gh-106052; Debian 12 has 3.11.2.) For patterns in which that changes no match: where every way to go on starts with
    another character, only a match that fails takes longer.
    """
    if _SOUND:
        return re.compile(pattern, flags)
    if isinstance(pattern, bytes):
        return re.compile(re.sub(_POSSESSIVE_GROUP.encode(), rb")\1", pattern), flags)
    return re.compile(re.sub(_POSSESSIVE_GROUP, r")\1", pattern), flags)
