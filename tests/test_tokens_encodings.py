"""Loading tokenizers: in which order, once, and what happens when one is not there."""

from __future__ import annotations

import io
import logging
import random
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import sentencepiece

from scratch.tokens import Encodings, TokenCount, TokenCounter, estimate_tokens
from scratch.tokens import encodings as module
from tests.tokens_support import reference, write_vocabularies


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where vocabularies are looked for; empty."""
    folder = tmp_path / "vocabularies"
    folder.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing may connect; the error alone would not show, since failures are what is tested."""
    calls: list[object] = []

    def refuse(*args: object, **more: object) -> NoReturn:
        calls.append(args)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert calls == []


@pytest.fixture
def no_toktok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_toktok_is_taken_where_it_is_installed(caplog: pytest.LogCaptureFixture) -> None:
    counter = TokenCounter.for_model("openai", "gpt-5", encodings=Encodings())
    assert counter.count("hello world") == TokenCount(2, exact=True)
    assert (counter.name, counter.exact, warnings_in(caplog)) == ("o200k_base", True, [])


def test_tiktoken_is_taken_where_a_vocabulary_is_on_disk(
    folder: Path, no_toktok: None, caplog: pytest.LogCaptureFixture
) -> None:
    write_vocabularies(folder)
    counter = TokenCounter.for_model("openai", "gpt-4", encodings=Encodings())
    text = "tokens of cl100k, 漢字 <|endoftext|>"
    assert counter.count(text) == TokenCount(len(reference("cl100k_base").encode_ordinary(text)), exact=True)
    assert (counter.name, counter.exact, warnings_in(caplog)) == ("cl100k_base", True, [])


def test_without_a_vocabulary_tokens_are_estimated_with_one_warning_and_no_second_look(
    no_toktok: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # C188, C189
    looks: list[str] = []
    monkeypatch.setattr(module, "read_vocabulary", looks.append)
    encodings = Encodings()
    text = "hello wörld " * 10_000
    counter = TokenCounter.for_model("openai", "gpt-5", encodings=encodings)
    for _ in range(3):
        assert counter.count(text) == TokenCount(estimate_tokens(text), exact=False)
        assert counter.at_least(text, 5_000)
    assert not TokenCounter.for_model("openai", "o3", encodings=encodings).exact
    assert (counter.name, counter.exact) == ("estimate", False)
    assert looks == ["o200k_base"]
    (warning,) = warnings_in(caplog)
    assert "o200k_base" in warning
    assert "scratch tokens fetch" in warning


def test_the_factor_of_claude_stays_on_an_estimate(no_toktok: None) -> None:
    counter = TokenCounter.for_model("anthropic", "claude-opus-4-7", encodings=Encodings())
    assert counter.count("x" * 400) == TokenCount(150, exact=False)
    assert counter.name == "1.5 x estimate"


class Panic(BaseException):
    """As pyo3 raises for a panic of Rust."""


@pytest.mark.parametrize("error", [ImportError, OSError, Panic])
def test_a_package_that_fails_to_load_is_passed_over(
    error: type[BaseException], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> NoReturn:
        raise error

    monkeypatch.setitem(sys.modules, "toktok", SimpleNamespace(batch_count=fail))
    write_vocabularies(folder)
    counter = TokenCounter.for_model("openai", "gpt-5", encodings=Encodings())
    assert counter.count("hello world") == TokenCount(2, exact=True)


def test_a_package_that_counts_something_else_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    counts_bytes = SimpleNamespace(batch_count=lambda texts, name, threads: [len(text) for text in texts])
    monkeypatch.setitem(sys.modules, "toktok", counts_bytes)
    counter = TokenCounter.for_model("openai", "gpt-5", encodings=Encodings())
    assert counter.count("abcd") == TokenCount(1, exact=False)
    assert "toktok counts wrong" in caplog.text


def test_an_interrupt_while_loading_passes_and_the_next_count_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> NoReturn:
        raise KeyboardInterrupt

    encodings = Encodings()
    counter = TokenCounter.for_model("openai", "gpt-5", encodings=encodings)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "toktok", SimpleNamespace(batch_count=interrupt))
        with pytest.raises(KeyboardInterrupt):
            counter.count("x")
    assert counter.count("hello world") == TokenCount(2, exact=True)


def test_threads_that_come_together_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    together = threading.Barrier(8)

    def load(name: str) -> module.Encoding:
        loads.append(name)
        return module.Encoding(name, lambda text: 7, exact=True, pieces="same")

    monkeypatch.setattr(module, "_with_toktok", load)
    encodings = Encodings()
    got: list[module.Encoding] = []

    def get() -> None:
        together.wait()
        got.append(encodings.get("o200k_base"))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["o200k_base"]
    assert len({id(encoding) for encoding in got}) == 1


async def test_load_loads_what_the_counter_needs() -> None:
    encodings = Encodings()
    assert encodings.peek("cl100k_base") is None
    await TokenCounter.for_model("bedrock", "anthropic.claude-v2", encodings=encodings).load()
    loaded = encodings.peek("cl100k_base")
    assert loaded is not None
    assert loaded.exact
    assert encodings.peek("o200k_base") is None


# --- SentencePiece


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, trained here."""
    rng = random.Random(3)
    words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(1, 8))) for _ in range(400)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(rng.choices(words, k=12)) for _ in range(400)]),
        model_writer=model,
        vocab_size=700,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("gemma") / "gemma.model"
    path.write_bytes(model.getvalue())
    return path


def test_gemini_is_counted_with_a_local_model(gemma: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(gemma))
    counter = TokenCounter.for_model("gemini", "gemini-2.5-pro", gemma_model=str(gemma), encodings=Encodings())
    text = "the rain in spain, 12345 漢字 " * 300
    assert counter.count(text) == TokenCount(len(processor.encode(text)), exact=True)
    assert (counter.name, counter.exact) == ("gemma", True)


def test_a_long_text_for_gemini_is_nearly_right_and_says_so(gemma: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(gemma))
    counter = TokenCounter.for_model("gemini", "gemini-2.5-pro", gemma_model=gemma, encodings=Encodings())
    text = "the rain in spain stays mainly in the plain, 12345\n" * 2_000
    counted = counter.count(text)
    assert not counted.exact
    assert counted.tokens == pytest.approx(len(processor.encode(text)), rel=0.001)
    assert counter.at_least(text, counted.tokens)
    assert not counter.at_least(text, counted.tokens + 1)


def test_a_lone_surrogate_is_no_trouble_for_gemini(gemma: Path) -> None:
    counter = TokenCounter.for_model("gemini", "gemini-2.5-pro", gemma_model=gemma, encodings=Encodings())
    counted = counter.count("rain \ud800")
    assert not counted.exact
    assert counted.tokens == counter.count("rain \ufffd").tokens


@pytest.mark.parametrize("fault", ["missing", "junk", "not installed"])
def test_without_its_model_gemini_is_counted_approximately_with_one_warning(
    fault: str, gemma: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = gemma if fault == "not installed" else tmp_path / "my.model"
    if fault == "junk":
        path.write_bytes(b"junk")
    elif fault == "not installed":
        monkeypatch.setitem(sys.modules, "sentencepiece", None)
    encodings = Encodings()
    counter = TokenCounter.for_model("gemini", "gemini-2.5-pro", gemma_model=path, encodings=encodings)
    for _ in range(2):
        assert counter.count("hello world") == TokenCount(2, exact=False)
    assert (counter.name, counter.exact) == ("o200k_base", False)
    (warning,) = warnings_in(caplog)
    assert path.name in warning
    assert "run-scratch[gemini]" in warning
