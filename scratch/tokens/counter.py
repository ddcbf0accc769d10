"""Counting the tokens of a text for a model: in pieces, within bounds, and always with an answer."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scratch.tokens.encodings import NOT_OURS, SHARED, Encoding, Encodings
from scratch.tokens.estimate import estimate_tokens
from scratch.tokens.models import Plan, plan_for
from scratch.tokens.pieces import next_cut

logger = logging.getLogger("scratch")

_IN_A_THREAD = 8_000
"""Characters from which counting is left to a thread."""
_LONGEST_TOKEN = 128
"""Bytes."""
_REMEMBERED = 64
"""Pieces whose tokens are remembered during a count."""
_SIZED_AT_ONCE = 256 * 1024
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How many tokens a text is, and whether that is exactly what the model's tokenizer would say."""

    tokens: int
    exact: bool


class TokenCounter:
    """Counts tokens for one model. Tasks and threads may share it; made by :meth:`for_model`.

    Nothing is loaded before the first count that needs it; see :meth:`load`.
    """

    def __init__(self, plan: Plan, encodings: Encodings) -> None:
        self._plan = plan
        self._encodings = encodings

    @classmethod
    def for_model(
        cls,
        provider: str,
        model: str,
        *,
        claude_factor: float | None = None,
        gemma_model: str | Path | None = None,
        encodings: Encodings | None = None,
    ) -> TokenCounter:
        """The counter for a model; for one that nobody knows, that of the newest.

        Args:
            provider: "openai", "anthropic", "gemini", "bedrock", or any other.
            model: Its name, as the provider has it.
            claude_factor: Tokens of a Claude model for each of cl100k_base; by model when None (1.1 or 1.5).
            gemma_model: A SentencePiece file for Gemini models (extra ``gemini``).
            encodings: Where tokenizers are kept; one for the process when None.

        Raises:
            InvalidArgument: ``claude_factor`` is not a number over 0 and up to 100.
        """
        plan = plan_for(provider, model, claude_factor=claude_factor, gemma_model=gemma_model)
        return cls(plan, SHARED if encodings is None else encodings)

    @property
    def exact(self) -> bool:
        """Whether it counts with the model's own tokenizer. Before the first count: whether it means to."""
        known = self._encodings.peek(self._plan.source)
        return self._plan.exact and (known is None or known.exact)

    @property
    def name(self) -> str:
        """What it counts with, as "o200k_base" or "1.5 x cl100k_base". Before the first count: what it means to."""
        source = self._plan.source
        known = self._encodings.peek(source)
        name = known.name if known is not None else ("gemma" if isinstance(source, Path) else source)
        return name if self._plan.factor == 1 else f"{float(self._plan.factor):g} x {name}"

    def count(self, text: str) -> TokenCount:
        """The tokens of ``text``. Any text; never raises. Blocks: 10 MB take 0.1 to 3 s (toktok, tiktoken)."""
        tokens, exact = 0, self._plan.exact
        for counted, sound in _counted(text, self._encodings.get(self._plan.source)):
            tokens += counted
            exact = exact and sound
        return TokenCount(self._scaled(tokens), exact)

    async def count_async(self, text: str) -> TokenCount:
        """Like :meth:`count`, in a thread where it may take long. When cancelled, the thread counts to the end."""
        if len(text) <= _IN_A_THREAD and self._encodings.peek(self._plan.source) is not None:
            return self.count(text)
        return await asyncio.to_thread(self.count, text)

    def count_until(self, text: str, stop_at: int) -> int:
        """The tokens of ``text``; any number from ``stop_at`` on where it has as many. For a ``SpillPolicy``."""
        enough = self._unscaled(stop_at)
        if self._bounded and _has_bytes(text, _LONGEST_TOKEN * (enough - 1) + 1):
            return self._scaled(enough)
        tokens = 0
        for counted, _ in _counted(text, self._encodings.get(self._plan.source)):
            tokens += counted
            if tokens >= enough:
                break
        return self._scaled(tokens)

    def at_least(self, text: str, threshold: int) -> bool:
        """Whether ``text`` is ``threshold`` tokens or more; counts only where its bytes do not tell, and no further."""
        if threshold <= 0:
            return True
        if self._bounded and not _has_bytes(text, self._unscaled(threshold)):
            return False
        return self.count_until(text, threshold) >= threshold

    async def load(self) -> None:
        """Load the tokenizer now, in a thread, if it is not. Never raises.

        The event loop stands still for 0.1 to 1 second of it (the constructors of the tokenizers hold the interpreter's
        lock), so call it before the process is busy.
        """
        await asyncio.to_thread(self._encodings.get, self._plan.source)

    @property
    def _bounded(self) -> bool:
        """Whether each token has 1 to 128 bytes; a SentencePiece model may have others."""
        return not isinstance(self._plan.source, Path)

    def _scaled(self, tokens: int) -> int:
        return math.ceil(self._plan.factor * tokens)

    def _unscaled(self, tokens: int) -> int:
        """The fewest tokens of the encoding, 1 or more, that are ``tokens`` of the model."""
        return max(1, math.floor((tokens - 1) / self._plan.factor) + 1)


def _counted(text: str, encoding: Encoding) -> Iterator[tuple[int, bool]]:
    """The tokens of one piece after the other, and whether they are exactly those of the encoding."""
    if encoding.pieces == "whole":
        yield encoding.count(text), encoding.exact
        return
    known: dict[str, tuple[int, bool]] = {}
    start = 0
    while start < len(text):
        end, safe = next_cut(text, start)
        if encoding.pieces == "close":
            safe = end - start == len(text)
        piece = text[start:end]
        counted = None if safe else known.get(piece)
        if counted is None:
            counted = _count_piece(piece, encoding)
            # Where there is no safe place, one character or word often goes on and on, and those are the slowest.
            if not safe and len(known) < _REMEMBERED:
                known[piece] = counted
        yield counted[0], encoding.exact and safe and counted[1]
        start = end


def _count_piece(piece: str, encoding: Encoding) -> tuple[int, bool]:
    whole = True
    try:
        piece.encode()
    except UnicodeEncodeError:
        piece = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", piece)
        whole = False
    try:
        return encoding.count(piece), whole
    except NOT_OURS:
        raise
    except BaseException:
        logger.debug("a piece of %d characters is estimated: %s failed on it", len(piece), encoding.name, exc_info=True)
        return estimate_tokens(piece), False


def _has_bytes(text: str, size: int) -> bool:
    """Whether ``text`` has ``size`` bytes or more in UTF-8."""
    if len(text) >= size:
        return True
    if text.isascii() or len(text) * 4 < size:
        return False
    parts = (text[start : start + _SIZED_AT_ONCE] for start in range(0, len(text), _SIZED_AT_ONCE))
    return sum(len(part.encode("utf-8", "surrogatepass")) for part in parts) >= size
