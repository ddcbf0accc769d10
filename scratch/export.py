"""A run's artifacts as files, for people and for other programs; its notes and results when they are asked for."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import TypeVar

from scratch.artifacts import iteration_of
from scratch.content import BINARY, JSON
from scratch.entries import EntryInfo, Kind, check_name
from scratch.errors import HandleNotFound, ScratchError
from scratch.store import ScratchStore

T = TypeVar("T")

_MOST_NAME_BYTES = 120
_MOST_EXTENSION = 16
_OTHERS = re.compile(r"[^\w.-]+")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
"""Names that are no files on Windows."""
_TRIES = 3
"""How often an entry that is replaced while it is written is written anew."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

FilePath = tuple[str, ...]
"""Folders and a file's name, below the run's folder."""


class ExportError(ScratchError):
    """The export was not made: there is something in its place, or it cannot be written."""

    code = "export_failed"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """An entry and its file: ``path`` is relative to the run's folder, ``size`` is bytes."""

    path: str
    kind: Kind
    agent_id: str
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written, or with ``dry_run`` would be. ``gone`` are the keys of what was deleted meanwhile."""

    run_id: str
    folder: str
    """The run's folder; it is not made when there is nothing to write."""
    files: tuple[ExportedFile, ...]
    size: int
    """Bytes."""
    gone: tuple[str, ...]
    left_out: int
    """Live notes and results that were not asked for."""
    dry_run: bool


async def export_run(
    store: ScratchStore,
    run_id: str,
    to: Path,
    *,
    agent_id: str | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> ExportReport:
    """Write the live artifacts of a run as files below ``to/<run>``: all of them, or nothing.

    ``artifacts/`` and ``iteration-<n>/scratchpad/`` hold the artifacts, ``notes/`` and ``handles/`` the rest (in a
    folder for each agent where there are several). Names are made safe; folders are 0700, files 0600; no link is
    followed. Memory holds 1 MiB of an entry at a time. Killed, it leaves a folder ``.<run>.part-…``.

    Args:
        store: Open, for reading is enough.
        run_id: The run.
        to: A folder; made when it is not there.
        agent_id: Only what this agent wrote.
        everything: Notes and results too, which nobody wrote for others to read.
        dry_run: Say what would be written; touch nothing.

    Raises:
        RunNotFound: there is no such run.
        ExportError: there is something in the place of the run's folder, or a file cannot be written.
        InvalidArgument: a bad id.
    """
    if agent_id is not None:
        check_name(agent_id, "agent_id")
    entries = await store.list_scratch_entries_for_run(run_id)
    entries = [info for info in entries if agent_id in (None, info.agent_id)]
    chosen = [info for info in entries if everything or info.kind is Kind.ARTIFACT]
    planned = plan_files(chosen)
    name = safe_name(run_id)
    files = [_exported(path, info) for path, info in planned]
    gone: list[str] = []
    try:
        await _in_thread(partial(_check_place, to, name))
        if planned and not dry_run:
            files, gone = await _write_all(store, planned, to, name)
    except OSError as error:
        msg = f"the export to {to / name} cannot be written: {error.strerror or error}"
        raise ExportError(msg, path=str(to / name)) from error
    size, left_out = sum(file.size for file in files), len(entries) - len(chosen)
    return ExportReport(run_id, str(to / name), tuple(files), size, tuple(gone), left_out, dry_run)


def plan_files(entries: Iterable[EntryInfo]) -> list[tuple[FilePath, EntryInfo]]:
    """Where each entry goes: safe, and different also where upper and lower case are one."""
    entries = list(entries)
    several = len({info.agent_id for info in entries if info.kind is not Kind.ARTIFACT}) > 1
    taken: set[str] = set()
    planned = []
    for info in entries:
        folder = _folder(info, several=several)
        name = safe_name(info.key)
        if info.kind is Kind.HANDLE:
            name += ".bin" if info.media_type == BINARY else ".json" if info.media_type == JSON else ".txt"
        number = 1
        path = (*folder, name)
        while "/".join(path).casefold() in taken:
            number += 1
            path = (*folder, _with_suffix(name, str(number)))
        taken.add("/".join(path).casefold())
        planned.append((path, info))
    return planned


def _folder(info: EntryInfo, *, several: bool) -> FilePath:
    if info.kind is Kind.ARTIFACT:
        iteration = iteration_of(info.key)
        return ("artifacts",) if iteration is None else (f"iteration-{iteration}", "scratchpad")
    kind = "notes" if info.kind is Kind.NOTE else "handles"
    return (kind, safe_name(info.agent_id)) if several else (kind,)


def safe_name(text: str) -> str:
    """``text`` as the name of a file or folder anywhere; where that changes it, with a short hash of what it was."""
    name = _OTHERS.sub("-", unicodedata.normalize("NFC", text)).strip(".-")
    if _DEVICES.fullmatch(name):
        name = f"_{name}"
    name = name.encode()[:_MOST_NAME_BYTES].decode("utf-8", "ignore").rstrip(".-") or "unnamed"
    return name if name == text else _with_suffix(name, hashlib.sha256(text.encode()).hexdigest()[:8])


def _with_suffix(name: str, suffix: str) -> str:
    """``name`` with something more before its extension."""
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension) > _MOST_EXTENSION:
        return f"{name}-{suffix}"
    return f"{stem}-{suffix}{dot}{extension}"


