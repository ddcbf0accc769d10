"""Downloading the vocabulary files of tiktoken, when someone asks for it. Nothing in scratch imports this by itself."""

from __future__ import annotations

import http.client
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from scratch.errors import ScratchError
from scratch.tokens.vocabulary import VOCABULARIES, EncodingName, Vocabulary, read_verified, vocabulary_folder

_CHUNK = 64 * 1024


class VocabularyNotFetched(ScratchError):
    """A vocabulary could not be downloaded or written; ``data["name"]`` says which."""

    code = "vocabulary_not_fetched"


@dataclass(frozen=True, slots=True)
class FetchedVocabulary:
    """A vocabulary file that is in place now; ``downloaded`` is false where it was before."""

    name: EncodingName
    path: Path
    size: int
    downloaded: bool


def fetch_vocabularies(*, folder: Path | None = None, timeout: float = 60.0) -> tuple[FetchedVocabulary, ...]:
    """Download the vocabulary files that are not in place (3.6 and 1.7 MB), check them and put them into a folder.

    Blocks; from an event loop call it in a thread. Processes may do it at the same time. A process that has missed a
    vocabulary before goes on estimating until it starts anew.

    Args:
        folder: Where to; the user's cache folder of run-scratch when None. Only there are they found without settings.
        timeout: Seconds for each file.

    Raises:
        VocabularyNotFetched: no connection, another file than expected, or the folder cannot be written.
    """
    folder = vocabulary_folder() if folder is None else folder
    return tuple(_fetch(name, folder, timeout) for name in VOCABULARIES)


def _fetch(name: EncodingName, folder: Path, timeout: float) -> FetchedVocabulary:
    vocabulary = VOCABULARIES[name]
    path = folder / vocabulary.filename
    if read_verified(path, vocabulary) is not None:
        return FetchedVocabulary(name, path, vocabulary.size, downloaded=False)
    try:
        data = _download(vocabulary, timeout)
    except (OSError, http.client.HTTPException, ValueError) as error:
        msg = f"{name} could not be downloaded from {vocabulary.url}: {error}; check the connection and try again"
        raise VocabularyNotFetched(msg, name=name, url=vocabulary.url) from error
    if not vocabulary.matches(data):
        msg = f"{vocabulary.url} sent {len(data)} bytes that are not {name}; is there a proxy in between? Try again"
        raise VocabularyNotFetched(msg, name=name, url=vocabulary.url)
    try:
        _write(path, data)
    except OSError as error:
        msg = f"{name} could not be written to {path}: {error.strerror}; make the folder writable or name another"
        raise VocabularyNotFetched(msg, name=name, path=str(path)) from error
    return FetchedVocabulary(name, path, vocabulary.size, downloaded=True)


def _download(vocabulary: Vocabulary, timeout: float) -> bytes:
    deadline = time.monotonic() + timeout
    data = bytearray()
    with urllib.request.urlopen(vocabulary.url, timeout=timeout) as response:  # noqa: S310 - our own https addresses
        while len(data) <= vocabulary.size and (chunk := response.read(_CHUNK)):
            data += chunk
            if time.monotonic() > deadline:  # the timeout of the connection is one for each read
                msg = f"not done after {timeout:g} seconds"
                raise TimeoutError(msg)
    return bytes(data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # 0600
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
