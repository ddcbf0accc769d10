"""Artifacts: documents that the agents of one run hand to each other by name.

Names are made here, so that what the coordinator writes, workers' results and tools' outputs never take each other's
place; then writing, finding and listing them, and the texts about them for planners and workers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from scratch.content import PIECE
from scratch.entries import EntryInfo, Kind
from scratch.errors import HandleNotFound, InvalidArgument
from scratch.jsontext import dumps
from scratch.run import RunScratch
from scratch.windows import check_count, is_boundary

logger = logging.getLogger("scratch")

RESULT_BYTES = 4_000
"""A worker's result of more bytes is saved."""
RESULT_HEAD_BYTES = 2_000
"""What its reader still gets at once."""
OUTPUT_BYTES = 500
"""A tool's output of more bytes is saved."""
OUTPUT_SECONDS = 5.0
"""As is that of a tool that took longer."""
LISTED = 40
"""Names that an answer lists."""

_PREFIX = "coordinator-"
_MOST_NAME_BYTES = 128
_MOST_READ = 64 * 1024
"""Characters of a name; what follows counts in its hash only."""
_MOST_EXTENSION = 32
_MOST_PART = 40
_OTHERS = re.compile("[^a-z0-9]+")
_EXTENSION = re.compile("[a-z0-9]+")
_ITERATION = re.compile("-iter-([0-9]{1,19})-")
_HASH = re.compile("[0-9a-f]{10}")
_NUMBERED = 9
_PAGE = 1_000
_COMPARED = 256
"""Characters of a name that are compared."""
_IN_THREAD_FROM = 500
"""Names from which on they are compared in a thread."""
_WANTED = 10
"""Missing names to which the closest are looked for."""


# --- names


def coordinator_name(filename: str) -> str:
    """The name under which the coordinator's document ``filename`` is stored: at most 128 bytes of ``a-z0-9-.``.

    Applied to its own result it changes nothing. Names that differ only in what is no letter or digit are one name,
    but for those that had to be cut.
    """
    stem, dot, extension = filename.rpartition(".")
    extension = extension.lower() if extension.isascii() else ""
    if not (dot and stem.strip(".") and len(extension) <= _MOST_EXTENSION and _EXTENSION.fullmatch(extension)):
        stem, extension = filename, "txt"
    safe = _safe(stem[:_MOST_READ]) or "unknown"
    name = safe if safe.startswith(_PREFIX) else _PREFIX + safe
    room = _MOST_NAME_BYTES - len(extension) - 1
    if len(name) > room or len(stem) > _MOST_READ:
        name = f"{name[: room - 13]}-{_digest(filename, 12)}"
    return f"{name}.{extension}"


def result_name(task: str | int, worker: str, iteration: int) -> str:
    """The name of a worker's result: ``task-<id>-<worker>-iter-<n>-result.txt``.

    Different arguments never give one name: where a part cannot stand as it is, or the name could be read in two ways,
    a short hash of all parts comes before the last word.

    Raises:
        InvalidArgument: ``iteration`` is not an integer of 0 or more.
    """
    return f"{_attempt(task, worker, iteration)}-result.txt"


def output_name(task: str | int, worker: str, iteration: int, tool: str, call: str | int) -> str:
    """The name of a tool's output: ``task-<id>-<worker>-iter-<n>-<tool>-<call>-output.txt``, as :func:`result_name`.

    Raises:
        InvalidArgument: ``iteration`` is not an integer of 0 or more.
    """
    return f"{_attempt(task, worker, iteration, tool, call)}-output.txt"


def _attempt(task: str | int, worker: str, iteration: int, *rest: str | int) -> str:
    check_count(iteration, "iteration", least=0)
    parts = [str(part) for part in (task, worker, *rest)]
    safe = [_safe(part[: _MOST_PART * 4])[:_MOST_PART].strip("-") or "unknown" for part in parts]
    # A plain name is read in one way: a task without a hyphen, a worker up to the first "-iter-<n>-", a tool, a call
    # without a hyphen, which is no hash.
    plain = (
        parts == safe
        and "-" not in safe[0]
        and not _ITERATION.search(f"-{safe[1]}-")
        and (not rest or ("-" not in safe[-1] and not _HASH.fullmatch(safe[-1])))
    )
    end = [] if plain else [_digest(json.dumps([*parts, iteration]), 10)]
    return "-".join(["task", *safe[:2], "iter", str(iteration), *safe[2:], *end])


def iteration_of(name: str) -> int | None:
    """The iteration that an artifact's name tells; None for what belongs to none, as the coordinator's documents do."""
    found = None if name.startswith(_PREFIX) else _ITERATION.search(name)
    return None if found is None else int(found[1])


def _safe(text: str) -> str:
    return _OTHERS.sub("-", text.lower()).strip("-")


def _digest(text: str, digits: int) -> str:
    digest = hashlib.sha256()
    for piece in _encoded(text):
        digest.update(piece)
    return digest.hexdigest()[:digits]


def _encoded(text: str) -> Iterator[bytes]:
    """Piece by piece: a large text would hold the GIL for long."""
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE].encode("utf-8", "surrogatepass")


