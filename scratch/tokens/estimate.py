"""How many tokens a text is likely to be, by script; needs no vocabulary."""

from __future__ import annotations

from collections.abc import Iterable

_PIECE = 32 * 1024
"""Characters. Larger pieces are no faster, and what the allocator keeps of them adds up to some MiB."""


def estimate_tokens(text: str, *, stop_at: int | None = None) -> int:
    """About how many tokens ``text`` is: four ASCII characters a token, one token any other character.

    Args:
        text: Any text; nothing raises.
        stop_at: Stop counting as soon as the count has reached this.
    """
    return estimate_tokens_of((text[start : start + _PIECE] for start in range(0, len(text), _PIECE)), stop_at=stop_at)


def estimate_tokens_of(pieces: Iterable[str], *, stop_at: int | None = None) -> int:
    """The same for a text in pieces."""
    ascii_characters = others = 0
    for piece in pieces:
        narrow = len(piece) if piece.isascii() else len(piece.encode("ascii", "ignore"))
        ascii_characters += narrow
        others += len(piece) - narrow
        if stop_at is not None and -(-ascii_characters // 4) + others >= stop_at:
            break
    return -(-ascii_characters // 4) + others
