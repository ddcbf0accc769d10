"""The eight exploration tools as verbs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from scratch.explore.look import Look
from scratch.tools.definition import Parameter, Verb

if TYPE_CHECKING:
    from scratch.tools.toolset import Toolset

_HANDLE = Parameter("handle", "string", "A handle from a stub, or the name of an artifact of this run.", required=True)
_STRING_PATH = Parameter("path", "string", "Work on the lines of the string value at this path, such as $.log.")
_PATH = 'Path of the value: $.a.b[0], a.b.0, a[-1], ["key.with.dots"]; it may go on through a string that holds JSON.'


def _tool(name: str) -> Callable[[Toolset, dict[str, Any], int], Awaitable[Look]]:
    async def handler(tools: Toolset, arguments: dict[str, Any], room: int) -> Look:
        return await tools.explorer.look(name, arguments, room)

    return handler


EXPLORING = (
    Verb(
        "head",
        "explore",
        "Show the first lines of a stored result, numbered.",
        (_HANDLE, Parameter("lines", "integer", "How many lines.", default=50, least=1), _STRING_PATH),
        _tool("head"),
    ),
    Verb(
        "slice",
        "explore",
        "Show lines start to end of a stored result, both included.",
        (
            _HANDLE,
            Parameter("start", "integer", "First line, from 1.", required=True, least=1),
            Parameter("end", "integer", "Last line, included.", required=True, least=1),
            _STRING_PATH,
        ),
        _tool("slice"),
    ),
    Verb(
        "grep",
        "explore",
        "Find lines that match a regular expression (RE2 syntax: no lookaround, no backreferences; \\w, \\d, \\s and "
        "\\b know ASCII only), with context and the byte offset of each match.",
        (
            _HANDLE,
            Parameter("pattern", "string", "The regular expression, or plain text with literal.", required=True),
            Parameter("context", "integer", "Lines shown before and after a match.", default=3, least=0),
            Parameter("literal", "boolean", "Take the pattern as plain text.", default=False),
            Parameter("ignore_case", "boolean", "Match in upper and lower case.", default=False),
            Parameter("max_matches", "integer", "Matches shown at most.", default=100, least=1),
            _STRING_PATH,
        ),
        _tool("grep"),
    ),
    Verb(
        "schema",
        "explore",
        "Outline a stored result: for JSON its paths, kinds and counts; for markdown its headings; else its lines.",
        (
            _HANDLE,
            Parameter("path", "string", _PATH, default="$"),
            Parameter("max_depth", "integer", "Levels shown.", default=4, least=1),
        ),
        _tool("schema"),
    ),
    Verb(
        "item_schema",
        "explore",
        "Tell the keys of the objects in an array: their types, and in how many items each is present.",
        (
            _HANDLE,
            Parameter("path", "string", f"Path of the array. {_PATH}", required=True),
            Parameter("offset", "integer", "First item, from 0.", default=0, least=0),
            Parameter("limit", "integer", "Items looked at; all when left out.", least=1),
        ),
        _tool("item_schema"),
    ),
    Verb(
        "get_in",
        "explore",
        "Show the value at a path. A long string is paged by line, an array or object by item, with offset and limit.",
        (
            _HANDLE,
            Parameter("path", "string", _PATH, required=True),
            Parameter("offset", "integer", "First line or item of the page, from 0.", least=0),
            Parameter("limit", "integer", "Lines or items of the page.", least=1),
        ),
        _tool("get_in"),
    ),
    Verb(
        "iterate_over",
        "explore",
        "List chosen fields of the items of an array, one row an item with its _index.",
        (
            _HANDLE,
            Parameter("path", "string", f"Path of the array. {_PATH}", required=True),
            Parameter("fields", "strings", "Fields of an item; each may be a path, such as user.name.", required=True),
            Parameter("offset", "integer", "First item, from 0.", default=0, least=0),
            Parameter("limit", "integer", "Items listed; all when left out.", least=1),
        ),
        _tool("iterate_over"),
    ),
    Verb("read", "explore", "Show a whole stored result, when it fits.", (_HANDLE,), _tool("read")),
)
