"""The configuration file: one TOML file, every value checked when it is loaded, all faults reported together."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scratch import toml
from scratch.budget import MAX_EXTRACTION_TOKENS, SAFETY_MARGIN, TURN_DEPTH_BONUS
from scratch.clock import MAX_TTL_SECONDS
from scratch.errors import ScratchError
from scratch.spill import SPILL_THRESHOLD_BYTES, SpillPolicy, check_tool_pattern
from scratch.store import DEFAULT_TTL, MAX_ENTRY_BYTES, MAX_RUN_BYTES
from scratch.sweeper.sweep import BATCH_ENTRIES

logger = logging.getLogger("scratch")

MIN_TOKENS = 5_120
"""The threshold of a tool pattern for which none is given."""
STORE_NAME = "scratch.db"


class ConfigError(ScratchError):
    """The configuration cannot be used. ``data["faults"]`` lists all that is wrong with it.

    Each is a dict of ``table`` (empty at the top of the file), ``key``, ``message`` and ``line``; ``key`` and ``line``
    are None where there is none to name.
    """

    code = "config_error"


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """``[agent.llm]``: the model that tokens are counted for; empty names are an unknown one."""

    provider: str = ""
    model: str = ""
    context_window: int | None = None
    """Tokens."""


@dataclass(frozen=True, slots=True)
class ScratchpadConfig:
    """``[agent.scratchpad]``, and for a worker its own table merged over it."""

    enabled: bool = False
    context_safety_margin: float = SAFETY_MARGIN
    """The part of the context window that is not handed out."""
    max_extraction_tokens: int = MAX_EXTRACTION_TOKENS
    """The most tokens that one call of a tool returns."""
    turn_depth_bonus: int = TURN_DEPTH_BONUS
    """Turns that the host allows beyond its own limit."""


@dataclass(frozen=True, slots=True)
class ArtifactsConfig:
    """``[orchestration.artifacts]``: which results of workers and tools are saved as artifacts."""

    result_bytes: int = 4_000
    """A worker's result of more bytes is saved, and its head stands for it."""
    result_head_bytes: int = 2_000
    tool_output_bytes: int = 500
    """A tool's output of more bytes is saved."""
    tool_output_seconds: float = 5.0
    """So is the output of a tool that took longer."""


@dataclass(frozen=True, slots=True)
class ScratchConfig:
    """``[scratch]``: what ``ScratchStore.open`` and ``SpillPolicy`` take."""

    threshold_bytes: int = SPILL_THRESHOLD_BYTES
    ttl_seconds: float = DEFAULT_TTL
    max_entry_bytes: int = MAX_ENTRY_BYTES
    max_run_bytes: int = MAX_RUN_BYTES


@dataclass(frozen=True, slots=True)
class SweeperConfig:
    """``[sweeper]``: seconds between two passes, and entries deleted in one transaction, at most."""

    interval_seconds: float = 300.0
    batch_entries: int = BATCH_ENTRIES


