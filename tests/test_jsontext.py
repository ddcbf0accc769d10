"""JSON in pieces is the JSON of the standard library; JSON for a client can always be encoded."""

from __future__ import annotations

import json
import sys
from datetime import date
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch import jsontext
from scratch.jsontext import dumps, dumps_in_pieces, encodable, is_light

characters = st.one_of(st.characters(), st.sampled_from('"\\\n\x00\x7f\u2028é日😀\ud835\udc00'))
texts = st.text(characters, max_size=40)
keys = st.one_of(texts, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**3_000), 2**3_000), st.floats(), texts, st.just(10**650)
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.lists(inner, max_size=6).map(tuple),
        st.dictionaries(keys, inner, max_size=6),
    ),
    max_leaves=40,
)


def joined(value: object) -> str:
    return "".join(dumps_in_pieces(value))


@given(values, st.integers(0, 8), st.integers(1, 4), st.integers(1, 5))
@example([], 0, 1, 1)
@example({"": {}}, 0, 1, 1)
@example({1: "a", "1": "b", False: ["c"], None: 0, 1.5: {}}, 1, 2, 1)  # keys that become alike are all written
@example([[[[["deep"]]]]], 0, 1, 1)
def test_the_pieces_are_what_json_dumps_writes(value: object, light: int, batch: int, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_LIGHT", light)
        patch.setattr(jsontext, "_BATCH", batch)
        patch.setattr(jsontext, "_PART", part)
        assert joined(value) == json.dumps(value, ensure_ascii=False)


@given(values)
def test_so_they_are_with_the_limits_as_they_are(value: object) -> None:
    assert joined(value) == json.dumps(value, ensure_ascii=False)


HEAVY: list[Any] = [
    [{"id": i, "city": "Zürich", "tags": ["a", "b"]} for i in range(3_000)],
    {f"key {i}": [i] * 3 for i in range(9_000)},
    ["x" * 200_000, 1, {"log": "日\n" * 200_000}, [], "y"],
    {"a": 1, "b": list(range(20_000)), "c": 2, "d": {"e": tuple(range(9_000))}},
    list(range(20_000)),
    "\\" * 300_000,
    [[[0.1] * 70] * 70] * 3,
    {"k" * 300_000: 1, "l": 2},
]


@pytest.mark.parametrize("value", HEAVY, ids=range(len(HEAVY)))
def test_a_heavy_value_goes_to_the_encoder_in_light_parts_only(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = jsontext._encode
    given_to_it: list[object] = []

    def spy(part: object) -> str:
        given_to_it.append(part)
        return encode(part)

    monkeypatch.setattr(jsontext, "_encode", spy)
    assert not is_light(value)
    pieces = list(dumps_in_pieces(value))
    assert "".join(pieces) == json.dumps(value, ensure_ascii=False)
    keys = [part for part in given_to_it if isinstance(part, dict) and list(part.values()) == [0]]
    assert all(is_light(part) for part in given_to_it if part not in keys)
    assert len(given_to_it) > 1


def test_light_neighbours_go_to_the_encoder_together() -> None:
    assert len(list(dumps_in_pieces(list(range(20_000))))) < 20_000 / jsontext._BATCH * 2 + 10


def test_sets_and_bytes_are_taken_in_pieces_too() -> None:
    assert sorted(json.loads(joined(set(range(20_000))))) == list(range(20_000))
    assert json.loads(joined({"ids": frozenset(range(20_000)), "n": 1}))["n"] == 1
    for data in (bytes(range(256)) * 2_000, "日".encode() * 100_000, b"x" * 300_000 + b"\xe6"):
        for value in (data, bytearray(data), memoryview(data)):
            assert joined(value) == json.dumps(data.decode("utf-8", "replace"), ensure_ascii=False)
    assert joined([b"\xe6\x97"]) == '["\ufffd"]'


def test_other_values_are_their_text() -> None:
    class Colour(IntEnum):
        RED = 3

    assert joined([date(2026, 1, 2), Colour.RED, 1j]) == '["2026-01-02", 3, "1j"]'
    assert json.loads(joined([date(2026, 1, 2)] * 5_000)) == ["2026-01-02"] * 5_000


@pytest.mark.parametrize("power", [601, 4_300, 5_000, 20_000, 90_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_python_refuses_to_write_is_written(power: int, sign: int) -> None:  # C156
    number = sign * (10**power + 7)
    before = sys.get_int_max_str_digits()
    text = joined([1, number, {"n": number}])
    sys.set_int_max_str_digits(0)
    try:
        assert text == json.dumps([1, number, {"n": number}])
    finally:
        sys.set_int_max_str_digits(before)


def test_a_number_that_would_take_seconds_is_refused() -> None:
    with pytest.raises(ValueError, match="digits"):
        joined([1 << 400_000])


def test_a_cycle_a_bad_key_and_too_great_a_depth_raise_as_in_json_dumps() -> None:
    cycle: list[object] = [0] * 5_000
    cycle.append(cycle)
    with pytest.raises(ValueError, match="Circular"):
        joined(cycle)
    for value in ({(1, 2): 3}, {"rows": list(range(9_000)), b"k": 1}, {(1,): list(range(9_000))}):
        with pytest.raises(TypeError):
            joined(value)
    deep: list[object] = [0] * 5_000
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        joined(deep)
    level: object = list(range(9_000))
    for _ in range(100):  # deeper than it is walked, not too deep
        level = {"next": level, "n": 1}
    assert joined(level) == json.dumps(level)


def test_weighing_ends_early_on_what_is_heavy_and_always_on_a_cycle() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    assert not is_light(cycle)
    assert not is_light([range(10), *[[1] * 100] * 100])
    assert is_light([range(10**9), *[[1] * 10] * 100])
    shared: list[object] = [1]
    for _ in range(60):  # 2**60 values when written
        shared = [shared, shared]
    assert not is_light(shared)


@given(values)
def test_json_for_a_client_can_be_encoded_and_reads_back_to_the_same(value: object) -> None:
    for compact in (True, False):
        text = dumps(value, compact=compact)
        sent = text.encode()
        assert repr(json.loads(sent)) == repr(json.loads(json.dumps(value)))
        assert "\n" not in text
    assert dumps({"a": ["é", 1]}) == '{"a":["é",1]}'
    assert dumps({"a": ["é", 1]}, compact=False) == '{"a": ["é", 1]}'


def test_only_lone_surrogates_are_escaped() -> None:  # C63
    assert encodable('"aé😀"') == '"aé😀"'
    assert encodable('"a\ud835b\udcb2"') == '"a\\ud835b\\udcb2"'
