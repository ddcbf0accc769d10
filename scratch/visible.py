"""Text that no terminal obeys: what would control one is made visible. Content, names and paths are data."""

from __future__ import annotations

import re

# C0, DEL and C1; what turns the writing direction; line and paragraph separators; lone surrogates
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LAST_OF_ONE_BYTE = 0xFF


def escape(text: str) -> str:
    """``text`` on one line, with everything that a terminal would obey made visible."""
    return UNSAFE.sub(lambda found: _visible(found[0]), text)


def escape_block(text: str) -> str:
    """``text`` with its lines and tabs as they are, and everything else that a terminal would obey made visible."""
    return UNSAFE.sub(lambda found: found[0] if found[0] in "\n\t" else _visible(found[0]), text)


def _visible(character: str) -> str:
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code <= _LAST_OF_ONE_BYTE else f"\\u{code:04x}")
