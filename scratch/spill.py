"""The spill decision and the stub: what leaves the context, why, and what stands in its place. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from json import JSONEncoder
from typing import Any, Self

from scratch.content import Content, read_content
from scratch.entries import Entry, EntryInfo
from scratch.errors import InvalidArgument
from scratch.jsontext import encodable
from scratch.preview import MAX_PREVIEW_BYTES, make_preview
from scratch.tokens import estimate_tokens
from scratch.windows import Matches, Window

SPILL_THRESHOLD_BYTES = 8_192
SPILLING_CLASSES = frozenset({"query", "workspace", "browser"})

OWN_VERBS = frozenset(
    [
        "read_handle",
        "scratch_write",
        "scratch_read",
        "scratch_list",
        "scratch_delete",
        "head",
        "slice",
        "grep",
        "schema",
        "item_schema",
        "get_in",
        "iterate_over",
        "read",
        "read_artifact",
        "write_artifact",
    ]
)
"""The names of run-scratch's model-facing verbs, without a prefix."""
MEMORY_VERBS = frozenset(
    ["memory_read", "memory_write", "memory_search", "memory_list", "memory_delete", "memory_update"]
)
INTERNAL_VERBS = OWN_VERBS | MEMORY_VERBS | {"report_progress", "tool_search"}

_LONGEST_TOKEN = 128
"""Bytes; no vocabulary has longer ones."""
_EXAMPLE_HANDLE = "r_" + "x" * 12  # as long as a real one
_FRAME = 1_024
"""Bytes; a stub has fewer beside its preview and the names of verbs."""
_encode = JSONEncoder(ensure_ascii=False).encode


