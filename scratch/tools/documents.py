"""The verbs of artifacts: documents that the agents of a run hand to each other."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scratch.artifacts import available_artifacts, find_artifact, write_artifact
from scratch.content import BINARY, JSON
from scratch.entries import EntryInfo
from scratch.explore.look import Look, TooLarge
from scratch.jsontext import dumps, encodable
from scratch.tools.definition import Parameter, Verb

if TYPE_CHECKING:
    from scratch.tools.toolset import Toolset

_TABLES = ("csv", "tsv")


async def _write_artifact(tools: Toolset, arguments: dict[str, Any], _room: int) -> Look:
    written = await write_artifact(tools.run, arguments["filename"], arguments["content"])
    return Look(written.to_json(), "")


async def _read_artifact(tools: Toolset, arguments: dict[str, Any], room: int) -> Look:
    filename = arguments["filename"]
    info = await find_artifact(tools.run, filename)
    if info is None:
        return Look(await _not_there(tools, filename), "")
    most = tools.inline_bytes if "explore" not in tools.groups else room
    if info.media_type == BINARY:
        raise TooLarge(info.size, ())  # a pointer is all that is told of what is no text
    if most is not None and info.size > most:
        if "explore" in tools.groups:
            raise TooLarge(info.size, ())
        window = await tools.run.read_handle(info.key, length=most)
        tools.run.counters.read("artifact", window.end)
        return Look(f"{window.text}\n[cut: the first {window.end:,} of {info.size:,} bytes]", "")
    # piece by piece: to decode 50 MB at once would stop the loop
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    text = ""
    async for piece in tools.run.pieces(info):
        text += encodable(decoder.decode(piece))
    text += decoder.decode(b"", final=True)
    tools.run.counters.read("artifact", info.size)
    return Look(text, f"{info.key} (all {info.size:,} bytes)")


async def _not_there(tools: Toolset, filename: str) -> str:
    available = await available_artifacts(tools.run, filename)
    answer: dict[str, object] = {"found": False, "filename": filename[:256], "available": list(available.names)}
    if available.omitted:
        answer["available_omitted"] = available.omitted
    return dumps(answer)


async def _pointer(tools: Toolset, arguments: dict[str, Any], data: Mapping[str, object]) -> str:
    """What is told of an artifact that is too large to be shown: what it is, and the calls that work on it in place."""
    info = await find_artifact(tools.run, arguments["filename"])
    if info is None:
        return await _not_there(tools, arguments["filename"])
    suffix = info.key.rpartition(".")[2].lower()
    if info.media_type == BINARY:
        kind, calls = "binary", ["read_handle"]
    elif suffix in ("json", "jsonl") or info.media_type == JSON:
        kind, calls = "json", ["schema", "get_in", "iterate_over", "item_schema", "grep"]
    elif suffix in ("md", "markdown"):
        kind, calls = "markdown", ["schema", "grep", "slice", "head"]
    else:
        kind, calls = ("table" if suffix in _TABLES else "text"), ["head", "grep", "slice"]
    registered = [call for call in calls if call in {verb.name for verb in tools.verbs}]
    return dumps(
        {
            "found": True,
            "inlined": False,
            "filename": info.key,
            "size": info.size,
            "tokens": _tokens(info, data),
            "format": kind,
            "lines": await _line_count(tools, info),
            "message": "too large to be shown whole; it is explored in place, nothing is copied",
            "calls": [{"tool": tools.prefix + call, "handle": info.key} for call in registered],
        }
    )


def _tokens(info: EntryInfo, data: Mapping[str, object]) -> object:
    return data["estimated_tokens"] if info.tokens is None else info.tokens


async def _line_count(tools: Toolset, info: EntryInfo) -> int | None:
    return None if info.media_type == BINARY else await tools.explorer.line_count(info)


ARTIFACTS = (
    Verb(
        "read_artifact",
        "artifacts",
        "Read a document that an agent of this run has written. One that is too large comes as a pointer with the "
        "calls that look into it.",
        (Parameter("filename", "string", "The artifact's name.", required=True),),
        _read_artifact,
        instead=_pointer,
    ),
    Verb(
        "write_artifact",
        "artifacts",
        "Write a document for the other agents of this run; replaces the one of that name. The answer says under which "
        "name it is stored.",
        (
            Parameter("filename", "string", "Its name, such as plan.md.", required=True),
            Parameter("content", "string", "The document.", required=True),
        ),
        _write_artifact,
        writes=True,
    ),
)