def _free_names(name: str) -> Iterator[str]:
    """``name``, and what to take when it is taken: an attempt that is made again must not cost the first one."""
    stem, _, ending = name.rpartition("-")
    yield name
    for number in range(2, _NUMBERED + 1):
        yield f"{stem}-{number}-{ending}"
    while True:
        yield f"{stem}-{secrets.token_hex(5)}-{ending}"


# --- writing


@dataclass(frozen=True, slots=True)
class ArtifactWritten:
    """What became of a document. ``replaced``: there was one of that name. ``error`` says why it was not written."""

    written: bool
    filename: str
    replaced: bool
    chars: int
    error: str | None = None

    def to_json(self) -> str:
        """One line of JSON for the model."""
        if self.error is not None:
            return dumps({"written": False, "error": self.error})
        return dumps(
            {"written": True, "filename": self.filename, "replaced": self.replaced, "chars": self.chars},
        )


async def write_artifact(
    run: RunScratch | None, filename: str, content: str, *, ttl: float | timedelta | None = None
) -> ArtifactWritten:
    """Write the coordinator's document, under :func:`coordinator_name`, in place of one of that name.

    Args:
        run: Whose run it is for; None when there is no store, which the answer then says.
        filename: Any text.
        content: The document.
        ttl: Seconds or a timedelta that it lives; the store's default when None.

    Raises:
        LimitExceeded: it, or the run with it, would be too large.
        InvalidArgument: an argument is not of its kind.
        StoreError: the store could not do it.
    """
    for argument, value in (("filename", filename), ("content", content)):
        if not isinstance(value, str):
            msg = f"{argument} must be text, not {type(value).__name__}"
            raise InvalidArgument(msg, argument=argument)
    name = coordinator_name(filename)
    if run is None:
        error = "there is no store for artifacts here, do not retry: put the content into the task itself"
        return ArtifactWritten(written=False, filename=name, replaced=False, chars=len(content), error=error)
    version = await run.write_artifact(name, content, ttl=ttl)
    return ArtifactWritten(written=True, filename=name, replaced=version != 1, chars=len(content))


async def capture_result(
    run: RunScratch | None,
    text: str,
    *,
    task: str | int,
    worker: str,
    iteration: int,
    threshold_bytes: int = RESULT_BYTES,
    head_bytes: int = RESULT_HEAD_BYTES,
) -> str:
    """A worker's result as its reader gets it: a large one is saved, and its head stands for it. Never lost.

    Whatever goes wrong with saving it, the whole text comes back and the error is logged; without a store likewise.

    Args:
        run: The worker's scope, or None.
        text: The result.
        task: The task's id.
        worker: The worker's name.
        iteration: Which round.
        threshold_bytes: A text of more bytes is saved.
        head_bytes: How much of it stays, at most; cut where a character starts.
    """
    if run is None or not _is_longer(text, threshold_bytes):
        return text
    try:
        name = await _save(run, result_name(task, worker, iteration), text, None)
        size = await asyncio.to_thread(_size, text)
    except Exception:
        logger.exception("a result of worker %r could not be saved and is given whole", worker)
        return text
    return f"{_head(text, head_bytes)}\n[… cut: the head of {size:,} bytes; the whole result is the artifact {name}]"


async def capture_output(
    run: RunScratch | None,
    tool: str,
    call: str | int,
    text: str,
    seconds: float,
    *,
    task: str | int,
    worker: str,
    iteration: int,
    threshold_bytes: int = OUTPUT_BYTES,
    threshold_seconds: float = OUTPUT_SECONDS,
) -> str | None:
    """Save a tool's output that is large or took long; return the artifact's name, None when it was not saved.

    Whatever goes wrong is logged and not raised.

    Args:
        run: The worker's scope; nothing is saved when None.
        tool: The tool's name.
        call: The call's id. One that comes again, or is empty, costs no earlier output.
        text: The output.
        seconds: How long the call took.
        task: The task's id.
        worker: The worker's name.
        iteration: Which round.
        threshold_bytes: An output of more bytes is saved.
        threshold_seconds: As is one that took longer.
    """
    if run is None or not (seconds > threshold_seconds or _is_longer(text, threshold_bytes)):
        return None
    try:
        return await _save(run, output_name(task, worker, iteration, tool, call), text, tool)
    except Exception:
        logger.exception("an output of tool %r could not be saved", tool)
        return None


async def _save(run: RunScratch, name: str, text: str, tool: str | None) -> str:
    for free in _free_names(name):
        if await run.write_artifact(free, text, replace=False, source_tool=tool) is not None:
            return free
    raise AssertionError  # there is always one more


def _is_longer(text: str, most: int) -> bool:
    return len(text) > most or _size(text) > most


def _size(text: str) -> int:
    return sum(len(piece) for piece in _encoded(text))


def _head(text: str, most: int) -> str:
    """The first ``most`` bytes, without a cut character."""
    data = text[: most + 1].encode("utf-8", "surrogatepass")
    end = min(most, len(data))
    while not is_boundary(data, end):
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")


