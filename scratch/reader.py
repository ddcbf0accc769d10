"""Reading what is stored: windows, matches and pieces of a handle of a scope, or of an artifact of its run."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from scratch import windows
from scratch.clock import Clock, now_ms
from scratch.content import BINARY
from scratch.database import Database
from scratch.entries import EntryInfo, Kind, Scope, check_name, looks_like_handle
from scratch.errors import HandleNotFound, InvalidArgument
from scratch.windows import Matches, MatchScan, Window

_PIECE = 1024 * 1024
_TRIES = 3
"""How often a search begins anew when what it searches was replaced meanwhile."""
_GONE = "no live handle {!r} here: it is unknown or has expired; run the tool again, do not retry"


class Reader:
    """Reads for one scope. Tasks of the store's loop may share it. What is not live is :class:`HandleNotFound`."""

    def __init__(self, database: Database, scope: Scope, clock: Clock) -> None:
        self._database = database
        self._counters = database.counters
        self._scope = scope
        self._clock = clock

    def _now(self) -> int:
        return now_ms(self._clock)

    def _target(self, name: object) -> tuple[Kind, str]:
        """What a handle's, or an artifact's, name stands for.

        What can be no name is looked for as well, as one that nothing has: it costs what an unknown one costs.
        """
        try:
            name = check_name(name, "handle")
        except InvalidArgument:
            return Kind.HANDLE, ""
        return (Kind.HANDLE if looks_like_handle(name) else Kind.ARTIFACT), name

    async def window(self, name: object, offset: int, length: int, note: str | None) -> Window:
        """The bytes of ``[offset, offset + length)``, checked numbers."""
        target = self._target(name)
        start = max(0, offset - windows.MARGIN)
        found = await self._database.read_range(
            self._scope, *target, self._now(), start, offset + length + windows.MARGIN
        )
        if found is None:
            raise self._counters.missed(not_found(name))
        size, media_type, data = found
        window = windows.cut_window(
            data, start, offset=offset, length=length, size=size, binary=media_type == BINARY, note=note
        )
        self._counters.read("window", window.end - window.offset)
        return window

    async def matches(
        self,
        name: object,
        offset: int,
        match: str,
        context: int,
        max_windows: int,
        note: str | None,
        *,
        ignore_case: bool,
    ) -> Matches:
        """Where ``match`` stands from ``offset`` on, checked arguments."""
        target = self._target(name)
        for _ in range(_TRIES):
            now = self._now()
            info = await self._database.get_info(self._scope, *target, now)
            if info is None:
                break
            search = MatchScan(
                match,
                ignore_case=ignore_case,
                offset=offset,
                size=info.size,
                binary=info.media_type == BINARY,
                shown=windows.MAX_MATCHES_SHOWN,
            )
            found = await self._search(info, search, context, max_windows, note, now)
            # it can be deleted at any time while it is searched, and an artifact be replaced
            if found is not None and (info.kind is Kind.HANDLE or await self._is_current(info)):
                self._counters.read("matches", sum(window.end - window.offset for window in found.windows))
                return found
        raise self._counters.missed(not_found(name))

    async def _search(
        self, info: EntryInfo, search: MatchScan, context: int, max_windows: int, note: str | None, now: int
    ) -> Matches | None:
        """What ``search`` finds; None when the entry changed meanwhile."""
        searched_bytes = 0 if search.next_start is None else info.size - search.next_start
        if not await self._database.scan(self._scope, info.kind, info.key, now, search):
            return None
        planned, next_offset = windows.plan_windows(
            search.found, context=context, max_windows=max_windows, size=info.size
        )
        ranges = [(max(0, start - windows.MARGIN), end + windows.MARGIN) for start, end, _ in planned]
        texts = await self._database.read_ranges(self._scope, info.kind, info.key, now, ranges)
        if texts is None:
            return None
        binary = info.media_type == BINARY
        return Matches(
            windows=tuple(
                windows.cut_match_window(data, max(0, plan[0] - windows.MARGIN), plan, size=info.size, binary=binary)
                for plan, data in zip(planned, texts, strict=True)
            ),
            total_matches=search.total,
            searched_bytes=searched_bytes,
            size=info.size,
            complete=next_offset is None,
            next_offset=next_offset,
            encoding="base64" if binary else "utf-8",
            note=note,
        )

    async def _is_current(self, info: EntryInfo) -> bool:
        """Whether an entry is live and as it was: a version is never written twice."""
        found = await self._database.get_info(self._scope, info.kind, info.key, self._now())
        return found is not None and (found.version, found.created_at) == (info.version, info.created_at)

    async def find(self, name: object) -> EntryInfo:
        """A live handle of this scope, or a live artifact of its run, without its content.

        Raises:
            HandleNotFound: there is neither.
        """
        info = await self._database.get_info(self._scope, *self._target(name), self._now())
        if info is None:
            raise self._counters.missed(not_found(name))
        return info

    async def pieces(self, info: EntryInfo) -> AsyncGenerator[bytes, None]:
        """The content of a live entry in pieces of 1 MiB, which add up to ``info.size``.

        Raises:
            HandleNotFound: it has expired, or was deleted or replaced, meanwhile.
        """
        for start in range(0, info.size, _PIECE):
            found = await self._database.read_range(
                self._scope, info.kind, info.key, self._now(), start, start + _PIECE
            )
            if found is None or found[0] != info.size:
                raise self._counters.missed(not_found(info.key))
            yield found[2]
        # two versions can be of one size, and the pieces of both
        if info.kind is not Kind.HANDLE and not await self._is_current(info):
            raise self._counters.missed(not_found(info.key))


def not_found(name: object) -> HandleNotFound:
    """What is said of a handle that is unknown, foreign, malformed or expired: always the same."""
    shown = name[:64] if isinstance(name, str) else type(name).__name__
    return HandleNotFound(_GONE.format(shown), handle=shown)
