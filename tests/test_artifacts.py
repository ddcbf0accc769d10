"""Artifacts: their names, who can read and replace them, what is said when one is not there."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratch import (
    HandleNotFound,
    InvalidArgument,
    Kind,
    LimitExceeded,
    RunNotFound,
    RunScratch,
    ScratchStore,
    StoreClosed,
)
from scratch.artifacts import (
    artifact_names,
    available_artifacts,
    capture_output,
    capture_result,
    check_task_artifacts,
    coordinator_name,
    find_artifact,
    input_artifacts,
    iteration_of,
    output_name,
    result_name,
    write_artifact,
)
from scratch.entries import new_handle
from tests.support import Clock, query, read_back

MIB = 1024 * 1024


@pytest.fixture
async def other(store: ScratchStore, run: RunScratch) -> RunScratch:
    """Another agent of the same run."""
    return await store.run("run-42", agent_id="writer")


@pytest.fixture
async def stranger(store: ScratchStore, run: RunScratch) -> RunScratch:
    """The same agent in another run."""
    return await store.run("run-43", agent_id="researcher")


# --- the coordinator's names


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("Verified Literals.JSON", "coordinator-verified-literals.json"),
        ("../../etc/passwd", "coordinator-etc-passwd.txt"),
        (".md", "coordinator-md.txt"),
        ("", "coordinator-unknown.txt"),
        ("plan", "coordinator-plan.txt"),
        ("report.tar.gz", "coordinator-report-tar.gz"),
        ("coordinator-report.md", "coordinator-report.md"),
        ("Coordinator: Report.md", "coordinator-report.md"),
        ("coordinator-coordinator-x", "coordinator-coordinator-x.txt"),
        ("task-1-web-iter-1-result.txt", "coordinator-task-1-web-iter-1-result.txt"),
        ("...", "coordinator-unknown.txt"),
        ("a.", "coordinator-a.txt"),
        ("a\0b.txt\0", "coordinator-a-b-txt.txt"),
        ("C:\\Users\\x.CSV", "coordinator-c-users-x.csv"),
        ("NUL", "coordinator-nul.txt"),
        ("con.txt", "coordinator-con.txt"),
        ("a.b/c", "coordinator-a-b-c.txt"),
        ("Überblick.md", "coordinator-berblick.md"),
        ("日本語.md", "coordinator-unknown.md"),
        ("a.日本", "coordinator-a.txt"),
        ("a.\u212a", "coordinator-a-k.txt"),  # the Kelvin sign, which is k in lower case
        ("\ud835.txt", "coordinator-unknown.txt"),
        ("a.\n", "coordinator-a.txt"),
    ],
)
def test_a_coordinators_document_gets_a_safe_name(filename: str, name: str) -> None:
    assert coordinator_name(filename) == name


@given(st.text() | st.text(alphabet="aA.-/\\ c", max_size=300))
def test_every_coordinator_name_is_safe_short_and_its_own_name(filename: str) -> None:
    name = coordinator_name(filename)
    stem, dot, extension = name.rpartition(".")
    assert stem.startswith("coordinator-")
    assert dot
    assert extension.isalnum()
    assert set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert "--" not in stem
    assert len(name) <= 128
    assert coordinator_name(name) == name


def test_long_names_are_cut_and_stay_different() -> None:
    names = {coordinator_name("x" * 10_240 + end) for end in ("", "y", "z", ".md", "y.md")}
    assert len(names) == 5
    assert {len(name) for name in names} == {128}
    assert coordinator_name("é" * 10 * MIB) != coordinator_name("é" * 10 * MIB + "x")
    assert len(coordinator_name("a." + "b" * 10_240)) <= 128


# --- the names of results and outputs


def test_names_are_plain_where_the_parts_are() -> None:
    assert result_name("3", "web-researcher", 2) == "task-3-web-researcher-iter-2-result.txt"
    assert result_name(3, "web", 0) == "task-3-web-iter-0-result.txt"
    assert output_name(3, "web", 2, "grep", 7) == "task-3-web-iter-2-grep-7-output.txt"


def test_a_part_that_cannot_stand_as_it_is_is_made_safe_and_gets_a_hash() -> None:
    name = output_name("3", "Web", 2, "run_query", "call/../1")
    assert name.startswith("task-3-web-iter-2-run-query-call-1-")
    assert name.endswith("-output.txt")
    assert name != output_name("3", "web", 2, "run-query", "call-1")


_PART = st.text(alphabet="aA1-_é", max_size=6) | st.sampled_from(["iter-1", "a-iter-1-b", "x" * 99])
_PARTS = st.tuples(_PART, _PART, st.integers(0, 3), _PART, _PART)


@given(_PARTS, _PARTS)
def test_different_attempts_never_have_one_name(
    one: tuple[str, str, int, str, str], two: tuple[str, str, int, str, str]
) -> None:
    assert (output_name(*one) == output_name(*two)) == (one == two)
    assert (result_name(*one[:3]) == result_name(*two[:3])) == (one[:3] == two[:3])
    assert len(output_name(*one)) <= 230
    assert output_name(*one) != result_name(*two[:3])


def test_parts_that_run_together_do_not_give_one_name() -> None:
    assert result_name("a-b", "c", 1) != result_name("a", "b-c", 1)
    assert output_name("1", "w", 1, "a-b", "c") != output_name("1", "w", 1, "a", "b-c")
    assert output_name("1", "w-iter-2-x", 3, "t", "c") != output_name("1", "w", 2, "x-iter-3-t", "c")
    # somebody who knows the hash of another name
    hashed = output_name("1", "w", 1, "t", "C")
    stem = hashed.removesuffix("-output.txt").removeprefix("task-1-w-iter-1-t-")
    assert output_name("1", "w", 1, "t-" + stem.partition("-")[0], stem.partition("-")[2]) != hashed


def test_an_iteration_is_a_whole_number() -> None:
    for iteration in (-1, True, 1.0, "1"):
        with pytest.raises(InvalidArgument):
            result_name("1", "web", iteration)  # type: ignore[arg-type]


def test_a_name_tells_its_iteration_but_a_coordinators_does_not() -> None:
    assert iteration_of(result_name("1", "web", 12)) == 12
    assert iteration_of(output_name("t_1", "W", 3, "iter-9-x", "c")) == 3
    assert iteration_of("coordinator-x-iter-3-y.txt") is None
    assert iteration_of("report") is None


# --- writing and reading


async def test_every_agent_of_the_run_reads_an_artifact(run: RunScratch, other: RunScratch) -> None:
    written = await write_artifact(run, "Plan A.md", "one\ntwo\n")
    assert json.loads(written.to_json()) == {
        "written": True,
        "filename": "coordinator-plan-a.md",
        "replaced": False,
        "chars": 8,
    }
    for reader in (run, other):
        info = await find_artifact(reader, "coordinator-plan-a.md")
        assert info is not None
        assert (info.agent_id, info.size, info.version, info.kind) == ("researcher", 8, 1, Kind.ARTIFACT)
        assert await read_back(reader, "coordinator-plan-a.md") == b"one\ntwo\n"
        assert [info.key for info in await reader.list(kind=Kind.ARTIFACT)] == ["coordinator-plan-a.md"]
        matches = await reader.read_handle("coordinator-plan-a.md", match="TWO", ignore_case=True)
        assert [window.matches for window in matches.windows] == [(4,)]


async def test_another_run_does_not_see_it_and_nobody_else_does(
    store: ScratchStore, run: RunScratch, stranger: RunScratch
) -> None:
    await write_artifact(run, "plan.md", "secret")
    leaver = await store.run("run-42", agent_id="leaver")
    await store.delete_agent("leaver")
    for nobody in (stranger, leaver):
        assert await find_artifact(nobody, "coordinator-plan.md") is None
        assert await artifact_names(nobody) == []
        with pytest.raises(HandleNotFound):
            await nobody.read_handle("coordinator-plan.md")
        with pytest.raises(HandleNotFound):
            await nobody.read_handle("coordinator-plan.md", match="secret")
        with pytest.raises(HandleNotFound):
            await nobody.find("coordinator-plan.md")
    with pytest.raises(RunNotFound):
        await write_artifact(leaver, "plan.md", "other")
    assert await read_back(run, "coordinator-plan.md") == b"secret"


async def test_what_is_no_name_is_not_found(run: RunScratch) -> None:
    for name in ("", "\ud835", "a\0b", "x" * 300, "coordinator-%", new_handle()):
        assert await find_artifact(run, name) is None
        with pytest.raises(HandleNotFound):
            await run.read_handle(name)


async def test_handles_and_notes_are_no_artifacts(run: RunScratch) -> None:
    captured = await run.capture(query("x" * 20_000))
    await run.write("plan", "a note")
    assert captured.handle is not None
    assert await find_artifact(run, captured.handle) is None
    assert await find_artifact(run, "plan") is None
    assert await artifact_names(run) == []


async def test_any_agent_replaces_it_and_the_version_goes_on(
    store: ScratchStore, run: RunScratch, other: RunScratch, clock: Clock
) -> None:
    await write_artifact(run, "plan.md", "x" * 200_000)
    clock.advance(10)
    written = await write_artifact(other, "PLAN.md", "short")
    assert written.replaced
    info = await find_artifact(run, "coordinator-plan.md")
    assert info is not None
    assert (info.agent_id, info.version, info.size) == ("writer", 2, 5)
    assert info.expires_at - info.created_at == (3_600 + 10) * 1000
    assert await read_back(run, "coordinator-plan.md") == b"short"
    assert len(await store.list_scratch_entries_for_run("run-42")) == 1


async def test_an_expired_one_is_gone_and_its_name_is_free(run: RunScratch, other: RunScratch, clock: Clock) -> None:
    await write_artifact(run, "plan.md", "old", ttl=5)
    clock.advance(6)
    assert await find_artifact(other, "coordinator-plan.md") is None
    assert await artifact_names(other) == []
    written = await write_artifact(other, "plan.md", "new")
    assert not written.replaced
    info = await find_artifact(run, "coordinator-plan.md")
    assert info is not None
    assert info.version == 1


async def test_writers_of_one_name_take_turns(store: ScratchStore) -> None:
    runs = [await store.run("run-42", agent_id=f"agent-{number % 4}") for number in range(40)]
    await asyncio.gather(*(write_artifact(one, "plan.md", f"{number:05}" * 1_000) for number, one in enumerate(runs)))
    info = await find_artifact(runs[0], "coordinator-plan.md")
    assert info is not None
    assert info.version == 40
    content = await read_back(runs[0], "coordinator-plan.md")
    assert content == content[:5] * 1_000


async def test_over_the_limits_nothing_is_changed(path: Path, clock: Clock) -> None:
    async with ScratchStore.open(path, clock=clock, max_entry_bytes=1_000, max_run_bytes=1_500) as store:
        run = await store.run("run-42", agent_id="researcher")
        await write_artifact(run, "plan.md", "a" * 900)
        for content in ("b" * 1_001, "é" * 600):
            with pytest.raises(LimitExceeded):
                await write_artifact(run, "plan.md", content)
        with pytest.raises(LimitExceeded):
            await write_artifact(run, "more.md", "c" * 700)
        await write_artifact(run, "plan.md", "d" * 1_000)  # what it replaces does not count
        assert await read_back(run, "coordinator-plan.md") == b"d" * 1_000
        assert (await store.check()).problems == ()


async def test_a_search_goes_on_when_the_artifact_is_replaced_meanwhile(
    run: RunScratch, other: RunScratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_artifact(run, "log.txt", "x" * MIB + "needle")
    scan = run._database.scan
    calls = 0

    async def replaced_meanwhile(*arguments: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            await write_artifact(other, "log.txt", "needle" + "x" * MIB)
        return await scan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run._database, "scan", replaced_meanwhile)
    matches = await run.read_handle("coordinator-log.txt", match="needle")
    assert calls == 2
    assert [window.matches for window in matches.windows] == [(0,)]
    assert matches.searched_bytes == MIB + 6


async def test_pieces_never_mix_two_versions(run: RunScratch, other: RunScratch) -> None:
    await write_artifact(run, "log.txt", "a" * 3 * MIB)
    info = await run.find("coordinator-log.txt")
    pieces = run.pieces(info)
    assert await anext(pieces) == b"a" * MIB
    await write_artifact(other, "log.txt", "b" * 3 * MIB)  # of the same size
    with pytest.raises(HandleNotFound):
        async for _ in pieces:
            pass
    assert b"".join([piece async for piece in run.pieces(await run.find("coordinator-log.txt"))]) == b"b" * 3 * MIB


async def test_a_document_of_any_text_reads_back(run: RunScratch) -> None:
    for text in ("", "\ud835\0\u2028é日😀", "日" * 100_000):
        written = await write_artifact(run, "any.txt", text)
        assert written.chars == len(text)
        assert await read_back(run, "coordinator-any.txt") == text.encode("utf-8", "surrogatepass")


async def test_bad_arguments_are_named(run: RunScratch) -> None:
    for filename, content, argument in ((7, "x", "filename"), ("x", None, "content"), ("x", b"x", "content")):
        with pytest.raises(InvalidArgument) as caught:
            await write_artifact(run, filename, content)  # type: ignore[arg-type]
        assert caught.value.data["argument"] == argument
    with pytest.raises(InvalidArgument):
        await write_artifact(run, "x", "y", ttl=-1)
    with pytest.raises(InvalidArgument):
        await run.write_artifact(new_handle(), "x")
    with pytest.raises(InvalidArgument):
        await run.write_artifact("x", {1: {2: object}, "a": (set(), {frozenset(): 1})})


async def test_without_a_store_the_coordinator_is_told_what_to_do() -> None:
    written = await write_artifact(None, "plan.md", "text")
    answer = json.loads(written.to_json())
    assert answer["written"] is False
    assert "into the task" in answer["error"]


# --- what workers and tools give


async def test_a_large_result_is_saved_and_its_head_stands_for_it(run: RunScratch, other: RunScratch) -> None:
    text = "é" * 1_999 + "x" + "日" * 1_000
    shown = await capture_result(run, text, task=1, worker="web", iteration=2)
    head, _, line = shown.rpartition("\n")
    assert head == "é" * 1_000
    assert "task-1-web-iter-2-result.txt" in line
    assert await read_back(other, "task-1-web-iter-2-result.txt") == text.encode()


async def test_the_head_of_a_result_ends_where_a_character_does(run: RunScratch) -> None:
    for text in ("a" + "日" * 2_000, "ab" + "\ud835" * 2_000, "abc" + "😀" * 2_000):
        shown = await capture_result(run, text, task=1, worker="web", iteration=2)
        head = shown.rpartition("\n")[0]
        assert text.startswith(head)
        assert 1_997 <= len(head.encode("utf-8", "surrogatepass")) <= 2_000


@pytest.mark.parametrize("text", ["", "x" * 4_000, "é" * 2_000])
async def test_a_small_result_stays_as_it_is(run: RunScratch, text: str) -> None:
    assert await capture_result(run, text, task=1, worker="web", iteration=2) == text
    assert await artifact_names(run) == []


async def test_the_thresholds_can_be_set(run: RunScratch) -> None:
    shown = await capture_result(run, "x" * 90, task=1, worker="web", iteration=2, threshold_bytes=80, head_bytes=3)
    assert shown.startswith("xxx\n")
    saved = await capture_output(
        run, "grep", 1, "x", 0.2, task=1, worker="web", iteration=2, threshold_bytes=1, threshold_seconds=0.1
    )
    assert saved == "task-1-web-iter-2-grep-1-output.txt"


async def test_a_tools_output_is_saved_when_it_is_large_or_slow(run: RunScratch) -> None:
    async def output(call: str, text: str, seconds: float) -> str | None:
        return await capture_output(run, "grep", call, text, seconds, task=1, worker="web", iteration=2)

    assert await output("a", "x" * 500, 5.0) is None
    assert await output("b", "x" * 501, 0.0) == "task-1-web-iter-2-grep-b-output.txt"
    assert await output("c", "é" * 251, 0.0) == "task-1-web-iter-2-grep-c-output.txt"
    assert await output("d", "", 5.1) == "task-1-web-iter-2-grep-d-output.txt"
    info = await find_artifact(run, "task-1-web-iter-2-grep-b-output.txt")
    assert info is not None
    assert info.source_tool == "grep"


async def test_an_attempt_that_is_made_again_costs_no_earlier_one(run: RunScratch, other: RunScratch) -> None:
    # C27, C30: call ids come again, and are empty
    texts = [f"{number:03}" * 200 for number in range(24)]
    names = await asyncio.gather(
        *(
            capture_output(one, "grep", "", text, 0.0, task=1, worker="web", iteration=2)
            for one, text in zip([run, other] * 12, texts, strict=True)
        )
    )
    assert len(set(names)) == 24
    for name, text in zip(names, texts, strict=True):
        assert name is not None
        assert await read_back(run, name) == text.encode()
    for _ in range(2):
        await capture_result(run, "x" * 5_000, task=1, worker="web", iteration=2)
    assert await find_artifact(run, "task-1-web-iter-2-2-result.txt") is not None


async def test_the_coordinator_cannot_overwrite_a_result(run: RunScratch) -> None:
    await capture_result(run, "x" * 5_000, task=1, worker="web", iteration=2)
    written = await write_artifact(run, "task-1-web-iter-2-result.txt", "mine")
    assert not written.replaced
    assert await read_back(run, "task-1-web-iter-2-result.txt") == b"x" * 5_000


async def test_what_cannot_be_saved_is_given_whole_and_logged(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScratchStore.open(path, clock=clock, max_run_bytes=1_000) as store:
        run = await store.run("run-42", agent_id="researcher")
        text = "x" * 5_000
        with caplog.at_level(logging.ERROR, "scratch"):
            assert await capture_result(run, text, task=1, worker="web", iteration=2) == text
            assert await capture_result(run, text, task=1, worker="web", iteration=-2) == text
            assert await capture_output(run, "grep", "1", text, 0.0, task=1, worker="web", iteration=2) is None
    assert await capture_result(run, text, task=1, worker="web", iteration=2) == text
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        LimitExceeded,
        InvalidArgument,
        LimitExceeded,
        StoreClosed,
    ]


async def test_without_a_store_nothing_is_saved() -> None:
    assert await capture_result(None, "x" * 5_000, task=1, worker="web", iteration=2) == "x" * 5_000
    assert await capture_output(None, "grep", "1", "x" * 5_000, 9.0, task=1, worker="web", iteration=2) is None


# --- what is there


async def test_the_closest_names_come_first_and_the_rest_is_counted(run: RunScratch) -> None:
    for number in range(60):
        await run.write_artifact(f"task-{number}-web-iter-1-result.txt", "x")
    await write_artifact(run, "Verified Literals.json", "{}")
    for wanted in ("verified_literals.json", "Verified Literals", "coordinator-verified-literal.json"):
        available = await available_artifacts(run, wanted)
        assert available.names[0] == "coordinator-verified-literals.json"
        assert (len(available.names), available.omitted) == (40, 21)
    available = await available_artifacts(run, "task-7-web-iter-1-result.txt", "verified literals.json", limit=2)
    assert available.names == ("task-7-web-iter-1-result.txt", "coordinator-verified-literals.json")


async def test_many_names_are_all_compared(run: RunScratch) -> None:
    names = [f"{number:04}-{random.Random(number).random()}" for number in range(1_200)]
    await asyncio.gather(*(run.write_artifact(name, "x") for name in names))
    assert await artifact_names(run) == names
    available = await available_artifacts(run, names[1_150] + "x")
    assert available.names[0] == names[1_150]
    assert available.omitted == 1_160


async def test_listing_pages_by_name(run: RunScratch, other: RunScratch) -> None:
    for name, writer in (("a%", run), ("ab", other), ("b", run)):
        await writer.write_artifact(name, name)
    assert [info.key for info in await run.list(kind=Kind.ARTIFACT, prefix="a")] == ["a%", "ab"]
    assert [info.key for info in await run.list(kind=Kind.ARTIFACT, prefix="a%")] == ["a%"]
    assert [info.key for info in await run.list(kind=Kind.ARTIFACT, after="a%", limit=1)] == ["ab"]


# --- planners and workers


async def test_a_plan_with_artifacts_that_are_there_is_accepted(run: RunScratch, other: RunScratch) -> None:
    await write_artifact(run, "plan.md", "x")
    checked = await check_task_artifacts(other, ["coordinator-plan.md", "coordinator-plan.md"])
    assert checked.error is None
    assert [info.key for info in checked.found] == ["coordinator-plan.md"]
    assert json.loads(checked.to_json()) == {"accepted": True, "artifacts": ["coordinator-plan.md"]}
    assert (await check_task_artifacts(other, [])).error is None


async def test_a_plan_with_missing_ones_is_refused_naming_them_and_what_there_is(run: RunScratch) -> None:
    await write_artifact(run, "plan.md", "x")
    checked = await check_task_artifacts(run, ["plan.md", "coordinator-plan.md", "a\ud835"])
    answer = json.loads(checked.to_json())
    assert answer["accepted"] is False
    assert answer["missing"] == ["plan.md", "a\ud835"]
    assert answer["available"] == ["coordinator-plan.md"]
    assert "plan.md" in answer["error"]
    assert "available_omitted" not in answer


async def test_long_lists_are_cut_and_counted(run: RunScratch) -> None:
    for number in range(45):
        await run.write_artifact(f"a-{number}", "x")
    checked = await check_task_artifacts(run, [f"missing-{number}" + "x" * 10_000 for number in range(50)])
    answer = json.loads(checked.to_json())
    assert (len(answer["missing"]), answer["missing_omitted"]) == (40, 10)
    assert (len(answer["available"]), answer["available_omitted"]) == (40, 5)
    assert len(checked.to_json()) < 10_000


async def test_a_plan_with_artifacts_is_refused_without_a_store(run: RunScratch) -> None:
    assert (await check_task_artifacts(None, [])).error is None
    refused = await check_task_artifacts(None, ["plan.md"])
    assert refused.error is not None
    assert "no store" in refused.error
    nothing = await check_task_artifacts(run, ["plan.md"])
    assert nothing.error is not None
    assert "this run has none" in nothing.error
    for names in ("plan.md", [7]):
        with pytest.raises(InvalidArgument):
            await check_task_artifacts(run, names)  # type: ignore[arg-type]


async def test_a_worker_is_told_its_input_artifacts(run: RunScratch) -> None:
    await write_artifact(run, "plan.md", "x" * 4_000)
    await run.write_artifact('odd "name"', bytes(range(256)))
    infos = await run.list(kind=Kind.ARTIFACT)
    assert input_artifacts(infos, "my_read").splitlines() == [
        "INPUT ARTIFACTS",
        '- coordinator-plan.md (4,000 bytes, about 1,000 tokens): read it with my_read(filename="coordinator-plan.md")',
        '- odd "name" (256 bytes, not text): read it with my_read(filename="odd \\"name\\"")',
    ]
    assert input_artifacts([]) == ""
