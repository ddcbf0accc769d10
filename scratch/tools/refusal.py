"""Errors as a model gets them: one compact JSON object, never a long one."""

from __future__ import annotations

from collections.abc import Mapping

from scratch.jsontext import dumps
from scratch.spill import OwnText
from scratch.tokens import estimate_tokens

MOST_TOKENS = 1_000
"""About how long an error may be; what is listed in it is cut for that, and counted."""
_MESSAGE = 500
_TEXTS = (200, 64, 24)
"""Characters of a text in an error: the longest at which it fits."""
SUGGESTIONS = "suggestions"


def refusal(code: str, message: str, data: Mapping[str, object]) -> OwnText:
    """``{"error": code, "message": …, …}``, within about ``MOST_TOKENS``.

    Texts are cut first, then suggestions are left out from the last one on (never changed: they are to be run as they
    are), then lists are halved, with what is missing counted under ``<name>_omitted``.
    """
    head: dict[str, object] = {"error": code, "message": _cut(message, _MESSAGE)}
    suggestions = data.get(SUGGESTIONS)
    calls = list(suggestions) if isinstance(suggestions, list) else []
    rest: dict[str, object] = {name: value for name, value in data.items() if name != SUGGESTIONS}
    shown: dict[str, object] = {}
    for longest in _TEXTS:
        shown = {name: _cut(value, longest) for name, value in rest.items()}
        if _fits(text := _written(head, shown, calls, suggestions)):
            return text
    while calls:
        calls.pop()
        if _fits(text := _written(head, shown, calls, suggestions)):
            return text
    while lists := {name: value for name, value in shown.items() if isinstance(value, list) and value}:
        name = max(lists, key=lambda one: len(lists[one]))
        held = lists[name]
        shown[name] = held[: len(held) // 2]
        omitted = f"{name}_omitted"
        before = shown.get(omitted)
        shown[omitted] = (before if isinstance(before, int) else 0) + len(held) - len(held) // 2
        if _fits(text := _written(head, shown, calls, suggestions)):
            return text
    return _written(head, {}, [], None)


def _written(
    head: Mapping[str, object], shown: Mapping[str, object], calls: list[object], suggestions: object
) -> OwnText:
    more = {} if suggestions is None else {SUGGESTIONS: calls}
    return OwnText(dumps({**head, **shown, **more}), is_error=True)


def _fits(text: str) -> bool:
    return estimate_tokens(text, stop_at=MOST_TOKENS + 1) <= MOST_TOKENS


def _cut(value: object, longest: int) -> object:
    if isinstance(value, str) and len(value) > longest:
        return value[: longest - 1] + "…"
    if isinstance(value, list | tuple):
        return [_cut(one, longest) for one in value]
    if isinstance(value, dict):
        return {name: _cut(one, longest) for name, one in value.items()}
    return value
