"""How many tokens a text costs a model. Nothing downloads by itself; nothing is loaded before its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scratch.tokens.estimate import estimate_tokens

if TYPE_CHECKING:
    from scratch.tokens.counter import TokenCount, TokenCounter
    from scratch.tokens.encodings import Encodings

__all__ = [
    "Encodings",
    "TokenCount",
    "TokenCounter",
    "estimate_tokens",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's names are of any type
    """What counts by vocabulary is imported when it is asked for: not everybody who imports scratch counts."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from scratch.tokens import counter  # noqa: PLC0415

    return getattr(counter, name)