# --- finding


@dataclass(frozen=True, slots=True)
class Available:
    """Names of a run's artifacts, those most like the wanted ones first, and how many more there are."""

    names: tuple[str, ...]
    omitted: int


async def find_artifact(run: RunScratch, filename: str) -> EntryInfo | None:
    """A live artifact of the run, whichever agent wrote it, without its content; None when there is none."""
    try:
        info = await run.find(filename)
    except HandleNotFound:
        return None
    return info if info.kind is Kind.ARTIFACT else None


async def artifact_names(run: RunScratch) -> list[str]:
    """The names of all live artifacts of the run, in order."""
    names: list[str] = []
    while page := await run.list(kind=Kind.ARTIFACT, limit=_PAGE, after=names[-1] if names else ""):
        names += [info.key for info in page]
    return names


async def available_artifacts(run: RunScratch, *wanted: str, limit: int = LISTED) -> Available:
    """Names to choose from instead of the ``wanted`` ones, which are not there."""
    names = await artifact_names(run)
    if len(names) < _IN_THREAD_FROM:
        ordered = _closest_first(wanted, names)
    else:
        ordered = await asyncio.to_thread(_closest_first, wanted, names)
    return Available(tuple(ordered[:limit]), max(0, len(ordered) - limit))


def _closest_first(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """By the pairs of letters that two names share (linear in their length, unlike an edit distance).

    Each of the ``wanted`` ones has its closest name first, then each its next one.
    """
    if not wanted:
        return list(names)
    pairs = {name: _pairs(name) for name in names}
    orders = []
    for one in wanted[:_WANTED]:
        near = _pairs(one)
        distances = {name: -len(held & near) / (len(held) + len(near)) for name, held in pairs.items()}
        orders.append(sorted(names, key=distances.__getitem__))
    return list(dict.fromkeys(chain.from_iterable(zip(*orders, strict=True))))


def _pairs(name: str) -> set[str]:
    letters = f"^{name[:_COMPARED].lower()}"
    return {letters[at : at + 2] for at in range(len(letters))}


# --- planners and workers


@dataclass(frozen=True, slots=True)
class TaskArtifacts:
    """The artifacts that a planned task names. With an ``error`` the plan is to be refused."""

    found: tuple[EntryInfo, ...]
    missing: tuple[str, ...] = ()
    available: Available = Available((), 0)
    error: str | None = None

    def to_json(self) -> str:
        """One line of JSON for the model that made the plan."""
        if self.error is None:
            return dumps({"accepted": True, "artifacts": [info.key for info in self.found]})
        answer: dict[str, object] = {
            "accepted": False,
            "error": self.error,
            "missing": [_shown(name) for name in self.missing[:LISTED]],
            "available": list(self.available.names),
        }
        omitted = {
            "missing_omitted": len(self.missing) - LISTED,
            "available_omitted": self.available.omitted,
        }
        return dumps(answer | {name: count for name, count in omitted.items() if count > 0})


async def check_task_artifacts(run: RunScratch | None, names: Sequence[str]) -> TaskArtifacts:
    """Look whether the artifacts that a plan names are there.

    Args:
        run: A scope of the run; None when there is no store.
        names: As the plan lists them; what is listed twice counts once.

    Raises:
        InvalidArgument: ``names`` is no list of text.
        StoreError: the store could not be read.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        msg = "names must be a list of artifact names"
        raise InvalidArgument(msg, argument="names")
    names = list(dict.fromkeys(names))
    if run is None:
        if not names:
            return TaskArtifacts(())
        error = "there is no store for artifacts here: list none, and put what the worker needs into the task itself"
        return TaskArtifacts((), tuple(names), error=error)
    infos = [await find_artifact(run, name) for name in names]
    found = tuple(info for info in infos if info is not None)
    missing = tuple(name for name, info in zip(names, infos, strict=True) if info is None)
    if not missing:
        return TaskArtifacts(found)
    available = await available_artifacts(run, *missing)
    named = ", ".join(_shown(name) for name in missing[:_WANTED]) + (", …" if len(missing) > _WANTED else "")
    instead = "name those that are available" if available.names else "this run has none: list none"
    return TaskArtifacts(found, missing, available, f"there is no artifact {named} in this run; {instead}")


def input_artifacts(infos: Iterable[EntryInfo], verb: str = "read_artifact") -> str:
    """The section of a worker's prompt about the artifacts that its task names; empty when there is none.

    Args:
        infos: The artifacts.
        verb: What reads one, as it is registered, with its prefix.
    """
    lines = []
    for info in infos:
        tokens = "not text" if info.tokens is None else f"about {info.tokens:,} tokens"
        call = f"{verb}(filename={dumps(info.key)})"
        lines.append(f"- {info.key} ({info.size:,} bytes, {tokens}): read it with {call}")
    return "\n".join(["INPUT ARTIFACTS", *lines]) if lines else ""


def _shown(name: str) -> str:
    return name if len(name) <= _MOST_NAME_BYTES else f"{name[:_MOST_NAME_BYTES]}…"
