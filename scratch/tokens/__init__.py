"""How many tokens a text costs a model. Nothing downloads by itself; nothing is loaded before its first use."""

from scratch.tokens.counter import TokenCount, TokenCounter
from scratch.tokens.encodings import Encodings
from scratch.tokens.estimate import estimate_tokens

__all__ = [
    "Encodings",
    "TokenCount",
    "TokenCounter",
    "estimate_tokens",
]
