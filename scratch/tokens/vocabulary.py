"""The vocabulary files of tiktoken: found on disk and checked; scratch.tokens.fetch puts them there."""

from __future__ import annotations

import binascii
import hashlib
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

EncodingName = Literal["o200k_base", "cl100k_base"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What there is to know of an encoding beside its file: where that is from, its checksum, how a text is split."""

    url: str
    sha256: str
    size: int
    pattern: str

    @property
    def filename(self) -> str:
        """The name under which tiktoken, too, keeps the file."""
        return hashlib.sha1(self.url.encode(), usedforsecurity=False).hexdigest()

    def matches(self, data: bytes) -> bool:
        """Whether ``data`` is this file."""
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256


# The patterns stand here since the functions of tiktoken that know them download the file in the same breath.
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
VOCABULARIES: dict[EncodingName, Vocabulary] = {
    "o200k_base": Vocabulary(
        url="https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        size=3_613_922,
        pattern="|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTION,
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTION,
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    "cl100k_base": Vocabulary(
        url="https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        size=1_681_126,
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
            r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
    ),
}


def vocabulary_folder() -> Path:
    """Where scratch.tokens.fetch puts the files."""
    return platformdirs.user_cache_path("run-scratch")


def read_vocabulary(name: EncodingName) -> bytes | None:
    """The verified file of an encoding, from our folder or the one that tiktoken uses; None where neither has it."""
    vocabulary = VOCABULARIES[name]
    for folder in _folders():
        data = read_verified(folder / vocabulary.filename, vocabulary)
        if data is not None:
            return data
    return None


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """The tokens of a verified file and their ranks. Line by line, so that other threads get their turn."""
    ranks: dict[bytes, int] = {}
    for line in io.BytesIO(data):
        token, _, rank = line.partition(b" ")
        ranks[binascii.a2b_base64(token)] = int(rank)
    return ranks


def _folders() -> Iterator[Path]:
    yield vocabulary_folder()
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            if os.environ[variable]:  # empty: tiktoken keeps no files
                yield Path(os.environ[variable])
            return
    yield Path(tempfile.gettempdir()) / "data-gym-cache"


def read_verified(path: Path, vocabulary: Vocabulary) -> bytes | None:
    """The file, if it is there and the right one."""
    # The default folder of tiktoken is open to everyone on the machine: what lies there may be a pipe, or endless.
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size != vocabulary.size:
                return None
            data = file.read(vocabulary.size + 1)
    except OSError:
        return None
    return data if vocabulary.matches(data) else None