def _exported(path: FilePath, info: EntryInfo) -> ExportedFile:
    return ExportedFile("/".join(path), info.kind, info.agent_id, info.key, info.size)


async def _write_all(
    store: ScratchStore, planned: list[tuple[FilePath, EntryInfo]], to: Path, name: str
) -> tuple[list[ExportedFile], list[str]]:
    """Write the files; return them, and the keys of the entries that are gone."""
    files: list[ExportedFile] = []
    gone: list[str] = []
    target = _Target(to, name)
    try:
        await _in_thread(target.open)
        for path, info in planned:
            written = await _write_entry(store, info, target, path)
            if written is None:
                gone.append(info.key)
            else:
                files.append(_exported(path, written))
        if files:
            await _in_thread(target.finish)
    finally:
        await _in_thread(target.close)
    return files, gone


async def _write_entry(store: ScratchStore, info: EntryInfo, target: _Target, path: FilePath) -> EntryInfo | None:
    """Write an entry to a new file; return it as it was written, None when it is gone."""
    for _ in range(_TRIES):
        if await _write_version(store, info, target, path):
            return info
        await _in_thread(partial(target.remove, path))
        listed = await store.list_scratch_entries_for_run(info.run_id)
        found = [one for one in listed if _place(one) == _place(info)]
        if not found:
            return None
        info = found[0]
    msg = f"{info.key!r} was replaced again and again while it was written; try again"
    raise ExportError(msg, key=info.key)


def _place(info: EntryInfo) -> tuple[Kind, str, str]:
    """What stays the same when an entry is replaced: for an artifact, by any agent."""
    return info.kind, info.key, "" if info.kind is Kind.ARTIFACT else info.agent_id


async def _write_version(store: ScratchStore, info: EntryInfo, target: _Target, path: FilePath) -> bool:
    """Write an entry as ``info`` describes it; False when it is not like that any more."""
    scope = await store.run(info.run_id, agent_id=info.agent_id)
    file = await _in_thread(partial(target.make_file, path))
    try:
        async with aclosing(scope.pieces(info)) as pieces:
            async for piece in pieces:
                await _in_thread(partial(file.write, piece))
    except HandleNotFound:
        return False
    finally:
        await _in_thread(file.close)
    return True


async def _in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread, to its end also when cancelled: nobody may close what it still writes to."""
    future = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


def _check_place(to: Path, name: str) -> None:
    """Look whether the export can be made there; touch nothing.

    Raises:
        ExportError: there is something in its place.
        OSError: that cannot be seen.
    """
    for folder, may_hold in ((to, True), (to / name, False)):
        try:
            mode = folder.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "no folder"
            msg = f"{folder} is {what}: choose another place"
            raise ExportError(msg, path=str(folder))
        if not may_hold and any(folder.iterdir()):
            raise _taken(folder)


def _taken(folder: Path) -> ExportError:
    msg = f"{folder} is there already: remove it, or choose another place"
    return ExportError(msg, path=str(folder))


class _Target:
    """The folder that an export is written to; it gets its name when all is in it. One thread at a time.

    Everything goes through descriptors of folders, so that nobody can lead it elsewhere by exchanging one for a link.
    """

    def __init__(self, to: Path, name: str) -> None:
        self._to = to
        self._name = name
        self._part = f".{name}.part-{secrets.token_hex(4)}"
        self._parent: int | None = None
        self._folder: int | None = None

    def open(self) -> None:
        """Make the folder, under a name for the time being."""
        for folder in reversed([folder for folder in (self._to, *self._to.parents) if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._parent = os.open(self._to, _FOLDER)
        os.mkdir(self._part, 0o700, dir_fd=self._parent)
        self._folder = os.open(self._part, _FOLDER, dir_fd=self._parent)

    def make_file(self, path: FilePath) -> BufferedWriter:
        """A new file, in folders that are made when they are missing."""
        folder = self._open_folder(path[:-1])
        try:
            return os.fdopen(os.open(path[-1], _NEW_FILE, 0o600, dir_fd=folder), "wb")
        finally:
            os.close(folder)

    def remove(self, path: FilePath) -> None:
        """Delete a file."""
        folder = self._open_folder(path[:-1])
        try:
            os.unlink(path[-1], dir_fd=folder)
        finally:
            os.close(folder)

    def _open_folder(self, path: FilePath) -> int:
        assert self._folder is not None
        folder = os.dup(self._folder)
        for name in path:
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
                inner = os.open(name, _FOLDER, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder

    def finish(self) -> None:
        """Give the folder its name.

        Raises:
            ExportError: something has come to be in its place.
        """
        try:
            os.rename(self._part, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise _taken(self._to / self._name) from error
            raise
        self._part = ""

    def close(self) -> None:
        """Delete what was not finished."""
        if self._folder is not None:
            os.close(self._folder)
            if self._part:
                shutil.rmtree(self._part, ignore_errors=True, dir_fd=self._parent)
        if self._parent is not None:
            os.close(self._parent)
