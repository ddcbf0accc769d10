"""`scratch demo --explore`: questions about large results of this machine, answered with a model's tools only."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sysconfig
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from scratch import Observation, RunScratch, ScratchStore
from scratch.budget import ContextBudget
from scratch.cli.text import print_line, write
from scratch.tools import Toolset

EXPLORED_RUN = "explore"
_WINDOW = 128_000
"""Tokens of the context window whose budget the tools work under."""
_LARGE_FILE = 200 * 1024
DISTRIBUTION = "click"
"""One that is there for sure: the terminal needs it."""
FILE = "json/decoder.py"
_ROW = re.compile(r">(\d+)\t(.*?)  \[bytes? (\d+)", re.DOTALL)
_MATCHES = re.compile(r"grep: ([\d,]+) match")


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked, what was found, and what that cost in tokens: with the tools, and with the result inlined."""

    question: str
    answer: str
    tokens: int
    inlined: int


class Solver:
    """Answers questions as an agent would: it sees only what the tools return."""

    def __init__(self, run: RunScratch) -> None:
        self._tools = Toolset(run, budget=ContextBudget(_WINDOW))

    async def capture(self, content: str, tool: str) -> str:
        """Spill a result; return its handle."""
        captured = await self._tools.capture(Observation(content, tool=tool, tool_class="query"))
        if captured.handle is None:
            msg = f"the result of {tool} stayed in the context: {captured.decision.reason}"
            raise RuntimeError(msg)
        return captured.handle

    async def _call(self, tool: str, **arguments: Any) -> str:  # noqa: ANN401 - whatever JSON can express
        answer = await self._tools.call(tool, arguments)
        if answer.is_error:
            raise RuntimeError(answer)
        return answer

    async def _measured(self, question: str, answer: str, before: int, handle: str) -> Answer:
        inlined = (await self._tools.run.find(handle)).tokens or 0
        return Answer(question, answer, self._tools.run.usage.tokens_extracted - before, inlined)

    @property
    def _spent(self) -> int:
        return self._tools.run.usage.tokens_extracted

    async def without_requires_python(self, packages: str) -> Answer:
        """Which distributions have no ``requires_python``: one pass over two fields."""
        before = self._spent
        fields = ["metadata.name", "metadata.requires_python"]
        rows = await self._rows(packages, "$.installed", fields)
        missing = sorted(row[fields[0]] for row in rows if fields[1] not in row)
        answer = f"{len(missing)} of {len(rows)}: {', '.join(missing) or 'none'}"
        return await self._measured("which distributions have no requires_python?", answer, before, packages)

    async def version_of(self, packages: str, name: str) -> Answer:
        """The version of one distribution: its place by name, then the value at its path."""
        before = self._spent
        rows = await self._rows(packages, "$.installed", ["metadata.name"])
        (index,) = (row["_index"] for row in rows if row["metadata.name"].lower() == name)
        value = await self._call("get_in", handle=packages, path=f"$.installed[{index}].metadata.version")
        return await self._measured(f"which version has {name}?", _text(value), before, packages)

    async def _rows(self, handle: str, path: str, fields: list[str]) -> list[dict[str, Any]]:
        """All rows of an array, page by page where they do not fit at once."""
        rows: list[dict[str, Any]] = []
        arguments: dict[str, Any] = {"handle": handle, "path": path, "fields": fields}
        while True:
            answer = await self._tools.call("iterate_over", arguments)
            if answer.is_error:  # too large: take what the tool says that fits
                arguments = json.loads(answer)["suggestions"][0]["arguments"]
                continue
            page = [json.loads(line) for line in answer.split("\n")[:-1] if line.startswith("{")]
            rows += page
            if "limit" not in arguments or len(page) < arguments["limit"]:
                return rows
            arguments = {**arguments, "offset": len(rows)}

    async def level_in_log(self, log: str, level: str) -> Answer:
        """The first and the last line with a level, and how many there are."""
        before = self._spent
        pattern = f"^\\S+ {level} "
        first = await self._call("grep", handle=log, pattern=pattern, context=0, max_matches=1)
        (count,) = _MATCHES.findall(first)
        every = await self._call(
            "grep", handle=log, pattern=pattern, context=0, max_matches=int(count.replace(",", ""))
        )
        lines = [f"line {number}: {text}" for number, text, _ in _ROW.findall(every)]
        answer = f"{count}; first {lines[0]}; last {lines[-1]}"
        return await self._measured(
            f"how many lines are {level}, which is the first, which the last?", answer, before, log
        )

    async def value_on_one_line(self, tree: str, name: str) -> Answer:
        """A value in one long line of JSON: found by search, opened by its offset, then read at the path seen there."""
        before = self._spent
        found = await self._call("grep", handle=tree, pattern=f'{name}"', literal=True, context=0, max_matches=1)
        ((_, _, offset),) = _ROW.findall(found)
        window = json.loads(await self._call("read_handle", handle=tree, offset=max(0, int(offset) - 300), length=400))
        (key,) = re.findall(rf'"([^"]*{re.escape(name)})":', window["text"])
        value = await self._call("get_in", handle=tree, path=f"$.files[{json.dumps(key)}].bytes")
        return await self._measured(f"how many bytes has {name}?", value.split("\n")[0], before, tree)


def _text(answer: str) -> str:
    """The first line of a string that was shown with its line numbers."""
    return answer.split("\n", maxsplit=1)[0].partition("\t")[2]


async def prove(store: ScratchStore, packages: str) -> list[Answer]:
    """Ask everything, and print it as it is answered."""
    solver = Solver(await store.run(EXPLORED_RUN, agent_id="demo"))
    inspected = await solver.capture(packages, "pip_inspect")
    log, tree = await solver.capture(check_log(), "check_files"), await solver.capture(file_tree(), "file_tree")
    answers = [
        await solver.without_requires_python(inspected),
        await solver.version_of(inspected, DISTRIBUTION),
        await solver.level_in_log(log, "WARNING"),
        await solver.value_on_one_line(tree, FILE),
    ]
    for answer in answers:
        write("\n")
        print_line(f"# {answer.question}")
        print_line(answer.answer)
        print_line(
            f"{answer.tokens:,} tokens with the tools, {answer.inlined:,} with the result in the context (estimated)"
        )
    return answers


def check_log() -> str:
    """The log of a check of Python's own files: one line a file, a warning for each large one."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logger = logging.Logger("check")  # noqa: LOG001 - not in the tree of loggers: nobody else hears it
    logger.addHandler(handler)
    for path, found in _files_below(sysconfig.get_path("stdlib")):
        if "-packages" in path:
            continue
        level = logging.WARNING if found.st_size > _LARGE_FILE else logging.INFO
        logger.log(level, "%s: %s bytes", path, found.st_size)
    return stream.getvalue()


def file_tree() -> str:
    """Python's own files with their sizes, as one line of JSON."""
    listed = _files_below(sysconfig.get_path("stdlib")) + _files_below(sysconfig.get_path("purelib"))
    files = {
        path: {
            "bytes": found.st_size,
            "blocks": found.st_blocks,
            "mode": stat.filemode(found.st_mode),
            "modified": datetime.fromtimestamp(found.st_mtime, UTC).isoformat(),
        }
        for path, found in listed
    }
    return json.dumps({"root": sysconfig.get_path("stdlib"), "count": len(files), "files": files})


def _files_below(root: str) -> list[tuple[str, os.stat_result]]:
    """All files below a folder, with what the system says of them."""
    found = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                found.append((str(path), path.stat()))
    return found
