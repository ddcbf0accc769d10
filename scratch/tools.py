"""The verbs as a model sees them: definitions with a JSON Schema, and calls that always return text.

A model's call never raises: bad arguments, unknown handles, a locked file and bugs of our own all come back as one
compact JSON object ``{"error": code, "message": …}`` that says what to do next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scratch import windows
from scratch.content import BINARY
from scratch.entries import EntryInfo, Kind
from scratch.errors import HandleNotFound, InvalidArgument, NoteNotFound, ScratchError
from scratch.jsontext import dumps
from scratch.run import Captured, RunScratch
from scratch.spill import Observation, OwnText

logger = logging.getLogger("scratch")

Group = Literal["notes"]
GROUPS: frozenset[Group] = frozenset({"notes"})
_LISTED = 10
_MOST_LISTED = 100
_PREVIEW_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a verb. ``kind`` is a JSON Schema type; what is not ``required`` may be left out or null."""

    name: str
    kind: Literal["string", "integer", "boolean"]
    description: str
    required: bool = False
    default: object = None
    least: int | None = None
    most: int | None = None

    def schema(self) -> dict[str, object]:
        """Its JSON Schema."""
        schema: dict[str, object] = {"type": self.kind, "description": self.description}
        bounds = {"default": self.default, "minimum": self.least, "maximum": self.most}
        return schema | {name: value for name, value in bounds.items() if value is not None}

    def check(self, value: object) -> object:
        """Return ``value`` when it is of the kind, strictly.

        Raises:
            InvalidArgument: it is not.
        """
        if self.kind == "integer":
            return windows.check_count(value, self.name, least=self.least or 0)
        wanted = bool if self.kind == "boolean" else str
        if not isinstance(value, wanted):
            msg = f"{self.name} must be a {self.kind}, not {_json_type(value)}"
            raise InvalidArgument(msg, argument=self.name)
        return value


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its name without a prefix, what it does, its parameters, and what runs it."""

    name: str
    group: Group | None
    """None: in every set."""
    description: str
    parameters: tuple[Parameter, ...]
    handler: Callable[[Toolset, dict[str, Any]], Awaitable[str]]

    def input_schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {p.name: p.schema() for p in self.parameters},
            "required": [p.name for p in self.parameters if p.required],
            "additionalProperties": False,
        }

    def check(self, arguments: object) -> dict[str, Any]:
        """The checked arguments with the defaults filled in.

        Raises:
            InvalidArgument: no object, an unknown argument (with the known ones), a missing one, or a wrong kind.
        """
        if isinstance(arguments, str | bytes):  # as some clients hand them over
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as error:
                msg = f"the arguments are not valid JSON: {error}"
                raise InvalidArgument(msg, argument="arguments") from error
        if not isinstance(arguments, Mapping):
            msg = f"the arguments must be an object, not {_json_type(arguments)}"
            raise InvalidArgument(msg, argument="arguments")
        known = [p.name for p in self.parameters]
        for name in arguments:
            if name not in known:
                msg = f"{name!r} is no argument of {self.name}; it takes {', '.join(known)}"
                raise InvalidArgument(msg, argument=str(name), known=known)
        checked: dict[str, Any] = {}
        for parameter in self.parameters:
            value = arguments.get(parameter.name)
            if value is not None:
                checked[parameter.name] = parameter.check(value)
            elif parameter.required:
                msg = f"{self.name} needs {parameter.name}: {parameter.description}"
                raise InvalidArgument(msg, argument=parameter.name)
            else:
                checked[parameter.name] = parameter.default
        return checked


class Toolset:
    """The verbs of one agent in one run, ready for a model. Tasks of the store's loop may share it.

    Capture results with :meth:`capture` of this object: its stubs name the verbs of the set, under their prefix.

    Args:
        run: The scope that the verbs work on.
        groups: Which groups beside ``read_handle``; all by default.
        prefix: Stands before each name, for hosts whose tools could have the same.

    Raises:
        InvalidArgument: an unknown group.
    """

    def __init__(self, run: RunScratch, *, groups: Iterable[Group] = GROUPS, prefix: str = "") -> None:
        chosen = frozenset(groups)
        if unknown := chosen - GROUPS:
            msg = f"there is no group {', '.join(map(repr, sorted(unknown)))}; there are {', '.join(sorted(GROUPS))}"
            raise InvalidArgument(msg, argument="groups")
        self.prefix = prefix
        self.verbs = tuple(verb for verb in VERBS if verb.group is None or verb.group in chosen)
        policy = replace(run.policy, verbs=frozenset(verb.name for verb in self.verbs), verb_prefix=prefix)
        self.run = run.with_policy(policy)
        self._by_name = {prefix + verb.name: verb for verb in self.verbs}

    async def capture(self, observation: Observation) -> Captured:
        """:meth:`RunScratch.capture <scratch.RunScratch.capture>`, with stubs that name this set's verbs."""
        return await self.run.capture(observation)

    def definitions(self, client: Literal["openai", "anthropic", "mcp"]) -> list[dict[str, object]]:
        """The definitions in the form that a client takes."""
        shaped: list[dict[str, object]] = []
        for name, verb in self._by_name.items():
            schema = verb.input_schema()
            if client == "openai":
                function = {"name": name, "description": verb.description, "parameters": schema}
                shaped.append({"type": "function", "function": function})
            else:
                key = "input_schema" if client == "anthropic" else "inputSchema"
                shaped.append({"name": name, "description": verb.description, key: schema})
        return shaped

    async def call(self, name: str, arguments: object) -> OwnText:
        """Run a verb as a model called it. Never raises (cancellation passes through); the text is never spilled again.

        Args:
            name: With the prefix.
            arguments: An object, or its JSON text.
        """
        try:
            verb = self._by_name.get(name) if isinstance(name, str) else None
            if verb is None:
                msg = f"there is no tool {str(name)[:64]!r}; there are {', '.join(self._by_name)}"
                raise InvalidArgument(msg, argument="name")  # noqa: TRY301 - rendered below like all others
            return OwnText(await verb.handler(self, verb.check(arguments)))
        except ScratchError as error:
            return OwnText(await self._refusal(error))
        except Exception:
            logger.exception("the tool %r failed", name)
            return OwnText(_error("internal_error", "this call failed inside run-scratch; try another way", {}))

    async def _refusal(self, error: ScratchError) -> str:
        data = {key: value for key, value in error.data.items() if key != "path"}
        try:
            if isinstance(error, HandleNotFound):
                data["live_handles"] = [_handle_line(info) for info in await self._some(Kind.HANDLE)]
            elif isinstance(error, NoteNotFound):
                data["live_keys"] = [info.key for info in await self._some(Kind.NOTE)]
        except ScratchError:
            logger.exception("the live entries could not be listed")
        return _error(error.code, error.message, data)

    async def _some(self, kind: Kind) -> list[EntryInfo]:
        return await self.run.list(kind=kind, limit=_LISTED)


