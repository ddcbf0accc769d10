"""Which encoding counts for which model, and how well."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from scratch.errors import InvalidArgument
from scratch.tokens.encodings import Source

_O200K = re.compile(r"gpt-5|gpt-4o|gpt-4\.[1-9]|gpt-oss|chatgpt-4o|o\d+(?:-|$)")
_CL100K = re.compile(r"gpt-4(?:-|$)|gpt-3\.5|gpt-35|text-embedding-(?:3|ada-002)|(?:davinci|babbage)-002")
_BEFORE_CL100K = re.compile(r"gpt-?[23]|text-|code-|davinci|curie|babbage|ada")

_CLAUDE_FACTORS = (
    ((4, 7), Fraction(3, 2)),  # a new tokenizer, about 30 % more tokens: 1.1 * 1.3, and a little
    ((0, 0), Fraction(11, 10)),
)
"""Tokens for each of cl100k_base, from this version on; the newest first, which is also for unknown models."""
# "v" stands before a version only in the oldest names; at the end of a Bedrock name it is another version ("-v1:0").
# A date has more than two digits.
_CLAUDE_VERSION = re.compile(r"(?:claude-(?:instant-)?v|(?<![a-z0-9:.]))(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to count for a model: tokens of ``source`` times ``factor``, rounded up.

    ``exact`` says whether that is the model's own tokenizer.
    """

    source: Source
    factor: Fraction = Fraction(1)
    exact: bool = False


def plan_for(provider: str, model: str, *, claude_factor: float | None, gemma_model: str | Path | None) -> Plan:
    """The plan for a model; for one that is not known, the one of the newest models of the provider.

    Raises:
        InvalidArgument: ``claude_factor`` is not a number over 0 and up to 100.
    """
    factor = _check_factor(claude_factor)
    provider, model = provider.strip().lower(), model.strip().lower()
    if provider == "openai":
        return _openai(model)
    if provider == "gemini" and gemma_model is not None:
        return Plan(Path(gemma_model), exact=True)
    if provider == "anthropic" or (provider == "bedrock" and "claude" in model):
        return Plan("cl100k_base", factor or _claude_factor(model))
    return Plan("o200k_base")


def _openai(model: str) -> Plan:
    name = model.rsplit("/", 1)[-1].removeprefix("ft:")
    if _O200K.match(name):
        return Plan("o200k_base", exact=True)
    if _CL100K.match(name):
        return Plan("cl100k_base", exact=True)
    if _BEFORE_CL100K.match(name):
        return Plan("cl100k_base")
    return Plan("o200k_base")


def _claude_factor(model: str) -> Fraction:
    found = _CLAUDE_VERSION.search(model, max(0, model.rfind("claude")))
    if found is not None:
        version = (int(found[1]), int(found[2] or 0))
        for since, factor in _CLAUDE_FACTORS:
            if version >= since:
                return factor
    return _CLAUDE_FACTORS[0][1]


def _check_factor(factor: object) -> Fraction | None:
    if factor is None:
        return None
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        msg = f"claude_factor must be a number, not {type(factor).__name__}"
        raise InvalidArgument(msg, argument="claude_factor")
    if not (math.isfinite(factor) and 0 < factor <= 100):  # noqa: PLR2004 - said in the message
        msg = "claude_factor must be over 0 and at most 100; 1.1 and 1.5 are usual"
        raise InvalidArgument(msg, argument="claude_factor")
    return Fraction(str(factor))  # by its digits: ten tokens times the float 1.1 would be rounded up to 12
