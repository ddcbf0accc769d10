"""What a model is told of a verb, and how strictly its arguments are taken."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scratch import windows
from scratch.errors import InvalidArgument
from scratch.explore.look import Look

if TYPE_CHECKING:
    from scratch.tools.toolset import Toolset

Group = Literal["notes", "explore", "artifacts"]
GROUPS: frozenset[Group] = frozenset({"notes", "explore", "artifacts"})
Client = Literal["openai", "anthropic", "mcp"]
CLIENTS: tuple[Client, ...] = ("openai", "anthropic", "mcp")
MOST_NAMES = 64
"""Strings that a list argument may hold."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a verb. What is not ``required`` may be left out or null.

    ``kind`` is a JSON Schema type; ``strings`` stands for an array of strings.
    """

    name: str
    kind: Literal["string", "integer", "boolean", "strings"]
    description: str
    required: bool = False
    default: object = None
    least: int | None = None
    most: int | None = None
    """Told to the model; more is cut to it, and said."""

    def schema(self) -> dict[str, object]:
        """Its JSON Schema."""
        schema: dict[str, object] = {"type": self.kind, "description": self.description}
        if self.kind == "strings":
            schema |= {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_NAMES}
        bounds = {"default": self.default, "minimum": self.least, "maximum": self.most}
        return schema | {name: value for name, value in bounds.items() if value is not None}

    def check(self, value: object) -> object:
        """Return ``value`` when it is of the kind, strictly.

        Raises:
            InvalidArgument: it is not.
        """
        if self.kind == "integer":
            return windows.check_count(value, self.name, least=self.least or 0)
        if self.kind == "strings":
            return self._check_strings(value)
        wanted = bool if self.kind == "boolean" else str
        if not isinstance(value, wanted):
            msg = f"{self.name} must be a {self.kind}, not {_json_type(value)}"
            raise InvalidArgument(msg, argument=self.name)
        return value

    def _check_strings(self, value: object) -> list[str]:
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            msg = f'{self.name} must be an array of strings, such as ["id","name"]'
            raise InvalidArgument(msg, argument=self.name)
        if not 1 <= len(value) <= MOST_NAMES:
            msg = f"{self.name} must hold 1 to {MOST_NAMES} strings"
            raise InvalidArgument(msg, argument=self.name)
        return list(value)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its name without a prefix, what it does, its parameters, and what runs it."""

    name: str
    group: Group | None
    """None: in every set."""
    description: str
    parameters: tuple[Parameter, ...]
    handler: Callable[[Toolset, dict[str, Any], int], Awaitable[Look]]
    """Gets the checked arguments and the most bytes that an answer can have; what it cannot do, it raises."""
    writes: bool = False
    """Whether it changes what is stored."""
    instead: Callable[[Toolset, dict[str, Any], Mapping[str, object]], Awaitable[str]] | None = None
    """What is answered when it would be too large, for a verb with an answer of its own; gets the tokens and limits."""

    def input_schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {p.name: p.schema() for p in self.parameters},
            "required": [p.name for p in self.parameters if p.required],
            "additionalProperties": False,
        }

    def definition(self, client: Client, prefix: str) -> dict[str, object]:
        """The definition in the form that a client takes."""
        name, schema = prefix + self.name, self.input_schema()
        if client == "openai":
            function = {"name": name, "description": self.description, "parameters": schema}
            return {"type": "function", "function": function}
        key = "input_schema" if client == "anthropic" else "inputSchema"
        return {"name": name, "description": self.description, key: schema}

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
                shown = shown_name(name)
                msg = f"{shown!r} is no argument of {self.name}; it takes {', '.join(known)}"
                raise InvalidArgument(msg, argument=shown, known=known)
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


def shown_name(name: object) -> str:
    """What a model gave as a name, in an error: foreign code may fail to show itself, and a text be long."""
    return name[:64] if isinstance(name, str) else type(name).__name__


def _json_type(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
