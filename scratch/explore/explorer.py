"""The exploration tools on stored content: loads it, runs a tool in a thread, keeps what was looked at last."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scratch.content import BINARY
from scratch.entries import EntryInfo
from scratch.explore.grep import grep
from scratch.explore.jsontools import get_in, iterate_over
from scratch.explore.lines import head, slice_lines
from scratch.explore.look import Call, ExploreError, Look, TooLarge
from scratch.explore.navigate import open_path
from scratch.explore.outline import item_schema, schema
from scratch.explore.text import Text, shown
from scratch.run import RunScratch

_IN_THREAD_FROM = 64 * 1024
"""Bytes from which on a tool works in a thread."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A content that is in memory or about to be, and who may work on it."""

    loading: asyncio.Task[Text]
    lock: asyncio.Lock


class Explorer:
    """The eight tools over the handles of a scope and the artifacts of its run. Tasks of the loop may share it."""

    def __init__(self, run: RunScratch) -> None:
        self._run = run

    async def look(self, tool: str, arguments: dict[str, Any], room: int) -> Look:
        """Use a tool. ``arguments`` are checked and complete; ``room`` is how many bytes an answer can have at most.

        Raises:
            HandleNotFound: neither a live handle of this scope nor a live artifact of this run.
            ExploreError: the content has not what was asked for.
            TooLarge: the answer would need more room.
        """
        rest = dict(arguments)
        info = await self._run.find(rest.pop("handle"))
        work = _TOOLS[tool]
        if tool == "read" and info.size > room:
            raise TooLarge(info.size, _instead_of_read())
        text, lock = await self._open(info)
        async with lock:  # an index is built by one thread at a time
            if text.size < _IN_THREAD_FROM:
                found = work(text, rest, room, info)
            else:
                found = await asyncio.to_thread(work, text, rest, room, info)
        self._run.counters.read("explore", len(found.text.encode("utf-8", "surrogatepass")))
        return found

    async def line_count(self, info: EntryInfo) -> int:
        """How many lines a live entry has.

        Raises:
            HandleNotFound: it is gone.
        """
        text, lock = await self._open(info)
        async with lock:
            return await asyncio.to_thread(lambda: text.line_count)

    async def _open(self, info: EntryInfo) -> tuple[Text, asyncio.Lock]:
        key = (info.run_id, info.agent_id, info.kind, info.key, info.version, info.created_at, info.size)
        kept: _Kept | None = self._run.texts.get(key)
        if kept is None:
            # kept while it is loaded: calls that come meanwhile wait for the one load
            kept = _Kept(asyncio.create_task(self._load(info)), asyncio.Lock())
            kept.loading.add_done_callback(_heard)
            self._run.texts.put(key, kept, info.size)
        try:
            return await asyncio.shield(kept.loading), kept.lock
        except Exception:
            self._run.texts.drop(key)
            raise

    async def _load(self, info: EntryInfo) -> Text:
        if info.size == 0:
            return Text(b"")  # there is no empty mapping
        # piece by piece into a mapping: to join 50 MB would hold the GIL for as long as that takes
        data = mmap.mmap(-1, info.size)
        async for piece in self._run.pieces(info):
            data.write(piece)
        return Text(data)


def _heard(loading: asyncio.Task[Text]) -> None:
    """A load that fails is told to those who wait for it; there may be none left."""
    if not loading.cancelled():
        loading.exception()


def _read(text: Text, _arguments: dict[str, Any], room: int, info: EntryInfo) -> Look:
    if info.media_type == BINARY:
        raise ExploreError(
            "invalid_argument",
            "this content is not text; read_handle gives its bytes as base64",
            (Call("read_handle", {"offset": 0}),),
        )
    if text.size > room:
        raise TooLarge(text.size, _instead_of_read())
    if text.size == 0:
        return Look("", "the content is empty (0 bytes); do not retry")
    return Look(shown(text.read(0, text.size)), f"all {text.size:,} bytes", _instead_of_read())


def _instead_of_read() -> tuple[Call, ...]:
    return (Call("schema", {}), Call("head", {"lines": 50}), Call("read_handle", {"offset": 0, "length": 4_096}))


def _on_lines(tool: Callable[..., Look]) -> Callable[[Text, dict[str, Any], int, EntryInfo], Look]:
    """A tool that works on the lines of the content, or of the string at ``path``."""

    def work(text: Text, arguments: dict[str, Any], room: int, _info: EntryInfo) -> Look:
        rest = dict(arguments)
        path = rest.pop("path")
        if path is None:
            return tool(text, **rest, room=room)
        inner, where = open_path(text, path)
        # what to try instead works on the same string
        try:
            found = tool(inner, **rest, room=room)
        except TooLarge as error:
            raise TooLarge(error.estimated_bytes, _with_path(error.smaller, path)) from None
        except ExploreError as error:
            error.suggestions = _with_path(error.suggestions, path)
            raise
        return Look(found.text, f"{where}: {found.covered}", _with_path(found.smaller, path))

    return work


def _with_path(calls: tuple[Call, ...], path: str) -> tuple[Call, ...]:
    return tuple(
        Call(call.tool, {**call.arguments, "path": path}) if call.tool in ("head", "slice", "grep") else call
        for call in calls
    )


def _on_json(tool: Callable[..., Look]) -> Callable[[Text, dict[str, Any], int, EntryInfo], Look]:
    def work(text: Text, arguments: dict[str, Any], room: int, _info: EntryInfo) -> Look:
        return tool(text, **arguments, room=room)

    return work


_TOOLS: dict[str, Callable[[Text, dict[str, Any], int, EntryInfo], Look]] = {
    "head": _on_lines(head),
    "slice": _on_lines(slice_lines),
    "grep": _on_lines(grep),
    "schema": _on_json(schema),
    "item_schema": _on_json(item_schema),
    "get_in": _on_json(get_in),
    "iterate_over": _on_json(iterate_over),
    "read": _read,
}
