"""What one agent does in one run: capture results, read them back, keep notes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, overload

from scratch import windows
from scratch.budget import ScratchpadUsage
from scratch.cache import SizedCache
from scratch.capturing import (
    Captured,
    count_tokens,
    joined,
    last_resort,
    off_loop_if_heavy,
    prepare,
    read_observed,
    storable,
)
from scratch.clock import Clock, expiry_ms, now_ms
from scratch.content import Content, read_content
from scratch.database import Database, Limits, NewEntry
from scratch.entries import (
    MAX_NOTE_BYTES,
    Entry,
    EntryInfo,
    Kind,
    Scope,
    check_note_key,
    looks_like_handle,
)
from scratch.errors import InvalidArgument, LimitExceeded, NoteNotFound
from scratch.preview import make_preview
from scratch.reader import Reader, not_found
from scratch.spill import (
    Observation,
    SpillDecision,
    SpillPolicy,
    Stub,
)
from scratch.usage import UsageBook
from scratch.windows import Matches, Window

logger = logging.getLogger("scratch")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What every scope of a store shares. ``ttl`` is seconds."""

    policy: SpillPolicy
    limits: Limits
    ttl: float
    clock: Clock
    usage: UsageBook
    texts: SizedCache[Any]
    """What the exploration tools looked at last."""