class OwnText(str):
    """What a run-scratch verb returned to the model: recognised by type under any tool's name, never spilled again."""

    __slots__ = ("is_error",)
    is_error: bool
    """Whether it is a structured error (MCP's ``isError``)."""

    def __new__(cls, text: str, *, is_error: bool = False) -> Self:
        """A verb's text."""
        own = super().__new__(cls, text)
        own.is_error = is_error
        return own


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool call returned: its content, and what goes beside it.

    Only ``content`` is needed. A stub strips everything else, so an observation that carries out-of-band meaning
    (``artifact_id`` to ``persisted``) is kept in context. ``call_id`` is never used as a key.
    """

    content: Any = field(repr=False)
    tool: str = ""
    tool_class: str | None = None
    """``query``, ``workspace`` and ``browser`` results may be spilled; ``effect`` and any other are kept."""
    is_error: bool = False
    call_id: str | None = None
    artifact_id: str | None = None
    mutation_complete: bool | None = None
    metadata: Mapping[str, Any] | None = None
    memory_entry_id: str | None = None
    persisted: bool | None = None
    already_truncated: bool = False
    """The tool had cut the content before it got here; the stub says so."""

    @property
    def tool_name(self) -> str:
        """``tool``, or nothing when what was given there is no text."""
        return self.tool if isinstance(self.tool, str) else ""


@dataclass(frozen=True, slots=True)
class SpillPolicy:
    """When to spill. Every value can be set; none is read from disk at a decision.

    Raises:
        InvalidArgument: a negative or non-integer number, or a pattern with other syntax than ``*`` and ``?``.
    """

    threshold_bytes: int = SPILL_THRESHOLD_BYTES
    """A content of more bytes is spilled."""
    tool_thresholds: Mapping[str, int] = field(default_factory=dict)
    """Tokens by tool-name pattern (``*`` any run, ``?`` one character): at or over, that tool's result is spilled."""
    spilling_classes: frozenset[str] = SPILLING_CLASSES
    internal_verbs: frozenset[str] = INTERNAL_VERBS
    preview_bytes: int = MAX_PREVIEW_BYTES
    verbs: frozenset[str] = frozenset({"read_handle"})
    """The model-facing verbs that are registered: a stub names no other."""
    verb_prefix: str = ""
    """What stands before each verb's name where it is registered."""
    count_tokens: Callable[[str, int], int] = lambda text, stop_at: estimate_tokens(text, stop_at=stop_at)
    """Counts tokens, and may stop as soon as the second argument is reached."""
    stub_must_be_smaller: bool = True
    """A content that is not larger than its stub is kept; False where somebody asked for it to be stored."""

    def __post_init__(self) -> None:
        for name in ("threshold_bytes", "preview_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                msg = f"{name} must be an integer, 0 or more"
                raise InvalidArgument(msg, argument=name)
        if self.preview_bytes > MAX_PREVIEW_BYTES:
            msg = f"preview_bytes must be at most {MAX_PREVIEW_BYTES}"
            raise InvalidArgument(msg, argument="preview_bytes")
        for pattern, tokens in self.tool_thresholds.items():
            check_tool_pattern(pattern)
            if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
                msg = f"tool_thresholds[{pattern!r}] must be an integer, 0 or more"
                raise InvalidArgument(msg, argument="tool_thresholds")

    def token_threshold(self, tool: str) -> int | None:
        """Tokens from which ``tool``'s results are spilled: the longest pattern wins, on a tie the smallest."""
        matching = [
            (-len(pattern), tokens)
            for pattern, tokens in self.tool_thresholds.items()
            if _pattern(pattern).fullmatch(tool)
        ]
        return min(matching)[1] if matching else None


@dataclass(frozen=True, slots=True)
class SpillDecision:
    """Whether to spill, and why (a word for programs and logs)."""

    spill: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Stub:
    """What the model gets in place of a spilled content: exactly these four keys, the same bytes at every rendering."""

    handle: str
    preview: str = field(repr=False)
    size: int
    note: str

    def to_json(self) -> str:
        """Compact JSON."""
        handle, preview, note = _encode(self.handle), _encode(self.preview), _encode(self.note)
        return encodable(f'{{"handle":{handle},"preview":{preview},"size":{self.size},"note":{note}}}')


def should_spill(observation: Observation, policy: SpillPolicy | None = None) -> SpillDecision:
    """Decide whether an observation's content leaves the context. Conservative: when in doubt, keep.

    Pure, from any thread; a large content takes its time (use it off the event loop then, as ``capture`` does).

    Raises:
        TypeError, ValueError, RecursionError: the content is no text, no bytes and nothing that JSON can express.
    """
    policy = policy or SpillPolicy()
    early = decide_without_content(observation, policy)
    return early or decide(observation, read_content(observation.content), policy)


def decide_without_content(observation: Observation, policy: SpillPolicy) -> SpillDecision | None:
    """The rules that need not know how large the content is; None when those do not settle it."""
    for name in ("artifact_id", "mutation_complete", "memory_entry_id", "persisted"):
        if getattr(observation, name) is not None:
            return SpillDecision(spill=False, reason=name)
    if observation.metadata:
        return SpillDecision(spill=False, reason="metadata")
    if observation.is_error:
        return SpillDecision(spill=False, reason="is_error")
    name = observation.tool_name
    if name in policy.internal_verbs or (
        policy.verb_prefix
        and name.startswith(policy.verb_prefix)
        and name.removeprefix(policy.verb_prefix) in OWN_VERBS
    ):
        return SpillDecision(spill=False, reason="internal_verb")
    if is_own_result(observation.content):
        return SpillDecision(spill=False, reason="own_result")
    if policy.token_threshold(name) is None and observation.tool_class not in policy.spilling_classes:
        return SpillDecision(spill=False, reason="tool_class")
    return None


def decide(observation: Observation, content: Content, policy: SpillPolicy) -> SpillDecision:
    """The rules on the content, for an observation that :func:`decide_without_content` left open."""
    threshold = policy.token_threshold(observation.tool_name)
    if threshold is not None:
        if not _has_tokens(content, threshold, policy):
            return SpillDecision(spill=False, reason="under_token_threshold")
        reason = "over_token_threshold"
    elif content.size <= policy.threshold_bytes:
        return SpillDecision(spill=False, reason="under_threshold")
    else:
        reason = "over_threshold"
    # no stub can be larger than that
    if policy.stub_must_be_smaller and content.size <= _FRAME + 32 * len(policy.verb_prefix) + policy.preview_bytes:
        stub = build_stub(_EXAMPLE_HANDLE, content, policy, already_truncated=observation.already_truncated)
        if len(stub.to_json().encode()) >= content.size:
            return SpillDecision(spill=False, reason="stub_not_smaller")
    return SpillDecision(spill=True, reason=reason)


def _has_tokens(content: Content, threshold: int, policy: SpillPolicy) -> bool:
    """Whether a content is so many tokens. Its bytes decide alone where they can: a token has 1 to 128 of them."""
    if content.size < threshold:
        return False
    return content.size >= threshold * _LONGEST_TOKEN or policy.count_tokens(content.text(), threshold) >= threshold


def build_stub(handle: str, content: Content, policy: SpillPolicy, *, already_truncated: bool = False) -> Stub:
    """The stub for a content under ``handle``."""
    preview = make_preview(content, limit=policy.preview_bytes, already_truncated=already_truncated)
    return Stub(handle, preview, content.size, _note(handle, policy))


def _note(handle: str, policy: SpillPolicy) -> str:
    """One sentence that names only registered verbs, with ready-made calls."""
    if "read_handle" not in policy.verbs:
        return "The whole result is stored outside the context; what you see is its preview."
    call = f"{policy.verb_prefix}read_handle"
    explore = ""
    if "schema" in policy.verbs:
        explore = f', or look into it with {policy.verb_prefix}schema(handle="{handle}")'
    return (
        f'The whole result is stored outside the context: read on with {call}(handle="{handle}", offset=0), '
        f'search it with {call}(handle="{handle}", match="text"){explore}.'
    )


def is_own_result(content: object) -> bool:
    """Whether ``content`` came from a run-scratch verb."""
    return isinstance(content, OwnText | Window | Matches | Stub | Entry | EntryInfo)


def own_result_text(content: object) -> str:
    """What the model gets of an own result that was captured as an observation."""
    if isinstance(content, OwnText):
        return str(content)
    if isinstance(content, Window | Matches | Stub):
        return content.to_json()
    if isinstance(content, Entry):
        return content.text
    assert isinstance(content, EntryInfo)
    return content.preview


def check_tool_pattern(pattern: object) -> str:
    """Return ``pattern`` when its only syntax is ``*`` and ``?``.

    Raises:
        InvalidArgument: empty, not text, or with ``[``, ``]``, ``{``, ``}``, ``!`` or a backslash.
    """
    if not isinstance(pattern, str) or not pattern or any(c in "[]{}!\\" for c in pattern):
        msg = f"a tool pattern knows * and ? only, not {pattern!r}"
        raise InvalidArgument(msg, argument="tool_thresholds")
    return pattern


@lru_cache(maxsize=1_024)
def _pattern(pattern: str) -> re.Pattern[str]:
    """What stands between two stars is taken where it comes first, for good: time grows with the name only."""
    parts = [re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", pattern)]
    if len(parts) == 1:
        return re.compile(parts[0], re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1])
    return re.compile(f"{parts[0]}{middle}.*{parts[-1]}", re.DOTALL)


__all__ = [
    "INTERNAL_VERBS",
    "OWN_VERBS",
    "SPILL_THRESHOLD_BYTES",
    "Observation",
    "OwnText",
    "SpillDecision",
    "SpillPolicy",
    "Stub",
    "build_stub",
    "should_spill",
]
