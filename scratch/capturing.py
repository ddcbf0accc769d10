"""What is worked out from values before anything is stored: their text, the decision, the stub. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from scratch.content import BINARY, TEXT, Content, is_heavy, read_content
from scratch.entries import EntryInfo, decode_text, new_handle
from scratch.spill import (
    Observation,
    SpillDecision,
    SpillPolicy,
    Stub,
    build_stub,
    decide,
    decide_without_content,
    is_own_result,
    own_result_text,
)
from scratch.tokens.estimate import estimate_tokens, estimate_tokens_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Captured:
    """What became of an observation.

    ``text`` goes into the model's context: the whole content, or the stub. ``handle`` is None when it was kept.
    """

    text: str = field(repr=False)
    handle: str | None
    decision: SpillDecision
    observation: Observation
    """As it was given, with everything beside the content."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be done with an observation. ``stub`` is None when it is kept."""

    decision: SpillDecision
    stub: Stub | None
    tokens: int | None


async def off_loop_if_heavy(value: object, function: Callable[[], T]) -> T:
    """What ``function`` makes of ``value``: in a thread where that takes long."""
    return await asyncio.to_thread(function) if is_heavy(value) else function()


def read_observed(value: object) -> Content:
    """Raises what read_content raises."""
    return read_content(own_result_text(value) if is_own_result(value) else value)


def prepare(observation: Observation, content: Content, policy: SpillPolicy) -> Prepared:
    """All that is computed from an observation, without I/O."""
    decision = decide_without_content(observation, policy) or decide(observation, content, policy)
    if not decision.spill:
        return Prepared(decision, None, None)
    stub = build_stub(new_handle(), content, policy, already_truncated=observation.already_truncated)
    return Prepared(decision, stub, count_tokens(content))


def count_tokens(content: Content) -> int | None:
    """About how many tokens a content is; None when it is no text."""
    if content.media_type == BINARY:
        return None
    return estimate_tokens(content.body) if isinstance(content.body, str) else estimate_tokens_of(content.texts())


def joined(info: EntryInfo, held: bytes, content: Content) -> Content:
    """A note and what is added to it. Text stays text, lone surrogates included."""
    if BINARY in (info.media_type, content.media_type):
        return read_content(held + b"".join(content.pieces()))
    return Content(decode_text(held) + content.text(), info.size + content.size, TEXT)


def storable(name: str) -> str:
    """A tool's name as a column holds it: no lone surrogate, at most 256 characters."""
    return name[:256].encode("utf-8", "replace").decode("utf-8")


def last_resort(value: object) -> str:
    """Some text for a value that neither JSON nor its own methods can express."""
    for render in (str, repr):
        try:
            return render(value)
        except Exception:  # noqa: BLE001, S112 - foreign code; the next way is tried
            continue
    return f"<{type(value).__name__} that cannot be shown>"