class RunScratch:
    """The scratch of one agent in one run; get it from :meth:`ScratchStore.run <scratch.ScratchStore.run>`.

    Tasks of the store's event loop may share it; threads and processes may not. Every method but ``capture`` raises
    :class:`~scratch.StoreError` kinds when the store cannot do it.
    """

    def __init__(self, database: Database, scope: Scope, settings: RunSettings) -> None:
        self._database = database
        self._scope = scope
        self._settings = settings
        self.counters = database.counters
        """What the store counts, for the layers above."""
        self._reader = Reader(database, scope, settings.clock)

    @property
    def run_id(self) -> str:
        """The run."""
        return self._scope.run_id

    @property
    def agent_id(self) -> str:
        """The agent."""
        return self._scope.agent_id

    @property
    def policy(self) -> SpillPolicy:
        """How this scope decides what to spill."""
        return self._settings.policy

    @property
    def texts(self) -> SizedCache[Any]:
        """What the exploration tools of this store looked at last."""
        return self._settings.texts

    @property
    def usage(self) -> ScratchpadUsage:
        """What this scope has kept out of the context and given into it, since it was opened."""
        return self._settings.usage.get(self._scope)

    def count_call(self, tokens: int) -> None:
        """Count a tool's answer of so many tokens."""
        self._settings.usage.add(self._scope, calls=1, tokens_extracted=tokens)

    def close(self) -> None:
        """This agent is done with the run: its usage, if there was any, goes to ``on_usage``. What it stored stays."""
        self._settings.usage.close(self._scope.run_id, self._scope.agent_id)

    def with_policy(self, policy: SpillPolicy) -> RunScratch:
        """The same scope under another policy."""
        return RunScratch(self._database, self._scope, replace(self._settings, policy=policy))

    def _now(self) -> int:
        return now_ms(self._settings.clock)

    def _expiry(self, now: int, ttl: float | timedelta | None, expires_at: datetime | None) -> int:
        return expiry_ms(now, ttl=ttl, expires_at=expires_at, default_ttl=self._settings.ttl)

    # --- results

    async def capture(
        self,
        observation: Observation,
        *,
        ttl: float | timedelta | None = None,
        expires_at: datetime | None = None,
    ) -> Captured:
        """Take a tool's result: keep it in context, or store it and give the stub in its place.

        Whatever goes wrong with storing it, the whole content comes back, ``decision.reason`` is ``store_failed``, and
        the error is logged. A stub is returned only after the content was committed.

        Args:
            observation: The result.
            ttl: How long it lives when stored: seconds or a timedelta; the store's default when None.
            expires_at: Until when, instead of ``ttl``: a datetime with a time zone.

        Raises:
            InvalidArgument: not an Observation, or a bad ``ttl`` or ``expires_at``.
        """
        if not isinstance(observation, Observation):
            msg = f"capture takes an Observation, not {type(observation).__name__}: Observation(content=…, tool=…)"
            raise InvalidArgument(msg, argument="observation")
        now = self._now()
        expires = self._expiry(now, ttl, expires_at)
        try:
            content = await off_loop_if_heavy(observation.content, lambda: read_observed(observation.content))
        except Exception:
            logger.exception("a result of tool %r was kept in context: it has no text form", observation.tool)
            decision = SpillDecision(spill=False, reason="not_serializable")
            self.counters.captured(decision.reason)
            return Captured(last_resort(observation.content), None, decision, observation)
        try:
            if self.policy.token_threshold(observation.tool_name) is None:
                prepared = await off_loop_if_heavy(content.body, lambda: prepare(observation, content, self.policy))
            else:  # tokens may be counted, and a vocabulary loaded for that
                prepared = await asyncio.to_thread(prepare, observation, content, self.policy)
            decision = prepared.decision
            if prepared.stub is not None:
                await self._insert(observation, content, prepared.stub, prepared.tokens, now, expires)
                stub = prepared.stub.to_json()
                self.counters.captured(decision.reason, content.size - len(stub.encode("utf-8", "surrogatepass")))
                return Captured(stub, prepared.stub.handle, decision, observation)
        except Exception:
            logger.exception(
                "a result of tool %r (%s bytes) could not be stored and was kept in context: run %r, agent %r",
                observation.tool,
                content.size,
                self.run_id,
                self.agent_id,
            )
            decision = SpillDecision(spill=False, reason="store_failed")
        self.counters.captured(decision.reason)
        text = await off_loop_if_heavy(content.body, content.text)
        return Captured(text, None, decision, observation)

    async def _insert(
        self, observation: Observation, content: Content, stub: Stub, tokens: int | None, now: int, expires: int
    ) -> None:
        new = NewEntry(
            scope=self._scope,
            kind=Kind.HANDLE,
            key=stub.handle,
            content=content,
            tokens=tokens,
            preview=stub.preview,
            source_tool=storable(observation.tool_name) or None,
            now=now,
            expires_at=expires,
        )
        await self._database.insert_entry(new, self._settings.limits)
        self._settings.usage.add(self._scope, spills=1, tokens_intercepted=tokens or 0)

    @overload
    async def read_handle(self, handle: str, *, offset: int = 0, length: int = windows.DEFAULT_LENGTH) -> Window: ...

    @overload
    async def read_handle(
        self,
        handle: str,
        *,
        match: str,
        ignore_case: bool = False,
        context: int = windows.DEFAULT_CONTEXT,
        max_windows: int = windows.DEFAULT_WINDOWS,
        offset: int = 0,
    ) -> Matches: ...

    async def read_handle(
        self,
        handle: str,
        *,
        offset: int = 0,
        length: int = windows.DEFAULT_LENGTH,
        match: str | None = None,
        ignore_case: bool = False,
        context: int = windows.DEFAULT_CONTEXT,
        max_windows: int = windows.DEFAULT_WINDOWS,
    ) -> Window | Matches:
        """Read a stored result: a byte range, or with ``match`` the surroundings of each place where that text stands.

        Args:
            handle: From a stub; or the name of an artifact of this run.
            offset: First byte, from 0; at or past the end gives an empty window with ``eof``. With ``match``: where the
                search starts.
            length: Bytes, 1 to 32,768; more is cut to that, and said in ``note``.
            match: Literal text to find, 1 to 1,024 bytes. The whole content is searched, whatever is shown.
            ignore_case: Compare in lower case, character by character.
            context: Bytes shown on either side of a match, at most 4,096.
            max_windows: Windows shown, at most 50; those that touch count as one.

        Raises:
            HandleNotFound: no live handle of that name in this scope, and no live artifact in its run.
            InvalidArgument: an argument is not of its kind (a bool, a float or a number as text is no integer).
        """
        offset = windows.check_count(offset, "offset", least=0)
        if match is None:
            length, note = windows.clamp(length, "length", least=1, most=windows.MAX_LENGTH)
            return await self._reader.window(handle, offset, length, note)
        match = windows.check_pattern(match)
        if not isinstance(ignore_case, bool):
            msg = "ignore_case must be true or false"
            raise InvalidArgument(msg, argument="ignore_case")
        context, note = windows.clamp(context, "context", least=0, most=windows.MAX_CONTEXT)
        max_windows, more = windows.clamp(max_windows, "max_windows", least=1, most=windows.MAX_WINDOWS)
        note = " ".join(part for part in (note, more) if part) or None
        return await self._reader.matches(handle, offset, match, context, max_windows, note, ignore_case=ignore_case)

    async def find(self, name: str) -> EntryInfo:
        """A live handle of this scope, or a live artifact of its run, without its content.

        Raises:
            HandleNotFound: there is neither.
        """
        return await self._reader.find(name)

    def pieces(self, info: EntryInfo) -> AsyncGenerator[bytes, None]:
        """The content of a live entry in pieces of 1 MiB, which add up to ``info.size``.

        Raises (while it is walked over):
            HandleNotFound: it has expired, or was deleted or replaced, meanwhile.
        """
        return self._reader.pieces(info)

    # --- artifacts

    async def write_artifact(
        self,
        name: str,
        value: object,
        *,
        replace: bool = True,
        source_tool: str | None = None,
        ttl: float | timedelta | None = None,
    ) -> int | None:
        """Write a document that every agent of the run can read by ``name``; return its version. One atomic step.

        Args:
            name: 1 to 256 bytes of printable text that is no handle's form.
            value: Text, bytes or what JSON can express.
            replace: Whoever wrote the one of that name, this takes its place. False: write nothing and return None
                when there is one.
            source_tool: The tool whose output it is.
            ttl: Seconds or a timedelta that it lives from now; the store's default when None.

        Raises:
            LimitExceeded: the artifact, or the run with it, would be too large.
            InvalidArgument: a bad argument.
        """
        name = check_note_key(name)
        now = self._now()
        expires = self._expiry(now, ttl, None)

        def new_artifact() -> NewEntry:
            content = read_content(value)
            return NewEntry(
                scope=self._scope,
                kind=Kind.ARTIFACT,
                key=name,
                content=content,
                tokens=count_tokens(content),
                preview=make_preview(content),
                source_tool=None if source_tool is None else storable(source_tool) or None,
                now=now,
                expires_at=expires,
            )

        try:
            new = await off_loop_if_heavy(value, new_artifact)
        except Exception as error:
            msg = f"an artifact is text, bytes or what JSON can express: {error}"
            raise InvalidArgument(msg, argument="value") from error
        version = await self._database.write_artifact(new, self._settings.limits, replace=replace)
        if version is not None:
            self.counters.values["artifacts_written"] += 1
        return version

    # --- notes

    async def write(
        self,
        key: str,
        value: object,
        *,
        ttl: float | timedelta | None = None,
        expires_at: datetime | None = None,
        if_version: int | None = None,
        append: bool = False,
    ) -> int:
        """Write a note; return its new version (1 for a new one). One atomic step, from any number of writers.

        Args:
            key: 1 to 256 bytes of printable text. ``%`` and ``_`` are plain characters.
            value: Text, bytes or what JSON can express, up to 1 MiB stored.
            ttl: Seconds or a timedelta that it lives from now; the store's default when None.
            expires_at: Until when, instead of ``ttl``: a datetime with a time zone.
            if_version: Write only when the live note has this version; 0 for "there is none".
            append: Add to the end of the note that is there; its life is never shortened by that.

        Raises:
            VersionConflict: ``if_version`` is stale; the error carries the current one.
            LimitExceeded: the note, or the run with it, would be too large.
            InvalidArgument: a bad argument.
        """
        key = check_note_key(key)
        if if_version is not None:
            windows.check_count(if_version, "if_version", least=0)
        now = self._now()
        expires = self._expiry(now, ttl, expires_at)
        try:
            content = await off_loop_if_heavy(value, lambda: read_content(value))
        except Exception as error:
            msg = f"a note is text, bytes or what JSON can express: {error}"
            raise InvalidArgument(msg, argument="value") from error
        new = self._note(key, content, now, expires)

        def longer(info: EntryInfo, held: bytes) -> NewEntry:
            return self._note(key, joined(info, held, content), now, max(info.expires_at, expires))

        version = await self._database.write_note(
            new, self._settings.limits, if_version=if_version, append_to=longer if append else None
        )
        self.counters.values["note_writes"] += 1
        return version

    def _note(self, key: str, content: Content, now: int, expires: int) -> NewEntry:
        if content.size > MAX_NOTE_BYTES:
            msg = f"a note holds at most {MAX_NOTE_BYTES:,} bytes, not {content.size:,}; use several keys"
            raise LimitExceeded(msg, limit="max_note_bytes", size=content.size, most=MAX_NOTE_BYTES)
        return NewEntry(
            scope=self._scope,
            kind=Kind.NOTE,
            key=key,
            content=content,
            tokens=count_tokens(content),
            preview=make_preview(content),
            source_tool=None,
            now=now,
            expires_at=expires,
        )

    async def read(self, key: str) -> Entry:
        """A live note, whole.

        Raises:
            NoteNotFound: there is none under that key.
            InvalidArgument: a bad key.
        """
        key = check_note_key(key)
        found = await self._database.get_entry(self._scope, Kind.NOTE, key, self._now())
        if found is None:
            raise self.counters.missed(_no_note(key))
        entry = Entry(*found)
        self.counters.read("note", len(entry.content))
        return entry

    async def list(
        self, *, prefix: str = "", limit: int = 100, after: str = "", kind: Kind = Kind.NOTE
    ) -> list[EntryInfo]:
        """Live notes by key, or handles or the run's artifacts by name, without their content.

        Args:
            prefix: Only keys that start with it; ``%`` and ``_`` are plain characters.
            limit: At most so many, 1 to 1,000.
            after: Go on after this key: the last one of the page before.
            kind: ``Kind.NOTE``, ``Kind.HANDLE``, or ``Kind.ARTIFACT`` for those of all agents of the run.

        Raises:
            InvalidArgument: a bad argument.
        """
        limit = windows.check_count(limit, "limit", least=1, most=1_000)
        for name, value in (("prefix", prefix), ("after", after)):
            if not isinstance(value, str) or not value.isprintable():
                msg = f"{name} must be printable text"
                raise InvalidArgument(msg, argument=name)
        if not isinstance(kind, Kind):
            msg = "kind must be a Kind, such as Kind.NOTE"
            raise InvalidArgument(msg, argument="kind")
        return await self._database.list_scope(self._scope, kind, self._now(), prefix=prefix, after=after, limit=limit)

    async def delete(self, key: str) -> bool:
        """Delete a live note, or a handle; whether there was one. ``%`` and ``_`` are plain characters.

        Raises:
            InvalidArgument: a bad key.
        """
        if not (isinstance(key, str) and looks_like_handle(key)):
            key = check_note_key(key)
        return await self._database.delete_entry(self._scope, key, self._now())

    async def renew(self, key: str, ttl: float | timedelta) -> datetime:
        """Prolong a live note or handle to ``ttl`` from now; return when it expires. Never shortens.

        Raises:
            HandleNotFound, NoteNotFound: it is unknown or has expired: what is expired does not come back.
            InvalidArgument: a bad key or ttl.
        """
        is_handle = isinstance(key, str) and looks_like_handle(key)
        if not is_handle:
            key = check_note_key(key)
        now = self._now()
        expires = await self._database.renew(self._scope, key, now, self._expiry(now, ttl, None))
        if expires is None:
            raise self.counters.missed(not_found(key) if is_handle else _no_note(key))
        return datetime.fromtimestamp(expires / 1000, UTC)


def _no_note(key: str) -> NoteNotFound:
    return NoteNotFound(f"there is no live note under {key!r}; list the notes, or write it", key=key)
