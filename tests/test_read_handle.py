"""read_handle on a real store: windows and searches of stored contents, and who may read them."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest

from scratch import (
    HandleNotFound,
    InvalidArgument,
    Kind,
    Matches,
    RunScratch,
    ScratchStore,
    SpillPolicy,
    Window,
    windows,
)
from scratch.database import Database
from tests.support import Clock, query

CHUNK = 65_536


async def keep(run: RunScratch, content: object) -> str:
    """Store any content, however small, and return its handle."""
    everything = run.with_policy(SpillPolicy(tool_thresholds={"*": 0}, stub_must_be_smaller=False))
    captured = await everything.capture(query(content))
    assert captured.handle is not None
    return captured.handle


async def follow(run: RunScratch, handle: str, length: int) -> list[Window]:
    """All windows from the start on."""
    found = [await run.read_handle(handle, length=length)]
    while (offset := found[-1].next_offset) is not None:
        found.append(await run.read_handle(handle, offset=offset, length=length))
    return found


# --- byte ranges


@pytest.mark.parametrize("length", [4_096, 5_001, 32_767, 32_768])
@pytest.mark.parametrize(
    "text",
    [
        "x" * (2 * CHUNK + 17),
        "日本語" * 20_000,  # C2: a character across each piece of the store
        "a" + "😀" * 40_000,
        "a\ud835b\r\n\x00\u2028" * 12_000,
    ],
    ids=["ascii", "cjk", "emoji", "odd"],
)
async def test_following_next_offset_gives_back_every_byte(run: RunScratch, text: str, length: int) -> None:
    handle = await keep(run, text)
    found = await follow(run, handle, length)
    assert "".join(window.text for window in found) == text
    size = len(text.encode("utf-8", "surrogatepass"))
    assert all(0 < window.end - window.offset <= length and window.size == size for window in found)
    assert [window.eof for window in found] == [False] * (len(found) - 1) + [True]


async def test_windows_of_random_places_are_the_same_as_of_the_content(run: RunScratch) -> None:
    rng = random.Random(7)
    text = "".join(rng.choice("aé日😀\ud835\n") for _ in range(100_000))
    content = text.encode("utf-8", "surrogatepass")
    handle = await keep(run, text)
    places = [rng.randrange(len(content)) for _ in range(60)]
    places += [edge + step for edge in (CHUNK, 2 * CHUNK, len(content) - 2) for step in range(-4, 5)]
    for offset in places:
        length = rng.choice([1, 2, 3, 4, 5, 100, 4_096, 32_768])
        window = await run.read_handle(handle, offset=offset, length=length)
        assert window == windows.cut_window(content, 0, offset=offset, length=length, size=len(content), binary=False)
        assert window.data == content[window.offset : window.end]


@pytest.mark.parametrize("length", range(1, 8))
async def test_the_smallest_windows_get_on(run: RunScratch, length: int) -> None:  # C2, C7
    text = "日本語😀é\r\na\ud835"
    found = await follow(run, await keep(run, text), length)
    assert "".join(window.text for window in found) == text
    assert all(window.text for window in found)


async def test_bytes_that_are_no_text_come_as_base64(run: RunScratch) -> None:  # C58
    content = bytes(range(256)) * 1_000
    found = await follow(run, await keep(run, content), 32_768)
    assert b"".join(window.data for window in found) == content
    assert {window.encoding for window in found} == {"base64"}
    assert json.loads(found[0].to_json())["encoding"] == "base64"


async def test_a_long_line_is_never_more_than_a_window(run: RunScratch) -> None:  # C10, C11
    rows = json.dumps([{"id": number, "text": "x" * 60} for number in range(3_000)])
    handle = await keep(run, rows)
    window = await run.read_handle(handle)
    assert len(window.data) == windows.DEFAULT_LENGTH == 4_096
    window = await run.read_handle(handle, length=10**9)
    assert len(window.data) == windows.MAX_LENGTH == 32_768
    assert window.note == "length was cut to 32768, the most for one call."
    assert window.next_offset == 32_768


async def test_text_goes_on_behind_a_nul(run: RunScratch) -> None:  # C72
    handle = await keep(run, "ab\x00cd\x00ef")
    assert (await run.read_handle(handle, offset=3, length=2)).text == "cd"
    assert (await run.read_handle(handle)).text == "ab\x00cd\x00ef"
    assert (await run.read_handle(handle, match="ef")).windows[0].matches == (6,)


@pytest.mark.parametrize("offset", [9, 10, 100, 2**31, 2**32 + 2, 2**63 - 1])
async def test_at_or_past_the_end_there_is_nothing_more(run: RunScratch, offset: int) -> None:  # C152, C153
    handle = await keep(run, "123456789")
    window = await run.read_handle(handle, offset=offset)
    assert (window.offset, window.end, window.size, window.text) == (9, 9, 9, "")
    assert (window.eof, window.next_offset) == (True, None)
    matches = await run.read_handle(handle, match="1", offset=offset)
    assert (matches.total_matches, matches.searched_bytes, matches.complete) == (0, 0, True)


async def test_a_newline_alone_is_a_content_of_one_byte(run: RunScratch) -> None:  # C50
    window = await run.read_handle(await keep(run, "\n"))
    assert (window.text, window.size, window.eof, window.note) == ("\n", 1, True, None)


@pytest.mark.parametrize("value", ["", b""])
async def test_an_empty_content_says_that_it_is_empty(run: RunScratch, value: Any) -> None:  # C50
    handle = await keep(run, value)
    window = await run.read_handle(handle)
    assert (window.text, window.size, window.eof, window.next_offset) == ("", 0, True, None)
    assert window.note is not None
    assert "do not retry" in window.note
    found = await run.read_handle(handle, match="x")
    assert (found.windows, found.total_matches, found.searched_bytes, found.complete) == ((), 0, 0, True)


BAD = [-1, True, False, None, "3", 2.0, 2**63, 10**30, [0]]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("argument", ["offset", "length", "context", "max_windows"])
async def test_what_is_no_number_is_refused_by_name(run: RunScratch, argument: str, value: Any) -> None:  # C152, C153
    handle = await keep(run, "some text")
    arguments: dict[str, Any] = {argument: value}
    if argument in ("context", "max_windows"):
        arguments["match"] = "text"
    with pytest.raises(InvalidArgument) as caught:
        await run.read_handle(handle, **arguments)
    assert caught.value.data["argument"] == argument


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"length": 0}, "length"),
        ({"match": "x", "max_windows": 0}, "max_windows"),
        ({"match": ""}, "match"),
        ({"match": 5}, "match"),
        ({"match": b"x"}, "match"),
        ({"match": "x" * 1_025}, "match"),
        ({"match": "x", "ignore_case": 1}, "ignore_case"),
        ({"match": "x", "ignore_case": None}, "ignore_case"),
        ({"match": "x", "offset": -1}, "offset"),
    ],
)
async def test_other_nonsense_is_refused_by_name(run: RunScratch, arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await run.read_handle(await keep(run, "some text"), **arguments)
    assert caught.value.data["argument"] == argument


async def test_a_window_of_a_large_content_takes_little_memory(run: RunScratch) -> None:  # C157
    handle = await keep(run, b"x" * 20_000_000)
    await run.read_handle(handle, offset=1)
    tracemalloc.start()
    await run.read_handle(handle, offset=19_000_000, length=1_024)
    _, window = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    found = await run.read_handle(handle, match="xyz", ignore_case=True)
    _, search = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.searched_bytes == 20_000_000
    assert window < 300_000
    assert search < 3_000_000


# --- who may read


async def test_whatever_is_no_live_handle_of_this_scope_gets_one_answer(  # C86, C94
    store: ScratchStore, run: RunScratch, clock: Clock
) -> None:
    expired = await keep(run, "text")
    clock.advance(4_000)
    live = await keep(run, "text")
    other_agent = await store.run("run-42", agent_id="writer")
    other_run = await store.run("run-43", agent_id="researcher")
    await run.write("plan", "a note is no handle")
    asked: list[tuple[RunScratch, Any]] = [
        (run, "r_222222222222"),
        (run, expired),
        (other_agent, live),
        (other_run, live),
        (run, ""),
        (run, "plan"),
        (run, live.upper()),
        (run, f" {live}"),
        (run, f"{live}\n"),
        (run, "r_" + "x" * 100_000),
        (run, "\ud835"),
        (run, "{0!r}"),
        (run, None),
        (run, 5),
        (run, ["r_222222222222"]),
    ]
    cases: list[dict[str, Any]] = [{}, {"match": "text"}, {"offset": 2**62}]
    for scope, handle in asked:
        for arguments in cases:
            with pytest.raises(HandleNotFound) as caught:
                await scope.read_handle(handle, **arguments)
            shown = caught.value.data["handle"]
            assert isinstance(shown, str)
            assert len(shown) <= 64
            assert caught.value.message == (
                f"no live handle {shown!r} here: it is unknown or has expired; run the tool again, do not retry"
            )
    assert (await run.read_handle(live)).text == "text"


@pytest.mark.parametrize("verb", ["get_info", "scan"])
async def test_a_handle_that_is_deleted_during_a_search_is_not_found(
    run: RunScratch, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await keep(run, "text " * 100)
    real = getattr(Database, verb)

    async def then_delete(*args: Any) -> Any:
        result = await real(*args)
        await run.delete(handle)
        return result

    monkeypatch.setattr(Database, verb, then_delete)
    with pytest.raises(HandleNotFound):
        await run.read_handle(handle, match="text")


async def test_a_deleted_handle_is_not_found(run: RunScratch) -> None:
    handle = await keep(run, "text")
    assert await run.delete(handle)
    with pytest.raises(HandleNotFound):
        await run.read_handle(handle)


# --- searches


async def test_a_match_tells_where_to_read(run: RunScratch) -> None:  # C13
    handle = await keep(run, "a" * 60_000 + "NEEDLE" + "b" * 60_000)
    found = await run.read_handle(handle, match="NEEDLE", context=10)
    (window,) = found.windows
    assert (window.offset, window.end, window.matches) == (59_990, 60_016, (60_000,))
    assert window.text == "a" * 10 + "NEEDLE" + "b" * 10
    assert (found.total_matches, found.complete, found.next_offset) == (1, True, None)
    assert (await run.read_handle(handle, offset=60_000, length=6)).text == "NEEDLE"


async def test_no_hit_says_that_everything_was_searched(run: RunScratch) -> None:
    handle = await keep(run, "日" * 300_000)
    found = await run.read_handle(handle, match="月")
    assert (found.windows, found.total_matches, found.searched_bytes, found.size) == ((), 0, 900_000, 900_000)
    assert (found.complete, found.next_offset) == (True, None)
    assert json.loads(found.to_json())["total_matches"] == 0
    assert (await run.read_handle(handle, match="月", offset=300_000)).searched_bytes == 600_000


@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize("filler", ["x", "日", "\ud835"])
async def test_matches_across_the_pieces_of_a_search_are_found_once(
    run: RunScratch, filler: str, ignore_case: bool
) -> None:
    needle = "Nadel-Straße-İx"
    width = len(filler.encode("utf-8", "surrogatepass"))
    places: list[int] = []
    content = b""
    for edge in range(windows.SLICE, 4 * windows.SLICE, windows.SLICE // 4):  # around every edge, and between them
        gap = (edge - 9 - len(content)) // width
        content += (filler * gap).encode("utf-8", "surrogatepass")
        places.append(len(content))
        content += (needle.upper() if ignore_case and len(places) % 2 else needle).replace("SS", "ẞ").encode()
    handle = await keep(run, content.decode("utf-8", "surrogatepass"))
    found = await run.read_handle(handle, match=needle, ignore_case=ignore_case, context=5, max_windows=50)
    assert [start for window in found.windows for start in window.matches] == places
    assert found.total_matches == len(places)
    for window in found.windows:
        assert window.text.encode("utf-8", "surrogatepass") == content[window.offset : window.end]
    last = await run.read_handle(handle, match=needle, ignore_case=ignore_case, offset=places[-1] + 1)
    assert last.total_matches == 0


async def test_every_match_is_met_once_by_going_on(run: RunScratch) -> None:
    text = "aba" * 50_000
    handle = await keep(run, text)
    seen: list[int] = []
    offset: int | None = 449_000 // 3 * 3 - 300_000
    first = offset
    while offset is not None:
        found = await run.read_handle(handle, match="abaaba", offset=offset, context=100, max_windows=7)
        assert found.total_matches == (len(text) - offset) // 6
        assert sum(window.end - window.offset for window in found.windows) <= windows.MAX_LENGTH
        seen += [start for window in found.windows for start in window.matches]
        offset = found.next_offset
    assert first is not None
    assert seen == list(range(first, len(text) - 5, 6))


async def test_case_is_ignored_character_by_character(run: RunScratch) -> None:
    text = "İSTANBUL istanbul Straße STRAẞE ΟΔΟΣ οδος \N{KELVIN SIGN}elvin"
    handle = await keep(run, text)
    for match, total in (("istanbul", 2), ("straße", 2), ("οδοσ", 2), ("kelvin", 1), ("STRASSE", 0)):
        found: Matches = await run.read_handle(handle, match=match, ignore_case=True, context=0)
        assert found.total_matches == total
        for window in found.windows:
            for start in window.matches:
                there = await run.read_handle(handle, offset=start, length=9)
                assert there.offset == start
    assert (await run.read_handle(handle, match="istanbul")).total_matches == 1


async def test_a_word_in_json_is_found_as_it_is_written(run: RunScratch) -> None:  # C80, C16
    handle = await keep(run, {"city": "Zürich", "log": "a\nb\n"})
    assert (await run.read_handle(handle, match="Zürich")).total_matches == 1
    assert (await run.read_handle(handle, match="\\n")).total_matches == 2


async def test_wildcards_are_plain_characters(run: RunScratch) -> None:
    handle = await keep(run, "100% of a_b, axb, [x] .* \\d")
    for match, total in (("%", 1), ("_", 1), ("a_b", 1), (".*", 1), ("[x]", 1), ("\\d", 1), ("a?b", 0)):
        assert (await run.read_handle(handle, match=match)).total_matches == total


async def test_an_offset_of_a_hit_opens_the_hit_whatever_the_line_ends(run: RunScratch) -> None:  # C60, C61
    text = "a\r\nb\x0cc\u2028d\n\rhit\r\n"
    handle = await keep(run, text)
    (window,) = (await run.read_handle(handle, match="hit")).windows
    assert window.text == text
    assert (await run.read_handle(handle, offset=window.matches[0], length=3)).text == "hit"


async def test_half_of_a_pair_is_found(run: RunScratch) -> None:  # C63, C65
    handle = await keep(run, "a\ud835b" * 5_000 + "\udcb2")
    found = await run.read_handle(handle, match="\ud835")
    assert found.total_matches == 5_000
    found.to_json().encode()
    assert (await run.read_handle(handle, match="\udcb2")).windows[0].matches == (25_000,)


async def test_context_does_not_cut_a_character(run: RunScratch) -> None:  # C5
    handle = await keep(run, "─x─")
    for context in range(5):
        (window,) = (await run.read_handle(handle, match="x", context=context)).windows
        assert window.text == ("─x─" if context >= 3 else "x")


async def test_bytes_can_be_searched(run: RunScratch) -> None:
    handle = await keep(run, b"\xff" * 100_000 + b"KEY" + b"\xfe" * 100_000)
    found = await run.read_handle(handle, match="key", ignore_case=True, context=3)
    assert found.encoding == "base64"
    (window,) = found.windows
    assert (window.offset, window.matches, window.text) == (99_997, (100_000,), "////S0VZ/v7+")


async def test_more_than_the_most_is_cut_and_said(run: RunScratch) -> None:
    handle = await keep(run, "x" + "." * 20_000)
    found = await run.read_handle(handle, match="x", context=5_000, max_windows=60)
    assert found.windows[0].end == 4_097
    assert found.note == (
        "context was cut to 4096, the most for one call. max_windows was cut to 50, the most for one call."
    )
    assert (await run.read_handle(handle, match="x")).note is None


async def test_reading_changes_nothing(run: RunScratch, clock: Clock) -> None:
    handle = await keep(run, "text " * 100)
    before = await run.list(kind=Kind.HANDLE)
    clock.advance(1_000)
    await run.read_handle(handle)
    await run.read_handle(handle, match="text")
    assert await run.list(kind=Kind.HANDLE) == before
