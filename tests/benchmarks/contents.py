"""What is stored in the benchmarks: a server's log, and a document in JSON. No line of either comes twice."""

from __future__ import annotations

import json
import random
from functools import lru_cache

KIB = 1024
MIB = 1024 * 1024
KINDS = ("log", "JSON")

_PATHS = ("/v2/servers/detail", "/v2/images", "/v2/volumes", "/v3/auth/tokens")
_NAMES = ("Zürich", "Genève", "Bern", "Basel", "Lausanne", "Winterthur", "Sankt Gallen", "Lugano")


def log_line(number: int, draw: random.Random) -> str:
    level = "ERROR" if number % 5_000 == 7 else "INFO"
    hour, minute, second = number // 3_600 % 24, number // 60 % 60, number % 60
    return (
        f"2026-11-29T{hour:02}:{minute:02}:{second:02}.{draw.randrange(1000):03} {level} server[{number}]: "
        f"[req-{draw.getrandbits(64):016x}] GET {draw.choice(_PATHS)} HTTP/1.1 status: 200 "
        f"len: {draw.randrange(9_000)} time: 0.{draw.randrange(10_000_000):07}\n"
    )


def record(number: int, draw: random.Random) -> str:
    value = {
        "id": number,
        "name": draw.choice(_NAMES),
        "score": draw.randrange(1_000) / 8,
        "tags": draw.sample(("a", "b", "c", "d", "e"), 2),
        "geo": {"lat": draw.randrange(4_600, 4_800) / 100, "lon": draw.randrange(600, 1_000) / 100},
        "body": f"{draw.getrandbits(320):080x}",
    }
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=2)
def log(size: int) -> str:
    """Whole lines of a log, and a part of one: ``size`` bytes, all ASCII."""
    draw = random.Random(size)
    lines: list[str] = []
    left = size
    while left > 0:
        lines.append(log_line(len(lines), draw)[:left])
        left -= len(lines[-1])
    return "".join(lines)


@lru_cache(maxsize=2)
def records(size: int) -> str:
    """A JSON object with an array of records in ``results``: ``size`` bytes, some characters outside ASCII."""
    draw = random.Random(size)
    head, tail = '{"request": "%s", "results": [', "]}"
    parts: list[str] = []
    left = size - len(head % "") - len(tail)
    while left > 0:
        part = record(len(parts), draw)
        left -= len(part.encode()) + len(", ")
        parts.append(part)
    left += len(parts.pop().encode()) + len(", ")
    return head % ("x" * (left + len(", "))) + ", ".join(parts) + tail


def numbered(kind: str, size: int, number: int) -> str:
    """A content of ``size`` bytes that differs from every other one in its head: a new text each time."""
    if kind == "log":
        return f"{number:09} " + log(size - 10)
    return f'{{"number": "{number:09}", ' + records(size - 23)[1:]
