"""Vocabulary files: where they are found, what is refused, and how they are fetched."""

from __future__ import annotations

import io
import os
import stat
import tempfile
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from scratch.errors import ScratchError
from scratch.tokens import fetch
from scratch.tokens.fetch import VocabularyNotFetched, fetch_vocabularies
from scratch.tokens.vocabulary import VOCABULARIES, EncodingName, parse_ranks, read_vocabulary, vocabulary_folder
from tests.tokens_support import NAMES, OPENAI, reference, vocabulary_bytes, write_vocabularies

SMALL: EncodingName = "cl100k_base"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No vocabulary anywhere."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def put(folder: Path, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VOCABULARIES[SMALL].filename).write_bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_an_encoding_is_described_as_tiktoken_describes_it(name: EncodingName, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {}

    monkeypatch.setattr(OPENAI, "load_tiktoken_bpe", load)
    described = OPENAI.ENCODING_CONSTRUCTORS[name]()
    assert described["pat_str"] == VOCABULARIES[name].pattern
    assert asked == [(VOCABULARIES[name].url, VOCABULARIES[name].sha256)]


@pytest.mark.parametrize("name", NAMES)
def test_the_ranks_are_those_of_tiktoken(name: EncodingName) -> None:
    assert parse_ranks(vocabulary_bytes(name)) == reference(name)._mergeable_ranks


@pytest.mark.parametrize("name", NAMES)
def test_no_token_is_longer_than_the_bounds_of_a_count_say(name: EncodingName) -> None:
    assert max(map(len, parse_ranks(vocabulary_bytes(name)))) == 128


def test_a_vocabulary_is_found_where_tiktoken_keeps_it(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_vocabulary(SMALL) is None
    put(places / "data-gym-cache", vocabulary_bytes(SMALL))
    assert read_vocabulary(SMALL) == vocabulary_bytes(SMALL)
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(places / "gym"))
    assert read_vocabulary(SMALL) is None
    put(places / "gym", vocabulary_bytes(SMALL))
    assert read_vocabulary(SMALL) == vocabulary_bytes(SMALL)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # tiktoken keeps none
    assert read_vocabulary(SMALL) is None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(places / "gym"))
    assert read_vocabulary(SMALL) == vocabulary_bytes(SMALL)


def test_a_vocabulary_is_found_in_our_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    put(vocabulary_folder(), vocabulary_bytes(SMALL))
    assert read_vocabulary(SMALL) == vocabulary_bytes(SMALL)


def test_a_file_that_is_another_is_not_used(places: Path) -> None:
    good = vocabulary_bytes(SMALL)
    for bad in (b"", good[:-1], good + b"\n", good.replace(b"IQ== 0", b"IQ== 1", 1)):
        put(places / "data-gym-cache", bad)
        assert read_vocabulary(SMALL) is None
    put(vocabulary_folder(), good)
    assert read_vocabulary(SMALL) == good


def test_a_pipe_or_a_folder_of_that_name_does_no_harm(places: Path) -> None:
    path = places / "data-gym-cache" / VOCABULARIES[SMALL].filename
    path.parent.mkdir()
    os.mkfifo(path)
    assert read_vocabulary(SMALL) is None
    path.unlink()
    path.mkdir()
    assert read_vocabulary(SMALL) is None


# --- fetching


class Server:
    """Answers as the blob store does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = {VOCABULARIES[name].url: vocabulary_bytes(name) for name in NAMES}
        self.asked: list[str] = []
        monkeypatch.setattr(urllib.request, "urlopen", self._open)

    def _open(self, url: str, *, timeout: float) -> io.BytesIO:
        assert timeout > 0
        self.asked.append(url)
        return io.BytesIO(self.files[url])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_fetched_vocabularies_are_private_and_found(server: Server) -> None:
    fetched = fetch_vocabularies()
    assert [(one.name, one.downloaded, one.size) for one in fetched] == [
        (name, True, len(vocabulary_bytes(name))) for name in VOCABULARIES
    ]
    for one in fetched:
        assert one.path.parent == vocabulary_folder()
        assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
        assert read_vocabulary(one.name) == vocabulary_bytes(one.name)


def test_what_is_in_place_is_not_fetched_again(server: Server, places: Path) -> None:
    folder = write_vocabularies(places)
    (folder / VOCABULARIES[SMALL].filename).write_bytes(b"half of i")
    fetched = {one.name: one.downloaded for one in fetch_vocabularies(folder=folder)}
    assert fetched == {"o200k_base": False, SMALL: True}
    assert server.asked == [VOCABULARIES[SMALL].url]
    assert (folder / VOCABULARIES[SMALL].filename).read_bytes() == vocabulary_bytes(SMALL)


@pytest.mark.parametrize("body", [b"", b"<html>log in</html>", vocabulary_bytes("o200k_base") * 2])
def test_an_answer_that_is_not_the_file_is_refused_and_leaves_nothing(
    body: bytes, server: Server, places: Path
) -> None:
    server.files[VOCABULARIES["o200k_base"].url] = body
    with pytest.raises(VocabularyNotFetched, match="not o200k_base") as caught:
        fetch_vocabularies(folder=places / "new")
    assert isinstance(caught.value, ScratchError)
    assert (caught.value.code, caught.value.data["name"]) == ("vocabulary_not_fetched", "o200k_base")
    assert not (places / "new").exists()


def test_a_connection_that_fails_says_so(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str, *, timeout: float) -> NoReturn:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(VocabularyNotFetched, match="Network is unreachable; check the connection"):
        fetch_vocabularies(folder=places)


def test_a_server_that_drips_is_given_up(server: Server, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(0, 10**9, 40))
    monkeypatch.setattr(fetch, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with pytest.raises(VocabularyNotFetched, match="not done after 60 seconds"):
        fetch_vocabularies(folder=places)


def test_a_folder_that_cannot_be_written_is_named(server: Server, places: Path) -> None:
    (places / "file").touch()
    with pytest.raises(VocabularyNotFetched, match=r"could not be written to .*file") as caught:
        fetch_vocabularies(folder=places / "file")
    assert caught.value.data["name"] == "o200k_base"


def test_a_write_that_fails_leaves_nothing(server: Server, places: Path) -> None:
    folder = places / "new"
    (folder / VOCABULARIES["o200k_base"].filename / "in the way").mkdir(parents=True)
    with pytest.raises(VocabularyNotFetched):
        fetch_vocabularies(folder=folder)
    assert [path.name for path in folder.iterdir()] == [VOCABULARIES["o200k_base"].filename]
