"""Expiry: what is not live does not exist for any verb, whether swept or not, whatever the clock does."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scratch import (
    DEFAULT_TTL,
    HandleNotFound,
    InvalidArgument,
    Kind,
    NoteNotFound,
    RunScratch,
    ScratchStore,
)
from tests.support import Clock, count_entries, query

NOW = datetime.fromtimestamp(1_800_000_000, UTC)


async def spill(run: RunScratch, **life: Any) -> str:
    captured = await run.capture(query("x" * 20_000), **life)
    assert captured.handle is not None
    return captured.handle


async def test_what_has_expired_is_gone_for_every_verb_before_any_sweep(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C101 C103
    handle = await spill(run, ttl=1)
    await run.write("note", "x", ttl=1)
    clock.advance(2)
    calls: list[tuple[type[Exception], Callable[[], Awaitable[object]]]] = [
        (HandleNotFound, lambda: run.read_handle(handle)),
        (HandleNotFound, lambda: run.read_handle(handle, match="x")),
        (HandleNotFound, lambda: run.renew(handle, 60)),
        (NoteNotFound, lambda: run.read("note")),
        (NoteNotFound, lambda: run.renew("note", 60)),
    ]
    for error, call in calls:
        with pytest.raises(error, match="no live"):
            await call()
    with pytest.raises(HandleNotFound, match="run the tool again"):
        await run.read_handle(handle)
    assert not await run.delete(handle)
    assert not await run.delete("note")
    assert await run.list() == await run.list(kind=Kind.HANDLE) == []
    assert await store.list_scratch_entries_for_run("run-42") == []
    (info,) = await store.list_runs()
    assert (info.entries, info.size) == (0, 0)
    stats = await store.stats()
    assert (stats.live, stats.expired) == (0, 2)
    assert count_entries(store.path) == 2  # they are still there, for the sweep


async def test_life_ends_at_its_last_millisecond(run: RunScratch, clock: Clock) -> None:
    await run.write("note", "x", ttl=10)
    clock.advance(9.999)
    assert (await run.read("note")).text == "x"
    clock.advance(0.001)
    with pytest.raises(NoteNotFound):
        await run.read("note")


async def test_reading_prolongs_nothing(run: RunScratch, clock: Clock) -> None:
    handle = await spill(run, ttl=10)
    await run.write("note", "x", ttl=10)
    for _ in range(9):
        clock.advance(1)
        await run.read_handle(handle)
        await run.read_handle(handle, match="x")
        await run.read("note")
        await run.list()
    clock.advance(1)
    with pytest.raises(HandleNotFound):
        await run.read_handle(handle)
    assert await run.list() == []


# --- how long


async def test_an_hour_is_the_default_and_the_store_may_say_otherwise(path: Path, clock: Clock) -> None:
    assert DEFAULT_TTL == 3_600
    for ttl, seconds in ((None, 3_600), (60, 60), (timedelta(days=2), 172_800), (0.25, 0.25)):
        async with ScratchStore.open(path, clock=clock, **({} if ttl is None else {"ttl": ttl})) as store:  # type: ignore[arg-type]  # one of two keywords
            run = await store.run("run-42", agent_id=f"agent {ttl}")
            await run.write("note", "x")
            await spill(run)
            for info in [*await run.list(), *await run.list(kind=Kind.HANDLE)]:
                assert info.expires_at == 1_800_000_000_000 + seconds * 1_000
                assert info.expires == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("life", "milliseconds"),
    [
        ({"ttl": 1}, 1_000),
        ({"ttl": 1.5}, 1_500),
        ({"ttl": 0.0001}, 1),  # never nothing
        ({"ttl": timedelta(minutes=2)}, 120_000),
        ({"ttl": 100 * 366 * 24 * 3_600}, 100 * 366 * 24 * 3_600_000),
        ({"expires_at": NOW + timedelta(seconds=5)}, 5_000),
        ({"expires_at": (NOW + timedelta(seconds=5)).astimezone(timezone(timedelta(hours=14)))}, 5_000),  # C111
        ({"expires_at": (NOW + timedelta(seconds=5)).astimezone(timezone(-timedelta(hours=11)))}, 5_000),
        ({"expires_at": NOW + timedelta(microseconds=1_999)}, 1),
    ],
)
async def test_a_life_is_seconds_a_timedelta_or_an_aware_time(
    run: RunScratch, life: dict[str, Any], milliseconds: int
) -> None:
    await run.write("note", "x", **life)
    handle = await spill(run, **life)
    assert (await run.read("note")).info.expires_at == 1_800_000_000_000 + milliseconds
    (info,) = await run.list(kind=Kind.HANDLE)
    assert (info.key, info.expires_at) == (handle, 1_800_000_000_000 + milliseconds)


BAD_LIVES: list[dict[str, Any]] = [
    {"ttl": 0},
    {"ttl": -1},
    {"ttl": True},
    {"ttl": "60"},
    {"ttl": float("nan")},
    {"ttl": float("inf")},
    {"ttl": 10**400},
    {"ttl": timedelta(0)},
    {"ttl": timedelta(days=40_000)},
    {"ttl": [60]},
    {"expires_at": datetime(2100, 1, 1)},  # noqa: DTZ001 - C112: naive
    {"expires_at": NOW},
    {"expires_at": NOW - timedelta(seconds=1)},
    {"expires_at": NOW + timedelta(microseconds=999)},
    {"expires_at": datetime.max.replace(tzinfo=UTC)},
    {"expires_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))},
    {"expires_at": 1_900_000_000},
    {"expires_at": "2100-01-01T00:00:00Z"},
    {"ttl": 60, "expires_at": NOW + timedelta(seconds=60)},
]


@pytest.mark.parametrize("life", BAD_LIVES)
async def test_a_bad_life_is_refused_by_name_and_nothing_is_stored(
    store: ScratchStore, run: RunScratch, life: dict[str, Any]
) -> None:
    for call in (run.write("note", "x", **life), run.capture(query("x" * 20_000), **life)):
        with pytest.raises(InvalidArgument) as caught:
            await call
        assert caught.value.data["argument"] in life
    if "ttl" in life and "expires_at" not in life:
        await run.write("note", "x")
        with pytest.raises(InvalidArgument):
            await run.renew("note", life["ttl"])
        await run.delete("note")
    assert count_entries(store.path) == 0


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Pacific/Kiritimati", "America/Los_Angeles"])
async def test_the_machines_time_zone_means_nothing(
    run: RunScratch, clock: Clock, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:  # C112
    old = os.environ.get("TZ")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        await run.write("note", "x", expires_at=datetime.fromtimestamp(clock.now + 10, UTC).astimezone())
        assert (await run.read("note")).info.expires == NOW + timedelta(seconds=10)
        with pytest.raises(InvalidArgument, match="with a time zone"):
            await run.write("note", "x", expires_at=datetime.now() + timedelta(hours=30))  # noqa: DTZ005 - on purpose
    finally:
        monkeypatch.delenv("TZ") if old is None else monkeypatch.setenv("TZ", old)
        time.tzset()


async def test_a_time_in_the_hour_that_comes_twice_is_told_apart(path: Path) -> None:
    zone = ZoneInfo("America/Los_Angeles")
    first = datetime(2026, 11, 1, 1, 30, tzinfo=zone, fold=0)
    async with ScratchStore.open(path, clock=Clock(first.timestamp() - 60)) as store:
        run = await store.run("run-42", agent_id="researcher")
        await run.write("first", "x", expires_at=first)
        await run.write("second", "x", expires_at=first.replace(fold=1))
        one, two = await run.list()
    assert one.expires_at == first.timestamp() * 1_000
    assert two.expires_at - one.expires_at == 3_600_000


# --- living longer


async def test_renewing_prolongs_what_is_live_and_never_shortens(run: RunScratch, clock: Clock) -> None:
    handle = await spill(run, ttl=10)
    await run.write("note", "x", ttl=10)
    for key in (handle, "note"):
        assert await run.renew(key, 100) == NOW + timedelta(seconds=100)
        assert await run.renew(key, timedelta(seconds=5)) == NOW + timedelta(seconds=100)
    assert (await run.read("note")).version == 1  # no new version
    clock.advance(99)
    assert (await run.read_handle(handle)).size == 20_000
    assert await run.renew("note", 10) == NOW + timedelta(seconds=109)


async def test_what_has_expired_does_not_come_back(run: RunScratch, clock: Clock) -> None:  # C102
    handle = await spill(run, ttl=10)
    await run.write("note", "old", ttl=10)
    clock.advance(10)
    with pytest.raises(HandleNotFound):
        await run.renew(handle, 1_000)
    with pytest.raises(NoteNotFound):
        await run.renew("note", 1_000)
    with pytest.raises(HandleNotFound):
        await run.read_handle(handle)
    assert await run.write("note", " new", append=True) == 1  # nothing to add to
    assert (await run.read("note")).text == " new"
    assert (await run.read("note")).info.created_at == 1_800_000_010_000


async def test_a_new_version_has_the_life_that_its_writer_gives(run: RunScratch, clock: Clock) -> None:
    await run.write("note", "x", ttl=100)
    await run.write("note", "y", ttl=10)
    assert (await run.read("note")).info.expires_at == 1_800_000_010_000
    await run.write("note", "z", ttl=1, append=True)  # adding never shortens
    assert (await run.read("note")).info.expires_at == 1_800_000_010_000
    await run.write("note", "z", ttl=50, append=True)
    assert (await run.read("note")).info.expires_at == 1_800_000_050_000


async def test_an_expired_version_is_no_version(run: RunScratch, clock: Clock) -> None:
    await run.write("note", "x", ttl=10)
    assert await run.write("note", "x", ttl=10) == 2
    clock.advance(10)
    assert await run.write("note", "y", if_version=0, ttl=10) == 1
    assert await run.write("note", "z", if_version=1, ttl=10) == 2


async def test_a_long_life_keeps_an_entry_through_sweeps_of_an_open_run(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C93 C105
    handle = await spill(run, ttl=timedelta(days=30))
    await run.write("short", "x", ttl=10)
    for _ in range(29):
        clock.advance(24 * 3_600)
        await store.sweep()
    assert (await run.read_handle(handle)).size == 20_000
    assert count_entries(store.path) == 1


# --- a clock that is set


async def test_a_clock_that_is_set_back_makes_entries_live_longer_and_breaks_nothing(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    await run.write("note", "1", ttl=10)
    clock.advance(10)
    assert await run.list() == []
    clock.advance(-5)
    assert (await run.read("note")).text == "1"  # nothing had swept it
    clock.advance(-10_000)
    assert await run.write("note", "2", ttl=10) == 2
    assert (await run.read("note")).info.expires_at == 1_799_990_015_000
    assert (await run.renew("note", 20)).timestamp() == 1_799_990_025
    clock.advance(10_005)
    assert await run.list() == []
    assert await run.write("note", "3", ttl=10) == 1
    assert (await store.sweep()).entries == 0


async def test_a_clock_at_the_epoch_and_one_far_ahead_work(path: Path) -> None:
    for now in (0.0, 0.5, 2**40 / 1_000, 32_503_680_000.0):
        clock = Clock(now)
        async with ScratchStore.open(path, clock=clock) as store:
            run = await store.run("run-42", agent_id=f"agent {now}")
            await run.write("note", "x", ttl=1)
            assert (await run.read("note")).text == "x"
            clock.advance(1)
            assert await run.list() == []
            assert (await store.check()).problems == ()