@dataclass(frozen=True, slots=True)
class Config:
    """What a configuration file says, and the default for what it does not say. Tasks and threads may share it."""

    store_path: Path | None = None
    """The store's file, absolute; None without a ``memory_dir``."""
    llm: LlmConfig = field(default_factory=LlmConfig)
    scratchpad: ScratchpadConfig = field(default_factory=ScratchpadConfig)
    workers: Mapping[str, ScratchpadConfig] = field(default_factory=dict)
    """The workers that have a table of their own, merged over the agent's."""
    artifacts: ArtifactsConfig = field(default_factory=ArtifactsConfig)
    thresholds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Tokens by tool-name pattern, by server."""
    scratch: ScratchConfig = field(default_factory=ScratchConfig)
    sweeper: SweeperConfig = field(default_factory=SweeperConfig)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Config:
        """Read a file. Opens no store.

        Raises:
            ConfigError: it cannot be read, or has faults: all of them are in the one error.
        """
        file = Path(path)
        try:
            data = file.read_bytes()
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            fault = toml.Fault("", None, "this is not UTF-8; save the file as UTF-8", line)
            raise _config_error(str(file), [fault]) from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            fault = toml.Fault("", None, f"cannot be read ({reason}); give the path of a TOML file")
            raise _config_error(str(file), [fault]) from error
        return cls.parse(text, source=str(file), folder=file.parent)

    @classmethod
    def parse(cls, text: str, *, source: str = "the configuration", folder: str | os.PathLike[str] = ".") -> Config:
        """Read a TOML text.

        Args:
            text: The whole of it.
            source: Its name in error messages.
            folder: What a relative ``memory_dir`` is relative to.

        Raises:
            ConfigError: it has faults; all of them are in the one error.
        """
        reading = toml.read(text, _FILE)
        values = reading.values
        agent = _inner(values, "agent")
        scratchpad = _inner(agent, "scratchpad")
        orchestration = _inner(values, "orchestration")
        workers = {
            name: worker["scratchpad"]
            for name, worker in _inner(orchestration, "worker").items()
            if "scratchpad" in worker
        }
        artifacts = _inner(orchestration, "artifacts")
        memory_dir = artifacts.pop("memory_dir", None)
        memory_dir = values.get("memory_dir", memory_dir)
        _check_needs(reading, scratchpad, workers)
        if reading.faults:
            raise _config_error(source, reading.faults)
        thresholds = {
            server: {pattern: table.get("min_tokens", MIN_TOKENS) for pattern, table in patterns.items()}
            for server, tables in _inner(_inner(values, "mcp"), "servers").items()
            if (patterns := _inner(tables, "scratchpad"))
        }
        _warn_of_differences(thresholds)
        return cls(
            store_path=None if memory_dir is None else Path(folder).absolute() / memory_dir / STORE_NAME,
            llm=LlmConfig(**_inner(agent, "llm")),
            scratchpad=ScratchpadConfig(**scratchpad),
            workers={name: ScratchpadConfig(**(scratchpad | own)) for name, own in workers.items()},
            artifacts=ArtifactsConfig(**artifacts),
            thresholds=thresholds,
            scratch=ScratchConfig(**_inner(values, "scratch")),
            sweeper=SweeperConfig(**_inner(values, "sweeper")),
        )

    def worker(self, name: str) -> ScratchpadConfig:
        """A worker's scratchpad: the agent's where the worker has no table of its own."""
        return self.workers.get(name, self.scratchpad)

    def tool_thresholds(self) -> dict[str, int]:
        """Tokens by tool-name pattern over all servers: the smaller where two have the same pattern."""
        merged: dict[str, int] = {}
        for patterns in self.thresholds.values():
            for pattern, tokens in patterns.items():
                merged[pattern] = min(tokens, merged.get(pattern, tokens))
        return merged

    def policy(self, count_tokens: Callable[[str, int], int] | None = None) -> SpillPolicy:
        """When to spill by this configuration; ``count_tokens`` as in ``SpillPolicy``."""
        policy = SpillPolicy(threshold_bytes=self.scratch.threshold_bytes, tool_thresholds=self.tool_thresholds())
        return policy if count_tokens is None else replace(policy, count_tokens=count_tokens)


def _inner(values: Mapping[str, Any], table: str) -> dict[str, Any]:
    """A table that may be absent."""
    found: dict[str, Any] = values.get(table, {})
    return found


def _check_needs(
    reading: toml.Reading, scratchpad: Mapping[str, Any], workers: Mapping[str, Mapping[str, Any]]
) -> None:
    """Add a fault for each table that enables a scratchpad and lacks what it needs. A faulty value is there."""
    lacking = []
    if not reading.lines.keys() & {("memory_dir",), ("orchestration", "artifacts", "memory_dir")}:
        lacking.append('memory_dir = "…" at the top of the file')
    if ("agent", "llm", "context_window") not in reading.lines:
        lacking.append("context_window = … (tokens) in [agent.llm]")
    enabling: list[tuple[toml.KeyPath, str]] = []
    if scratchpad.get("enabled"):
        enabling.append((("agent", "scratchpad", "enabled"), "a scratchpad"))
    for name, own in workers.items():
        if own.get("enabled"):
            worker = f"the scratchpad of worker {toml.quoted(name, bare=False)}"
            enabling.append((("orchestration", "worker", name, "scratchpad", "enabled"), worker))
    for path, what in enabling:
        for need in lacking:
            reading.add_fault(path, f"{what} needs {need}; set it, or enabled = false")


def _config_error(source: str, faults: Iterable[toml.Fault]) -> ConfigError:
    in_order = sorted(faults, key=lambda fault: fault.line or 0)
    count = "1 fault" if len(in_order) == 1 else f"{len(in_order)} faults"
    message = "\n  ".join([f"{source}: {count}", *map(str, in_order)])
    return ConfigError(message, source=source, faults=[asdict(fault) for fault in in_order])


def _warn_of_differences(thresholds: Mapping[str, Mapping[str, int]]) -> None:
    """Tell where servers set different thresholds for one pattern: a policy sees a tool's name, not its server."""
    seen: dict[str, tuple[str, int]] = {}
    for server, patterns in thresholds.items():
        for pattern, tokens in patterns.items():
            other, least = seen.setdefault(pattern, (server, tokens))
            if tokens != least:
                logger.warning(
                    "mcp servers %r and %r have different min_tokens for %r: the smaller counts, %d",
                    other,
                    server,
                    pattern,
                    min(tokens, least),
                )
            seen[pattern] = min((other, least), (server, tokens), key=lambda item: item[1])


