"""Patterns that match alike on every Python."""

from __future__ import annotations

import re

import pytest

from scratch import regex
from scratch.regex import compiled


@pytest.mark.parametrize(
    ("pattern", "text", "end"),
    [
        (rb'(?:[^"\\]++|\\.)*+', rb'ab\"c"d', 5),
        (rb'"[^"\\]*+(?:"|(?:\\.[^"\\]*+)++")', rb'"a\"b\\" x', 8),
        (rb"(?:\[(?:[^][]++|\[\])*+\],)*+", b"[1,[],2],[3],[", 13),
        (rb"(?:(\d++),)?+", b"12,", 3),
        (rb"(?:(\d++),)?+", b"12;", 0),
    ],
)
@pytest.mark.parametrize("sound", [True, False])
def test_a_pattern_matches_alike_with_and_without_possession_of_groups(
    pattern: bytes, text: bytes, end: int, sound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regex, "_SOUND", sound)
    found = compiled(pattern, re.DOTALL).match(text)
    assert found is not None
    assert found.end() == end
    assert (re.search(rb"\)[*+?]\+", compiled(pattern).pattern) is None) is not sound
