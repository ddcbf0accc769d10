"""Token counts: equal to tiktoken's, whole or in pieces, and an answer for any text."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratch import SpillPolicy, should_spill
from scratch.errors import InvalidArgument
from scratch.tokens import Encodings, TokenCount, TokenCounter, estimate_tokens
from scratch.tokens.encodings import ESTIMATE
from scratch.tokens.pieces import _CUT, PIECE, next_cut
from scratch.tokens.vocabulary import EncodingName
from tests.support import query
from tests.tokens_support import NAMES, encodings_with, reference, write_vocabularies

MODELS: dict[EncodingName, str] = {"o200k_base": "gpt-5", "cl100k_base": "gpt-4"}


@pytest.fixture(scope="module", params=["toktok", "tiktoken"])
def encodings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encodings:
    """Both encodings, loaded from one package or the other."""
    encodings = Encodings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(write_vocabularies(tmp_path_factory.mktemp("vocabularies"))))
        if request.param == "tiktoken":
            patch.setitem(sys.modules, "toktok", None)
        for name in NAMES:
            assert encodings.get(name).name == name
    return encodings


def counter_for(name: EncodingName, encodings: Encodings) -> TokenCounter:
    return TokenCounter.for_model("openai", MODELS[name], encodings=encodings)


# --- a varied corpus, each text several pieces long


def _prose(rng: random.Random) -> str:
    words = [
        "the",
        "Quick",
        "brown",
        "fox's",
        "isn't",
        "WE'LL",
        "naïve",
        "Straße",
        "coöperate",
        "I'd",
        "jumps",
        "over,",
        "lazy;",
        "dogs—and",
        "“cats”",
        "3.14",
    ]
    return " ".join(rng.choice(words) + rng.choice(["", "", "", ".\n\n", ",", "  "]) for _ in range(9_000))


def _code(rng: random.Random) -> str:
    lines = [
        "def f(x_1, *args):",
        "\treturn x[0] // 2  # half",
        "",
        "    if a!=b and c['d']==\"e\":",
        "\t\tFOO_BAR.baz();}",
    ]
    return "".join(rng.choice(lines) + rng.choice(["\n", "\n", "\r\n", "\n\n\n"]) for _ in range(2_500))


def _json(rng: random.Random) -> str:
    rows = [{"id": i, "name": f"n{rng.random()}", "tags": ["a/b", "ü"], "ok": None} for i in range(900)]
    return json.dumps(rows, indent=rng.choice([None, 2]))


def _log(rng: random.Random) -> str:
    return "".join(
        f"2024-03-{rng.randrange(1, 29):02}T10:11:{rng.randrange(60):02}.{rng.randrange(10**6)}Z WARN /var/x[{i}]:\t"
        f"0x{rng.randrange(2**64):016x} took {rng.random()}ms://\n"
        for i in range(700)
    )


def _cjk(rng: random.Random) -> str:
    return "".join(
        rng.choice("的一是在不了有和人这東京語한국어") + rng.choice(["", "", "", "，", "。", "、"])
        for _ in range(30_000)
    )


def _emoji(rng: random.Random) -> str:
    return "".join(
        rng.choice(["👩‍👩‍👧", "🇩🇪", "é", "👍🏽", "text", "٣", "़"]) + rng.choice(["", " ", "\n"]) for _ in range(15_000)
    )


def _runs(rng: random.Random) -> str:
    return "".join(
        rng.choice(" \t\n\r\u00a0\u3000\x0b") * rng.randrange(1, 40) + rng.choice(["x", "1", "/", "'s", "."])
        for _ in range(3_000)
    )


def _base64(rng: random.Random) -> str:
    return "".join(rng.choice("ABCDEFabcdefghijkl0123456789+/") for _ in range(50_000))


CORPUS = {
    make.__name__[1:]: make(random.Random(7)) for make in (_prose, _code, _json, _log, _cjk, _emoji, _runs, _base64)
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", CORPUS)
def test_a_long_text_has_the_tokens_that_tiktoken_gives_it(kind: str, name: EncodingName, encodings: Encodings) -> None:
    text = CORPUS[kind]
    assert len(text) > 2 * PIECE
    assert counter_for(name, encodings).count(text) == TokenCount(
        len(reference(name).encode_ordinary(text)), exact=True
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "-", "漢", "hello", "👩‍👩‍👧"])
def test_a_text_without_a_safe_place_is_nearly_right_and_says_so(
    unit: str, name: EncodingName, encodings: Encodings
) -> None:
    text = unit * (100_000 // len(unit))
    counted = counter_for(name, encodings).count(text)
    assert not counted.exact
    assert counted.tokens == pytest.approx(len(reference(name).encode_ordinary(text)), rel=0.002)


@pytest.mark.parametrize("name", NAMES)
def test_text_of_special_tokens_counts_as_any_other(name: EncodingName, encodings: Encodings) -> None:  # C192
    text = "x <|endoftext|> y" * 1_000
    expected = len(reference(name).encode_ordinary(text))
    assert expected > 5_000
    assert counter_for(name, encodings).count(text) == TokenCount(expected, exact=True)


def test_no_text_has_no_tokens(encodings: Encodings) -> None:
    assert counter_for("o200k_base", encodings).count("") == TokenCount(0, exact=True)


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff" * 40_000, "\ud83d\ude00", "漢字\udc80 x"])
def test_lone_surrogates_count_as_replacement_characters(text: str, encodings: Encodings) -> None:
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    counter = counter_for("o200k_base", encodings)
    counted = counter.count(text)
    assert not counted.exact
    assert counted.tokens == counter.count(clean).tokens


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_has_an_answer_between_its_bounds(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    counter = TokenCounter.for_model("openai", "gpt-5")
    assert -(-size // 128) <= counter.count(text).tokens <= size


# --- where a text is cut

# What the expressions of the encodings tell apart, each often enough to meet the others.
_PARTS = st.sampled_from([
    *"aZé漢ǅʰı1٣½²",
    *" \t\n\r\u00a0\u0085\u2028\x0b\x1c\u200b",
    *"'’/.,-_(\"\\{}<>|&%$€。、，！\u0301\u093c\u200d",
    *"ſKßİ",
    "'s", "'LL", "'ſ", "  ", "\n\n", "\r\n", "://", " /", "\n/", "foo", "Bar", "123456", "👩‍👩‍👧", "\ue000", "\x00",
])  # fmt: skip
_TEXTS = st.lists(_PARTS, max_size=30).map("".join)


@settings(max_examples=1_000, deadline=None)
@given(text=_TEXTS)
def test_cuts_at_safe_places_change_no_ids(text: str) -> None:
    cuts = [0, *(found.start() for found in _CUT.finditer(text)), len(text)]
    for name in NAMES:
        encode = reference(name).encode_ordinary
        pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
        assert [token for piece in pieces for token in encode(piece)] == encode(text)


@settings(max_examples=300, deadline=None)
@given(before=st.text(max_size=12), after=st.text(max_size=12))
def test_safe_places_are_safe_in_text_of_any_characters(before: str, after: str) -> None:
    text = (before + after).encode("utf-8", "replace").decode()
    for found in _CUT.finditer(text):
        for name in NAMES:
            encode = reference(name).encode_ordinary
            assert encode(text[: found.start()]) + encode(text[found.start() :]) == encode(text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(unit=st.text(min_size=1, max_size=40), length=st.integers(0, 3 * PIECE))
def test_pieces_make_up_the_text(unit: str, length: int) -> None:
    text = (unit * (length // len(unit) + 1))[:length]
    start, pieces = 0, []
    while start < len(text):
        end, _ = next_cut(text, start)
        assert start < end <= start + PIECE
        pieces.append(text[start:end])
        start = end
    assert "".join(pieces) == text


def test_a_place_at_the_very_end_of_a_piece_is_found() -> None:
    assert next_cut("a" * PIECE + " b", 0) == (PIECE, True)
    assert next_cut("a" * PIECE + "b", 0) == (PIECE, False)
    assert next_cut("a" * PIECE, 0) == (PIECE, True)


def test_ten_megabytes_of_one_letter_cost_a_handful_of_calls() -> None:  # C194
    pieces: list[str] = []

    def count(piece: str) -> int:
        pieces.append(piece)
        return len(piece)

    for letter in "a \n":
        pieces.clear()
        counted = TokenCounter.for_model("openai", "gpt-5", encodings=encodings_with(count)).count(letter * 10_000_000)
        assert counted == TokenCount(10_000_000, exact=False)
        assert len(pieces) <= 2
        assert max(map(len, pieces)) <= PIECE


# --- tokenizers that fail


class Panic(BaseException):
    """As pyo3 raises for a panic of Rust."""


@pytest.mark.parametrize("error", [ValueError, MemoryError, RecursionError, Panic])
def test_a_piece_on_which_the_tokenizer_fails_is_estimated(error: type[BaseException]) -> None:  # C193
    def count(piece: str) -> int:
        if "bad" in piece:
            raise error
        return 1_000_000

    text = "good " * 4_000 + "bad "
    counted = TokenCounter.for_model("openai", "gpt-5", encodings=encodings_with(count)).count(text)
    assert not counted.exact
    assert 1_000_000 < counted.tokens < 1_010_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_is_no_failure_passes_through(error: type[BaseException]) -> None:
    def count(piece: str) -> int:
        raise error

    with pytest.raises(error):
        TokenCounter.for_model("openai", "gpt-5", encodings=encodings_with(count)).count("x")


# --- at least so many


@settings(max_examples=150, deadline=None)
@given(text=_TEXTS, threshold=st.integers(-2, 60), factor=st.sampled_from([None, 0.3, 1.1, 1.5, 7]))
def test_at_least_and_count_until_agree_with_the_count(text: str, threshold: int, factor: float | None) -> None:
    counter = TokenCounter.for_model("anthropic", "claude-opus-4-1", claude_factor=factor)
    tokens = counter.count(text).tokens
    assert counter.at_least(text, threshold) is (tokens >= threshold)
    until = counter.count_until(text, threshold)
    assert until == tokens or min(until, tokens) >= threshold


def test_bytes_decide_where_they_can_without_a_tokenizer() -> None:
    class Unloadable(Encodings):
        def get(self, source: object) -> None:  # type: ignore[override]
            raise AssertionError(source)

    counter = TokenCounter.for_model("openai", "gpt-5", encodings=Unloadable())
    assert not counter.at_least("漢" * 333, 1_000)
    assert not counter.at_least("x" * 999, 1_000)
    assert counter.at_least("x" * 127_873, 1_000)
    assert counter.count_until("x" * 10_000_000, 25_000) >= 25_000
    assert counter.at_least("", 0)
    with pytest.raises(AssertionError):
        counter.at_least("x" * 1_000, 1_000)


def test_counting_stops_where_enough_is_counted() -> None:
    pieces: list[str] = []

    def count(piece: str) -> int:
        pieces.append(piece)
        return len(piece) // 4

    counter = TokenCounter.for_model("openai", "gpt-5", encodings=encodings_with(count))
    assert counter.at_least("word " * 100_000, 6_000)
    assert len(pieces) == 2


def test_a_counter_decides_when_to_spill(encodings: Encodings) -> None:
    counter = counter_for("o200k_base", encodings)
    policy = SpillPolicy(tool_thresholds={"search": 1_000}, count_tokens=counter.count_until)
    text = "hello world " * 500
    exactly = counter.count(text).tokens
    assert exactly == 1_001
    assert should_spill(query(text, "search"), policy).spill
    assert not should_spill(query(text[:-12], "search"), policy).spill


# --- models


@pytest.mark.parametrize(
    ("provider", "model", "name", "exact"),
    [
        ("openai", "gpt-5", "o200k_base", True),
        ("OpenAI", "gpt-5.1-codex-mini", "o200k_base", True),
        ("openai", "gpt-4o-2024-05-13", "o200k_base", True),
        ("openai", "gpt-4.1-nano", "o200k_base", True),
        ("openai", "o1", "o200k_base", True),
        ("openai", "o3-mini", "o200k_base", True),
        ("openai", "o4-mini-2025-04-16", "o200k_base", True),
        ("openai", "chatgpt-4o-latest", "o200k_base", True),
        ("openai", "gpt-oss-120b", "o200k_base", True),
        ("openai", "ft:gpt-4o:org::id", "o200k_base", True),
        ("openai", "gpt-4", "cl100k_base", True),
        ("openai", "gpt-4-turbo", "cl100k_base", True),
        ("openai", "openai/gpt-4-0613", "cl100k_base", True),
        ("openai", "gpt-3.5-turbo-16k", "cl100k_base", True),
        ("openai", "gpt-35-turbo", "cl100k_base", True),
        ("openai", "text-embedding-3-large", "cl100k_base", True),
        ("openai", "text-davinci-003", "cl100k_base", False),
        ("openai", "who-knows", "o200k_base", False),
        ("openai", "", "o200k_base", False),
        ("anthropic", "claude-3-5-sonnet-20240620", "1.1 x cl100k_base", False),
        ("anthropic", "who-knows", "1.5 x cl100k_base", False),
        ("bedrock", "eu.anthropic.claude-sonnet-4-20250514-v1:0", "1.1 x cl100k_base", False),
        ("bedrock", "amazon.nova-pro-v1:0", "o200k_base", False),
        ("gemini", "gemini-2.5-pro", "o200k_base", False),
        ("ollama", "llama3", "o200k_base", False),
        ("", "", "o200k_base", False),
    ],
)
def test_each_model_has_its_encoding(provider: str, model: str, name: str, exact: bool) -> None:
    counter = TokenCounter.for_model(provider, model, encodings=Encodings())
    assert (counter.name, counter.exact) == (name, exact)


@pytest.mark.parametrize(
    "model",
    [
        "claude-instant-1.2",
        "anthropic.claude-instant-v1",
        "anthropic.claude-v2:1",
        "claude-2.1",
        "claude-3-opus-20240229",
        "claude-3-7-sonnet-latest",
        "claude-3.5-haiku",
        "claude-sonnet-4-20250514",
        "claude-opus-4-1-20250805",
        "us.anthropic.claude-opus-4-1-20250805-v1:0",
        "claude-sonnet-4-5@20250929",
        "anthropic/claude-sonnet-4.5",
        "claude-opus-4-6",
        "Claude-Haiku-4-5",
    ],
)
def test_older_claude_models_have_the_smaller_factor(model: str) -> None:
    assert TokenCounter.for_model("anthropic", model, encodings=Encodings()).name == "1.1 x cl100k_base"


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-4-7",
        "anthropic.claude-opus-4-7-20260416-v1:0",
        "claude-opus-4.8",
        "claude-opus-4-10",
        "claude-sonnet-5",
        "claude-sonnet-5-20270101",
        "claude-opus-latest",
        "anthropic.claude-fable-v1:0",
        "claude",
        "",
    ],
)
def test_new_and_unknown_claude_models_have_the_larger_factor(model: str) -> None:
    assert TokenCounter.for_model("anthropic", model, encodings=Encodings()).name == "1.5 x cl100k_base"


def test_the_factor_of_a_claude_model_can_be_set_and_rounds_up_by_its_digits() -> None:
    encodings = encodings_with(len)

    def tokens(text: str, factor: float | None = None) -> TokenCount:
        counter = TokenCounter.for_model("anthropic", "claude-3-opus", claude_factor=factor, encodings=encodings)
        return counter.count(text)

    assert tokens("x" * 10) == TokenCount(11, exact=False)  # and not 12, as the float 1.1 has it
    assert tokens("x" * 11) == TokenCount(13, exact=False)
    assert tokens("x" * 10, 2) == TokenCount(20, exact=False)


@pytest.mark.parametrize("factor", [0, -1, 101, float("nan"), float("inf"), True, "1.5"])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(InvalidArgument, match="claude_factor") as caught:
        TokenCounter.for_model("anthropic", "claude-3-opus", claude_factor=factor)
    assert caught.value.data == {"argument": "claude_factor"}


# --- beside an event loop


async def test_the_loop_goes_on_while_a_long_text_is_counted() -> None:  # C191
    went_on = threading.Event()

    def count(piece: str) -> int:
        assert went_on.wait(30)
        return 1

    counter = TokenCounter.for_model("openai", "gpt-5", encodings=encodings_with(count))
    counting = asyncio.create_task(counter.count_async("word " * 2_000))
    await asyncio.sleep(0)
    went_on.set()
    assert await counting == TokenCount(1, exact=True)


async def test_a_short_text_is_counted_at_once_when_the_tokenizer_is_there() -> None:
    threads: list[threading.Thread] = []

    def count(piece: str) -> int:
        threads.append(threading.current_thread())
        return 1

    counter = TokenCounter.for_model("openai", "gpt-5", encodings=encodings_with(count))
    await counter.count_async("x" * 8_000)
    await counter.count_async("x" * 8_001)
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


async def test_a_tokenizer_is_never_loaded_on_the_loop() -> None:
    class Watched(Encodings):
        thread: threading.Thread | None = None

        def get(self, source: object) -> object:  # type: ignore[override]
            self.thread = threading.current_thread()
            return ESTIMATE

    for encodings in (Watched(), Watched()):
        counter = TokenCounter.for_model("openai", "gpt-5", encodings=encodings)
        await (counter.count_async("x") if encodings.thread else counter.load())
        assert encodings.thread is not None
        assert encodings.thread is not threading.current_thread()


# --- the estimate


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("漢字", 2), ("漢字abcd", 3), ("\ud800", 1)]
)
def test_the_estimate_goes_by_script(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_the_estimate_stops_where_enough_is_counted() -> None:
    assert 1_000 <= estimate_tokens("x" * 10_000_000, stop_at=1_000) < 100_000


# --- imports


def test_importing_scratch_imports_no_tokenizer() -> None:
    code = (
        "import sys, scratch, scratch.tokens\n"
        "print([name for name in ('tiktoken', 'toktok', 'sentencepiece') if name in sys.modules])"
    )
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