def _folder(value: object) -> Path:
    """A check: the path of a folder, with ``~`` as the home folder."""
    name = toml.text(value)
    try:
        folder = Path(name).expanduser()
        os.fsencode(folder)
    except (RuntimeError, UnicodeEncodeError):
        folder = None
    if folder is None or "\0" in name:
        raise toml.no("must be the path of a folder (~ is a home folder)", value)
    return folder


_at_least_0 = toml.whole(0)
_at_least_1 = toml.whole(1)
_duration = toml.number("of seconds above 0, at most 100 years", lambda value: 0 < value <= MAX_TTL_SECONDS)

_SCRATCHPAD: toml.Table = {
    "enabled": toml.flag,
    "context_safety_margin": toml.number("of 0 or more and less than 1", lambda value: 0 <= value < 1),
    "max_extraction_tokens": _at_least_1,
    "turn_depth_bonus": _at_least_0,
}
_FILE: toml.Table = {
    "memory_dir": _folder,
    "agent": {
        "llm": {"provider": toml.text, "model": toml.text, "context_window": _at_least_1},
        "scratchpad": _SCRATCHPAD,
    },
    "orchestration": {
        "worker": toml.Named({"scratchpad": _SCRATCHPAD}),
        "artifacts": {
            "result_bytes": _at_least_0,
            "result_head_bytes": _at_least_0,
            "tool_output_bytes": _at_least_0,
            "tool_output_seconds": toml.number(
                "of seconds, 0 or more, at most 100 years", lambda value: 0 <= value <= MAX_TTL_SECONDS
            ),
            "memory_dir": _folder,
        },
    },
    "mcp": {
        "servers": toml.Named({"scratchpad": toml.Named({"min_tokens": _at_least_0}, check_name=check_tool_pattern)})
    },
    "scratch": {
        "threshold_bytes": _at_least_0,
        "ttl_seconds": _duration,
        "max_entry_bytes": _at_least_1,
        "max_run_bytes": _at_least_1,
    },
    "sweeper": {"interval_seconds": _duration, "batch_entries": _at_least_1},
}
"""What may stand in the file, and how each value is checked."""
