"""The commands about tokens: count a file's, and fetch the vocabularies that make counts exact."""

from __future__ import annotations

from dataclasses import asdict
from typing import BinaryIO

import click

from scratch.cli.session import examples, json_option, run
from scratch.cli.text import print_json, print_line
from scratch.entries import decode_text
from scratch.tokens import TokenCounter
from scratch.tokens.fetch import FetchedVocabulary, fetch_vocabularies


@click.group(epilog=examples("scratch tokens count README.md", "scratch tokens fetch"))
def tokens() -> None:
    """Count tokens, and fetch the vocabularies that it takes to count them exactly."""


@tokens.command(
    epilog=examples(
        "scratch tokens count README.md --provider openai --model gpt-4o",
        "kubectl get pods -A -o json | scratch tokens count -",
    )
)
@click.argument("file", type=click.File("rb"))
@click.option("--provider", default="openai", show_default=True, metavar="NAME", help="openai, anthropic, gemini, …")
@click.option("--model", default="", metavar="NAME", help="The provider's newest when not said.")
@json_option
def count(file: BinaryIO, provider: str, model: str, as_json: bool) -> None:
    """Count the tokens that FILE (- for standard input) costs a model.

    Nothing is downloaded: without a vocabulary on this machine the count is an estimate, and says so.
    """
    counter = TokenCounter.for_model(provider, model)
    text = decode_text(file.read())
    counted = counter.count(text)
    if as_json:
        print_json({"tokens": counted.tokens, "exact": counted.exact, "counted_with": counter.name})
    else:
        about = "" if counted.exact else "about "
        print_line(f"{about}{counted.tokens:,} tokens ({counter.name})")


@tokens.command(epilog=examples("scratch tokens fetch", "scratch tokens fetch --json"))
@json_option
def fetch(as_json: bool) -> None:
    """Download the vocabularies into the user's cache folder, and check them. The one command that uses the network."""

    async def work() -> tuple[FetchedVocabulary, ...]:
        return fetch_vocabularies()

    fetched = run(work())
    if as_json:
        print_json([{**asdict(one), "path": str(one.path)} for one in fetched])
        return
    for one in fetched:
        print_line(f"{one.name}: {one.path}")
