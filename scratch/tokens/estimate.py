"""How many tokens a text is likely to be, by script; needs no vocabulary."""

from __future__ import annotations

from scratch.content import PIECE


def estimate_tokens(text: str, *, stop_at: int | None = None) -> int:
    """About how many tokens ``text`` is: four ASCII characters a token, one token any other character.

    Args:
        text: Any text; nothing raises.
        stop_at: Stop counting as soon as the count has reached this.
    """
    ascii_characters = others = 0
    for start in range(0, len(text), PIECE):
        piece = text[start : start + PIECE]
        narrow = len(piece) if piece.isascii() else len(piece.encode("ascii", "ignore"))
        ascii_characters += narrow
        others += len(piece) - narrow
        if stop_at is not None and -(-ascii_characters // 4) + others >= stop_at:
            break
    return -(-ascii_characters // 4) + others
