"""What is not live does not exist for any verb, swept or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from scratch import (
    DEFAULT_TTL,
    HandleNotFound,
    InvalidArgument,
    Kind,
    NoteNotFound,
    RunScratch,
    ScratchError,
    ScratchStore,
)
from scratch.clock import expiry_ms
from tests.support import Clock, query

NOW = 1_800_000_000


async def test_what_has_expired_is_gone_for_every_verb_before_any_sweep(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:  # C101, C105
    handle = (await run.capture(query("x" * 10_000), ttl=1)).handle
    assert handle is not None
    await run.write("plan", "x", ttl=1)
    clock.advance(2)
    gone: list[Callable[[], Awaitable[object]]] = [
        lambda: run.read_handle(handle),
        lambda: run.read_handle(handle, match="x"),
        lambda: run.renew(handle, 60),
    ]
    for verb in gone:
        with pytest.raises(HandleNotFound, match="run the tool again, do not retry"):  # C103
            await verb()
    for note_verb in (run.read("plan"), run.renew("plan", 60)):
        with pytest.raises(NoteNotFound):
            await note_verb
    assert await run.list() == []
    assert await run.list(kind=Kind.HANDLE) == []
    assert await store.list_scratch_entries_for_run("run-42") == []
    assert await run.delete("plan") is False
    assert await run.delete(handle) is False
    stats = await store.stats()
    assert (stats.live, stats.expired) == (0, 2)
    assert [(info.entries, info.size) for info in await store.list_runs()] == [(0, 0)]


async def test_an_entry_lives_up_to_its_time_and_not_at_it(run: RunScratch, clock: Clock) -> None:
    await run.write("plan", "x", ttl=10)
    clock.advance(9.999)
    assert (await run.read("plan")).text == "x"
    clock.advance(0.001)
    with pytest.raises(NoteNotFound):
        await run.read("plan")


async def test_an_expired_note_is_written_anew_from_version_one(run: RunScratch, clock: Clock) -> None:
    await run.write("plan", "x", ttl=1)
    await run.write("plan", "y", ttl=1)
    clock.advance(2)
    assert await run.write("plan", "z", if_version=0) == 1
    clock.advance(4_000)
    assert await run.write("plan", "a", append=True) == 1
    assert (await run.read("plan")).text == "a"


async def test_reading_prolongs_nothing_and_renewing_never_revives_nor_shortens(
    run: RunScratch, clock: Clock
) -> None:  # C102
    await run.write("plan", "x", ttl=100)
    await run.read("plan")
    assert (await run.read("plan")).info.expires == datetime.fromtimestamp(NOW + 100, UTC)
    assert await run.renew("plan", 10) == datetime.fromtimestamp(NOW + 100, UTC)
    assert await run.renew("plan", timedelta(seconds=200)) == datetime.fromtimestamp(NOW + 200, UTC)
    clock.advance(201)
    with pytest.raises(NoteNotFound):
        await run.renew("plan", 1_000)


async def test_appending_never_shortens_a_life_and_overwriting_sets_it(run: RunScratch) -> None:
    await run.write("plan", "x", ttl=86_400)
    await run.write("plan", "y", append=True)
    assert (await run.read("plan")).info.expires_at == (NOW + 86_400) * 1000
    await run.write("plan", "z")
    assert (await run.read("plan")).info.expires_at == (NOW + DEFAULT_TTL) * 1000


async def test_a_store_has_a_default_of_its_own(path: Path, clock: Clock) -> None:
    async with ScratchStore.open(path, ttl=timedelta(minutes=2), clock=clock) as store:
        run = await store.run("r", agent_id="a")
        await run.write("plan", "x")
        assert (await run.read("plan")).info.expires_at == (NOW + 120) * 1000


@pytest.mark.parametrize(
    "zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-11)), ZoneInfo("Asia/Kolkata")]
)
async def test_a_time_means_the_same_in_every_zone(run: RunScratch, zone: timezone) -> None:  # C111
    await run.write("plan", "x", expires_at=datetime.fromtimestamp(NOW + 60, zone))
    assert (await run.read("plan")).info.expires_at == (NOW + 60) * 1000


def test_a_time_in_the_hour_that_comes_twice_is_told_apart() -> None:
    zone = ZoneInfo("America/Los_Angeles")
    first = datetime(2026, 11, 1, 1, 30, tzinfo=zone, fold=0)
    times = [expiry_ms(0, ttl=None, expires_at=at, default_ttl=1) for at in (first, first.replace(fold=1))]
    assert times[1] - times[0] == 3_600_000
    assert times[0] == first.timestamp() * 1000


@pytest.mark.parametrize(
    "expires_at",
    [
        datetime(2050, 1, 1),  # noqa: DTZ001 - C112: naive
        datetime(2001, 1, 1, tzinfo=UTC),
        datetime.fromtimestamp(NOW, UTC),
        datetime(9999, 1, 1, tzinfo=UTC),
        NOW + 60,
        "2050-01-01T00:00:00Z",
    ],
)
async def test_a_naive_a_past_and_no_time_at_all_are_refused(run: RunScratch, expires_at: datetime) -> None:
    for verb in (run.write("plan", "x", expires_at=expires_at), run.capture(query("x"), expires_at=expires_at)):
        with pytest.raises(InvalidArgument) as refused:
            await verb
        assert refused.value.data["argument"] == "expires_at"


async def test_two_ways_to_say_it_are_one_too_many(run: RunScratch) -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        await run.write("plan", "x", ttl=1, expires_at=datetime.fromtimestamp(NOW + 60, UTC))


@pytest.mark.parametrize(
    "ttl",
    [0, -1, 0.0, float("nan"), float("inf"), True, "60", 10**400, 2**32 + 2, 2**63, timedelta(0), timedelta.max],
)
async def test_a_life_of_no_time_or_of_centuries_is_refused(run: RunScratch, path: Path, ttl: float) -> None:  # C152
    await run.write("plan", "x")
    for verb in (run.write("plan", "y", ttl=ttl), run.capture(query("x"), ttl=ttl), run.renew("plan", ttl)):
        with pytest.raises(InvalidArgument) as refused:
            await verb
        assert refused.value.data["argument"] == "ttl"
    with pytest.raises(InvalidArgument):
        ScratchStore.open(path, ttl=ttl)


@pytest.mark.parametrize("ttl", [2**31, 0.001, 1e-9, timedelta(milliseconds=1)])
async def test_a_long_and_a_short_life_are_taken(run: RunScratch, ttl: float) -> None:
    await run.write("plan", "x", ttl=ttl)
    assert (await run.read("plan")).text == "x"


async def test_a_clock_that_steps_back_deletes_nothing_and_a_sweep_only_what_is_over(
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    await run.write("short", "x", ttl=10)
    await run.write("long", "x", ttl=100)
    clock.advance(-1_000)
    assert (await store.sweep()).entries == 0
    assert len(await run.list()) == 2
    clock.advance(1_050)
    assert (await store.sweep()).entries == 1
    clock.advance(-1_000)  # what was swept does not come back; what was not is there
    assert [info.key for info in await run.list()] == ["long"]


async def test_times_are_stored_as_integers_in_milliseconds(store: ScratchStore, run: RunScratch) -> None:  # C108
    await run.write("plan", "x", ttl=1.0005)
    (info,) = await store.list_scratch_entries_for_run("run-42")
    assert (info.created_at, info.expires_at) == (NOW * 1000, NOW * 1000 + 1_000)
    assert {type(info.created_at), type(info.expires_at)} == {int}


def test_every_error_is_a_scratch_error() -> None:
    assert issubclass(HandleNotFound, ScratchError)
    assert issubclass(NoteNotFound, LookupError)
    assert issubclass(InvalidArgument, ValueError)
