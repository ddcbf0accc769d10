"""The verbs of every set: reading a stored result in pieces, and the agent's notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scratch import windows
from scratch.content import BINARY
from scratch.entries import EntryInfo, Kind
from scratch.explore.look import Call, Look
from scratch.jsontext import dumps
from scratch.tools.definition import Parameter, Verb

if TYPE_CHECKING:
    from scratch.tools.toolset import Toolset

LISTED = 10
"""Handles, keys or names that an error lists."""
_MOST_LISTED = 100
_PREVIEW_CHARACTERS = 80
_READ_LENGTH = 16 * 1024
"""Bytes of a note that are read at once: under the cap of a call in any script."""


def handle_line(info: EntryInfo) -> dict[str, object]:
    """A handle in a list."""
    return {"handle": info.key, "size": info.size, "tool": info.source_tool}


def _halved(tool: str, arguments: dict[str, Any], name: str, now: int) -> tuple[Call, ...]:
    """The same call for half as much."""
    if now <= 1:
        return ()
    given = {key: value for key, value in arguments.items() if value is not None and key != "handle"}
    return (Call(tool, given | {name: now // 2}),)


async def _read_handle(tools: Toolset, arguments: dict[str, Any], _room: int) -> Look:
    handle, match = arguments["handle"], arguments["match"]
    if match is None:
        window = await tools.run.read_handle(handle, offset=arguments["offset"], length=arguments["length"])
        given = {"offset": arguments["offset"], "length": arguments["length"]}
        smaller = _halved("read_handle", given, "length", min(arguments["length"], window.end - window.offset))
        return Look(window.to_json(), "", smaller)
    matches = await tools.run.read_handle(
        handle,
        match=match,
        ignore_case=arguments["ignore_case"],
        context=arguments["context"],
        max_windows=arguments["max_windows"],
        offset=arguments["offset"],
    )
    given = {key: value for key, value in arguments.items() if key != "length"}
    fewer = _halved("read_handle", given, "max_windows", min(arguments["max_windows"], len(matches.windows)))
    return Look(matches.to_json(), "", fewer or _halved("read_handle", given, "context", arguments["context"]))


async def _scratch_write(tools: Toolset, arguments: dict[str, Any], _room: int) -> Look:
    version = await tools.run.write(
        arguments["key"],
        arguments["value"],
        append=arguments["append"],
        if_version=arguments["if_version"],
        ttl=arguments["ttl_seconds"],
    )
    return Look(dumps({"written": True, "key": arguments["key"], "version": version}), "")


async def _scratch_read(tools: Toolset, arguments: dict[str, Any], _room: int) -> Look:
    entry = await tools.run.read(arguments["key"])
    length, note = windows.clamp(arguments["length"], "length", least=1, most=windows.MAX_LENGTH)
    window = windows.cut_window(
        entry.content,
        0,
        offset=arguments["offset"],
        length=length,
        size=len(entry.content),
        binary=entry.info.media_type == BINARY,
        note=note,
    )
    text = dumps({"key": arguments["key"], "version": entry.version, **window.fields()})
    return Look(text, "", _halved("scratch_read", arguments, "length", min(length, window.end - window.offset)))


async def _scratch_list(tools: Toolset, arguments: dict[str, Any], _room: int) -> Look:
    limit = min(arguments["limit"], _MOST_LISTED)
    notes = await tools.run.list(prefix=arguments["prefix"], after=arguments["after"], limit=limit)
    listing: dict[str, object] = {
        "notes": [
            {"key": n.key, "size": n.size, "version": n.version, "preview": n.preview[:_PREVIEW_CHARACTERS]}
            for n in notes
        ],
        "next_after": notes[-1].key if len(notes) == limit else None,
    }
    if not notes:
        listing["message"] = "there are no notes here; write one with " + tools.prefix + "scratch_write"
    if not arguments["after"]:
        listing["handles"] = [handle_line(info) for info in await tools.run.list(kind=Kind.HANDLE, limit=LISTED)]
    return Look(dumps(listing), "", _halved("scratch_list", arguments, "limit", min(limit, len(notes))))


async def _scratch_delete(tools: Toolset, arguments: dict[str, Any], _room: int) -> Look:
    key = arguments["key"]
    if await tools.run.delete(key):
        return Look(dumps({"deleted": True, "key": key}), "")
    live = [info.key for info in await tools.run.list(limit=LISTED)]
    message = "nothing was deleted: there is no live entry under that key"
    return Look(dumps({"deleted": False, "key": key, "message": message, "live_keys": live}), "")


_KEY = Parameter("key", "string", "The note's key: 1 to 256 bytes of printable text.", required=True)

READ_HANDLE = Verb(
    "read_handle",
    None,
    "Read a stored result in pieces: a byte range (offset, length), or with match the surroundings of each place "
    "where that literal text stands. Follow next_offset to read on.",
    (
        Parameter("handle", "string", "The handle of a stored result, from its stub.", required=True),
        Parameter("offset", "integer", "First byte, from 0; with match: where the search starts.", default=0, least=0),
        Parameter(
            "length", "integer", "Bytes to read.", default=windows.DEFAULT_LENGTH, least=1, most=windows.MAX_LENGTH
        ),
        Parameter("match", "string", "Literal text to find in the whole result."),
        Parameter("ignore_case", "boolean", "Find it in upper or lower case.", default=False),
        Parameter(
            "context",
            "integer",
            "Bytes shown on either side of a match.",
            default=windows.DEFAULT_CONTEXT,
            least=0,
            most=windows.MAX_CONTEXT,
        ),
        Parameter(
            "max_windows",
            "integer",
            "Windows shown at most.",
            default=windows.DEFAULT_WINDOWS,
            least=1,
            most=windows.MAX_WINDOWS,
        ),
    ),
    _read_handle,
)
NOTES = (
    Verb(
        "scratch_write",
        "notes",
        "Keep a note outside the context under a key; replaces what is there, or adds to its end with append.",
        (
            _KEY,
            Parameter("value", "string", "The text to keep, up to 1 MiB.", required=True),
            Parameter("append", "boolean", "Add to the end of the note.", default=False),
            Parameter(
                "if_version", "integer", "Write only if the note has this version; 0: only if there is none.", least=0
            ),
            Parameter("ttl_seconds", "integer", "How long it lives from now.", least=1),
        ),
        _scratch_write,
        writes=True,
    ),
    Verb(
        "scratch_read",
        "notes",
        "Read a note; a long one in pieces: follow next_offset.",
        (
            _KEY,
            Parameter("offset", "integer", "First byte, from 0.", default=0, least=0),
            Parameter("length", "integer", "Bytes to read.", default=_READ_LENGTH, least=1, most=windows.MAX_LENGTH),
        ),
        _scratch_read,
    ),
    Verb(
        "scratch_list",
        "notes",
        "List the notes by key, and the handles of stored results.",
        (
            Parameter("prefix", "string", "Only keys that start with it.", default=""),
            Parameter("limit", "integer", "Notes listed at most.", default=50, least=1, most=_MOST_LISTED),
            Parameter("after", "string", "Go on after this key (next_after of the page before).", default=""),
        ),
        _scratch_list,
    ),
    Verb(
        "scratch_delete",
        "notes",
        "Delete a note, or a stored result by its handle.",
        (_KEY,),
        _scratch_delete,
        writes=True,
    ),
)
