"""Any value as stored bytes and as text for a context, in pieces of every size."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scratch import content as module
from scratch.content import AT_ONCE, BINARY, JSON, PIECE, TEXT, Content, is_heavy, read_content

texts = st.text(st.one_of(st.characters(), st.sampled_from("\r\n\x00\u2028é日😀\ud835\udc00")), max_size=60)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces so small that every boundary is met."""
    monkeypatch.setattr(module, "PIECE", 5)
    monkeypatch.setattr(module, "_BLOCK", 12)


def stored(content: Content) -> bytes:
    return b"".join(content.pieces())


@given(texts, st.integers(1, 7))
@example("a\ud835b" * 5, 2)  # C63
@example("\x00a\r\nb\x0cc\u2028d\n", 3)  # C60
def test_any_text_is_stored_and_shown_unchanged(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", piece)
        content = read_content(text)
        assert stored(content) == text.encode("utf-8", "surrogatepass")
        assert content.size == len(stored(content))
        assert content.text() is text
    assert content.media_type == TEXT


@given(st.one_of(st.binary(max_size=60), texts.map(lambda text: text.encode("utf-8", "replace"))), st.integers(1, 7))
@example("é日😀".encode(), 1)
@example("é".encode()[:1], 7)
def test_any_bytes_are_stored_unchanged_and_shown_as_text_or_base64(data: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", piece)
        patch.setattr(module, "_BLOCK", 8)
        content = read_content(data)
        shown = content.text()
        assert stored(content) == data
    try:
        expected, media_type = data.decode(), TEXT
    except UnicodeDecodeError:
        expected, media_type = base64.b64encode(data).decode(), BINARY
    assert (shown, content.media_type, content.size) == (expected, media_type, len(data))


def test_a_text_stays_text_where_a_piece_ends_inside_a_character() -> None:  # C8
    data = b"a" * (PIECE - 1) + "é".encode() + b"b" * PIECE
    content = read_content(data)
    assert content.media_type == TEXT
    assert content.text() == data.decode()
    assert all(len(piece) <= 1024 * 1024 for piece in content.pieces())
    assert read_content(data[:PIECE]).media_type == BINARY  # there the character never ends


def test_every_byte_there_is_comes_back() -> None:  # C58
    data = bytes(range(256)) * 1_000
    content = read_content(data)
    assert content.media_type == BINARY
    assert stored(content) == data
    assert base64.b64decode(content.text()) == data


def test_bytes_that_only_python_would_read_as_text_are_binary() -> None:
    assert read_content("\ud835".encode("utf-8", "surrogatepass")).media_type == BINARY


@pytest.mark.parametrize("make", [bytearray, memoryview, lambda data: memoryview(data + data)[::2]])
def test_other_kinds_of_bytes_are_bytes(make: Any) -> None:
    value = make(b"\xffabc\xff\xff")
    content = read_content(value)
    assert content.body == bytes(value)
    assert type(content.body) is bytes


def test_a_buffer_that_changes_afterwards_does_not_change_the_content() -> None:
    value = bytearray(b"abc")
    content = read_content(value)
    value[:] = b"xyz"
    assert stored(content) == b"abc"


def test_a_subclass_of_str_is_its_text() -> None:
    class Shouting(str):
        __slots__ = ()

        def __str__(self) -> str:
            return self.upper()

        def isascii(self) -> bool:
            return True

    class Word(StrEnum):
        YES = "jä"

    for value, expected in ((Shouting("é"), "é"), (Word.YES, "jä")):
        content = read_content(value)
        assert content.text() == expected
        assert type(content.body) is str
        assert content.size == len(expected.encode())


@pytest.mark.parametrize(
    "value",
    [
        {"city": "Zürich", "n": [1, 2.5, None, True]},
        [],
        {},
        None,
        0,
        [{"type": "text", "text": "x" * 9_000}, {"type": "image", "data": "eA=="}],  # C59
        ("a", "b"),
        float("inf"),
        {"lone": "\ud835"},
    ],
)
def test_what_json_can_express_is_its_json(value: object, small_pieces: None) -> None:
    content = read_content(value)
    assert content.media_type == JSON
    assert content.text() == json.dumps(value, ensure_ascii=False)
    assert stored(content) == content.text().encode("utf-8", "surrogatepass")
    assert content.size == len(stored(content))


def test_a_word_that_is_not_ascii_is_stored_as_it_is_searched_for() -> None:  # C80
    assert "Zürich".encode() in stored(read_content({"city": "Zürich"}))


def test_what_json_has_no_form_for_becomes_text() -> None:  # C156
    when = datetime(2026, 1, 2, tzinfo=UTC)
    content = read_content([when, Decimal("1.10"), b"\xffa", frozenset({1}), {2}, 1j])
    assert json.loads(content.text()) == [str(when), "1.10", "\ufffda", [1], [2], "1j"]
    assert read_content(frozenset({7})).text() == "[7]"


def test_a_number_of_any_length_keeps_its_digits() -> None:  # C156
    assert read_content(10**5_000).text() == "1" + "0" * 5_000
    assert read_content({"n": [-(10**5_000) - 7]}).text() == '{"n": [-1' + "0" * 4_999 + "7]}"


def test_what_has_no_text_form_raises() -> None:  # C156
    class Broken:
        def __str__(self) -> str:
            msg = "no text"
            raise LookupError(msg)

    cycle: list[object] = []
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value, error in (
        (cycle, ValueError),
        (deep, RecursionError),
        (Broken(), LookupError),
        ({(1, 2): 3}, TypeError),
    ):
        with pytest.raises(error):
            read_content(value)


@pytest.mark.parametrize(
    ("value", "heavy"),
    [
        ("x" * AT_ONCE, False),
        ("x" * (AT_ONCE + 1), True),
        (b"x" * AT_ONCE, False),
        (bytearray(AT_ONCE + 1), True),
        (memoryview(bytes(AT_ONCE + 1)), True),
        ([1, 2, 3], False),
        (list(range(5_000)), True),
        ({"log": "x" * 4 * PIECE}, True),
        ({"data": bytes(4 * PIECE)}, True),
        ([[list(range(100))] * 100], True),
        (object(), False),
        (None, False),
    ],
)
def test_what_takes_long_is_known_beforehand(value: object, heavy: bool) -> None:
    assert is_heavy(value) is heavy


@given(texts, st.integers(1, 100))
def test_head_and_tail_are_characters_of_the_ends(text: str, characters: int) -> None:
    content = read_content(text)
    assert content.head(characters) == text[:characters]
    assert content.tail(characters) == text[-characters:]
    whole = text.encode("utf-8", "ignore")
    in_bytes = read_content(whole)
    assert whole.decode().startswith(in_bytes.head(characters))
    assert whole.decode().endswith(in_bytes.tail(characters))
    assert len(in_bytes.head(characters).encode()) > min(characters, len(whole)) - 4
    assert len(in_bytes.tail(characters).encode()) > min(characters, len(whole)) - 4
