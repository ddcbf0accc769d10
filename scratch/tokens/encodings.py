"""The tokenizers of a process: each loaded once, when it is first needed, and kept. Nothing downloads."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from scratch.tokens.estimate import estimate_tokens
from scratch.tokens.vocabulary import VOCABULARIES, EncodingName, parse_ranks, read_vocabulary

logger = logging.getLogger("scratch")

Source = EncodingName | Path
"""What to load: an encoding of OpenAI, or the file of a SentencePiece model."""

NOT_OURS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What passes through. All else is a tokenizer's failure, also a panic of Rust, which is no ``Exception``."""

_PROBE = "Hello world, 12345!\n"
_PROBE_TOKENS = 7  # in both encodings


@dataclass(frozen=True, slots=True)
class Encoding:
    """A tokenizer, ready to count.

    ``count`` takes one piece of text without lone surrogates. ``pieces`` says what becomes of the count when a long
    text is cut at a safe place: nothing (``"same"``), a token more or less (``"close"``), or that it need not be cut
    since ``count`` takes all of it (``"whole"``).
    """

    name: str
    count: Callable[[str], int]
    exact: bool
    pieces: Literal["same", "close", "whole"]


ESTIMATE = Encoding("estimate", estimate_tokens, exact=False, pieces="whole")


class Encodings:
    """Loads tokenizers once and keeps them; a failure is remembered too. Tasks and threads may share it.

    Loading takes 0.3 to 1 second, and the constructors of both tokenizer packages let no other thread run for most of
    it; so a process loads (:meth:`get`, or ``TokenCounter.load``) best before it is busy. 30 to 80 MB each.
    """

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded: dict[Source, Encoding] = {}

    def peek(self, source: Source) -> Encoding | None:
        """The encoding if it was loaded before (or failed to, and is an estimate now); never waits."""
        return self._loaded.get(source)

    def get(self, source: Source) -> Encoding:
        """The encoding, loaded if need be. Never raises: what cannot be loaded is replaced, with one warning.

        An encoding is replaced by the estimate, a SentencePiece model by o200k_base.
        """
        known = self._loaded.get(source)
        if known is not None:
            return known
        with self._loading:
            return self._get(source)

    def _get(self, source: Source) -> Encoding:
        if source not in self._loaded:
            self._loaded[source] = self._gemma(source) if isinstance(source, Path) else _openai(source)
        return self._loaded[source]

    def _gemma(self, path: Path) -> Encoding:
        try:
            return _with_sentencepiece(path)
        except NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - see NOT_OURS
            logger.warning(
                "Tokens for Gemini are counted with o200k_base, which counts too few: the SentencePiece model %s "
                "cannot be used (%s). Is the file there, and run-scratch[gemini] installed?",
                path.name,
                _short(error),
            )
            return replace(self._get("o200k_base"), exact=False)


SHARED = Encodings()
"""The one of this process. It holds nothing until something is counted."""


def _openai(name: EncodingName) -> Encoding:
    reasons: list[str] = []
    for load in (_with_toktok, _with_tiktoken):
        try:
            encoding = load(name)
            if encoding.count(_PROBE) == _PROBE_TOKENS:
                return encoding
            reasons.append(f"{load.__name__.removeprefix('_with_')} counts wrong")
        except NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - see NOT_OURS
            reasons.append(_short(error))
    logger.warning(
        "Tokens are estimated: there is no %s vocabulary here; install run-scratch[tokens], or `scratch tokens fetch`",
        name,
    )
    logger.debug("why %s could not be loaded: %s", name, "; ".join(reasons))
    return ESTIMATE


def _with_toktok(name: EncodingName) -> Encoding:
    batch_count = importlib.import_module("toktok").batch_count

    def count(text: str) -> int:
        # One thread: the call stays where the caller put it, and a fork has no pool of threads to lose.
        tokens: int = batch_count((text,), name, 1)[0]
        return tokens

    return Encoding(name, count, exact=True, pieces="same")


def _with_tiktoken(name: EncodingName) -> Encoding:
    data = read_vocabulary(name)
    if data is None:
        msg = "no vocabulary file"
        raise LookupError(msg)
    tiktoken = importlib.import_module("tiktoken")
    # Special tokens are left out: their text counts as any other.
    encode = tiktoken.Encoding(
        name, pat_str=VOCABULARIES[name].pattern, mergeable_ranks=parse_ranks(data), special_tokens={}
    ).encode_ordinary
    return Encoding(name, lambda text: len(encode(text)), exact=True, pieces="same")


def _with_sentencepiece(path: Path) -> Encoding:
    sentencepiece = importlib.import_module("sentencepiece")
    encode = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode
    encode(_PROBE)
    return Encoding("gemma", lambda text: len(encode(text)), exact=True, pieces="close")


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