def _error(code: str, message: str, data: Mapping[str, object]) -> str:
    return dumps({"error": code, "message": message, **data})


def _handle_line(info: EntryInfo) -> dict[str, object]:
    return {"handle": info.key, "size": info.size, "tool": info.source_tool}


def _json_type(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


async def _read_handle(tools: Toolset, arguments: dict[str, Any]) -> str:
    handle, match = arguments["handle"], arguments["match"]
    if match is None:
        window = await tools.run.read_handle(handle, offset=arguments["offset"], length=arguments["length"])
        return window.to_json()
    matches = await tools.run.read_handle(
        handle,
        match=match,
        ignore_case=arguments["ignore_case"],
        context=arguments["context"],
        max_windows=arguments["max_windows"],
        offset=arguments["offset"],
    )
    return matches.to_json()


async def _scratch_write(tools: Toolset, arguments: dict[str, Any]) -> str:
    version = await tools.run.write(
        arguments["key"],
        arguments["value"],
        append=arguments["append"],
        if_version=arguments["if_version"],
        ttl=arguments["ttl_seconds"],
    )
    return dumps({"written": True, "key": arguments["key"], "version": version})


async def _scratch_read(tools: Toolset, arguments: dict[str, Any]) -> str:
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
    return dumps({"key": arguments["key"], "version": entry.version, **window.fields()})


async def _scratch_list(tools: Toolset, arguments: dict[str, Any]) -> str:
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
        listing["handles"] = [_handle_line(info) for info in await tools.run.list(kind=Kind.HANDLE, limit=_LISTED)]
    return dumps(listing)


async def _scratch_delete(tools: Toolset, arguments: dict[str, Any]) -> str:
    key = arguments["key"]
    if await tools.run.delete(key):
        return dumps({"deleted": True, "key": key})
    live = [info.key for info in await tools.run.list(limit=_LISTED)]
    message = "nothing was deleted: there is no live entry under that key"
    return dumps({"deleted": False, "key": key, "message": message, "live_keys": live})


_HANDLE = Parameter("handle", "string", "The handle of a stored result, from its stub.", required=True)
_KEY = Parameter("key", "string", "The note's key: 1 to 256 bytes of printable text.", required=True)

VERBS: tuple[Verb, ...] = (
    Verb(
        "read_handle",
        None,
        "Read a stored result in pieces: a byte range (offset, length), or with match the surroundings of each place "
        "where that literal text stands. Follow next_offset to read on.",
        (
            _HANDLE,
            Parameter(
                "offset", "integer", "First byte, from 0; with match: where the search starts.", default=0, least=0
            ),
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
    ),
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
    ),
    Verb(
        "scratch_read",
        "notes",
        "Read a note; a long one in pieces: follow next_offset.",
        (
            _KEY,
            Parameter("offset", "integer", "First byte, from 0.", default=0, least=0),
            Parameter(
                "length", "integer", "Bytes to read.", default=windows.MAX_LENGTH, least=1, most=windows.MAX_LENGTH
            ),
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
    ),
)
