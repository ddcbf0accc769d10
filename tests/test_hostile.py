"""Hostile input: whatever a model, a tool or a file hands over, the answer is one of the promised ones.

Bounded here; ``pytest tests/test_hostile.py tests/test_hostile_terminal.py --hypothesis-profile=soak`` tries a hundred
times as many.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratch import InvalidArgument, Observation, OwnText, RunScratch, ScratchStore, SpillPolicy
from scratch.artifacts import write_artifact
from scratch.budget import MAX_EXTRACTION_TOKENS
from scratch.config import Config, ConfigError
from scratch.content import read_content
from scratch.explore import jsonscan
from scratch.tokens import estimate_tokens
from scratch.tools import VERBS, Toolset, Verb
from scratch.tools.refusal import MOST_TOKENS
from tests.hostile_support import (
    CONTENTS,
    HANDLES,
    PATHS,
    PATTERNS,
    PLACE,
    TEXTS,
    UNHEALTHY,
    VALUES,
    WORST,
    arguments,
    configurations,
)
from tests.support import Clock, query, read_back

EXAMPLE = (Path(__file__).parent / "data" / "scratch.toml").read_text(encoding="utf-8")
LOOKING = [verb for verb in VERBS if verb.parameters[0].name == "handle"]
STORE_ALL = SpillPolicy(threshold_bytes=0, stub_must_be_smaller=False)
LIVE = {
    "@json": {
        "a": [{"b": n, "é": "x" * n, "log": "a\nERROR\n"} for n in range(40)],
        "log": "a\r\nb",
        "0": {"-1": None},
    },
    "@lines": "\n".join(json.dumps({"a": n, "inner": json.dumps({"a": [n]})}) for n in range(50)),
    "@text": "a ERROR é\r\n日本語😀\n\ud800\x00\n" * 500 + "x" * 3_000,
    "@binary": bytes(range(256)) * 5,
}


def bounded(examples: int) -> settings:
    """So many examples; more in the profile ``soak``."""
    more = max(1, settings().max_examples // 100)
    return settings(max_examples=examples * more, deadline=None, suppress_health_check=UNHEALTHY)


@pytest.fixture
async def run(store: ScratchStore) -> RunScratch:
    return (await store.run("run-42", agent_id="researcher")).with_policy(STORE_ALL)


@pytest.fixture
async def live(run: RunScratch) -> AsyncIterator[dict[str, str]]:
    """The real names of HANDLES. What they hold is the same afterwards, whatever was called."""
    names = {name: (await run.capture(query(content))).handle or "" for name, content in LIVE.items()}
    names["@artifact"] = (await write_artifact(run, "report.md", "# a\n\nb\n" * 100)).filename
    names["@empty"] = (await write_artifact(run, "empty.txt", "")).filename
    assert set(names) == set(HANDLES)
    yield names
    for name, content in LIVE.items():
        assert await read_back(run, names[name]) == b"".join(read_content(content).pieces())


async def ask(tools: Toolset, name: Any, given: Any, cap: int = MAX_EXTRACTION_TOKENS) -> OwnText:
    """Call a tool; its answer must be one of those that are promised."""
    answer = await tools.call(name, given)
    assert type(answer) is OwnText
    answer.encode()  # any client can send it
    if answer.is_error:
        error = json.loads(answer)
        assert error["error"] != "internal_error"
        assert isinstance(error["error"], str)
        assert error["message"]
        assert "Traceback" not in answer
        assert estimate_tokens(answer) <= MOST_TOKENS
    else:
        assert estimate_tokens(answer) <= cap
    return answer


def with_names(given: Any, live: dict[str, str]) -> Any:
    """Arguments with real handles."""
    if not isinstance(given, dict):
        return given
    return {
        key: live.get(value, value) if key in {"handle", "filename"} and isinstance(value, str) else value
        for key, value in given.items()
    }


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
@bounded(60)
@given(data=st.data())
async def test_every_verb_answers_whatever_its_arguments(
    run: RunScratch, live: dict[str, str], verb: Verb, data: st.DataObject
) -> None:
    given = with_names(data.draw(arguments(verb)), live)
    kept = {name: value for name, value in given.items() if value not in live.values()} if verb.writes else given
    await ask(Toolset(run), verb.name, kept)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_a_value_that_cannot_be_shown_is_refused_like_any_other(run: RunScratch, verb: Verb) -> None:
    tools = Toolset(run)
    for value in WORST:
        await ask(tools, verb.name, value)
        await ask(tools, value, {})
        for parameter in verb.parameters:
            needed = {p.name: [value] if p.kind == "strings" else value for p in verb.parameters if p.required}
            await ask(tools, verb.name, {**needed, parameter.name: value})
        await ask(tools, verb.name, {"handle": "x", "other": value})


@bounded(150)
@given(verb=st.sampled_from(VERBS), given=VALUES, other=VALUES, data=st.data())
async def test_arguments_in_any_other_form_are_refused_in_words(
    run: RunScratch, live: dict[str, str], verb: Verb, given: Any, other: Any, data: st.DataObject
) -> None:
    tools = Toolset(run)
    await ask(tools, verb.name, given)
    await ask(tools, other, {})
    try:
        text = json.dumps(with_names(data.draw(arguments(verb)), live))
    except (TypeError, ValueError):
        return
    name = "read" if verb.writes else verb.name
    await ask(tools, name, text)
    for place in data.draw(st.lists(PLACE, max_size=3)):  # almost JSON
        at = int(place * len(text))
        text = text[:at] + data.draw(st.sampled_from(['"', "}", "\\", "\x00", ""])) + text[at + 1 :]
        await ask(tools, name, text)
        await ask(tools, name, text.encode()[:-1] + b"\xff")


@bounded(150)
@given(content=CONTENTS, data=st.data())
async def test_every_content_is_stored_looked_into_and_comes_back(
    run: RunScratch, clock: Clock, store: ScratchStore, content: Any, data: st.DataObject
) -> None:
    cap = data.draw(st.sampled_from([MAX_EXTRACTION_TOKENS, 500, 20]))
    tools = Toolset(run, max_extraction_tokens=cap)
    captured = await tools.capture(Observation(content, tool=data.draw(TEXTS), tool_class="query"))
    assert captured.decision.reason == "over_threshold" or captured.text == ""
    if captured.handle is None:
        return
    captured.text.encode()
    stub = json.loads(captured.text)
    assert list(stub) == ["handle", "preview", "size", "note"]
    assert len(json.dumps(stub["preview"], ensure_ascii=False).encode()) - 2 <= 1_024
    for verb in data.draw(st.permutations(LOOKING)):
        given = data.draw(arguments(verb)) | {"handle": captured.handle}
        await ask(tools, verb.name, given, cap)
    assert await read_back(run, captured.handle) == b"".join(read_content(content).pieces())
    assert await run.delete(captured.handle)
    if data.draw(st.integers(0, 99)) == 0:
        clock.advance(4_000)
        await store.sweep()


@bounded(150)
@given(name=st.sampled_from(HANDLES), paths=st.lists(PATHS, min_size=1, max_size=3))
async def test_every_path_is_followed_or_refused(
    run: RunScratch, live: dict[str, str], name: str, paths: list[str]
) -> None:
    tools = Toolset(run)
    for tool in ("get_in", "schema", "item_schema", "head", "iterate_over"):
        more = {"fields": paths} if tool == "iterate_over" else {}
        await ask(tools, tool, {"handle": live[name], "path": paths[0], **more})


@bounded(300)
@given(name=st.sampled_from(HANDLES), pattern=PATTERNS, literal=st.booleans(), ignore_case=st.booleans())
async def test_every_pattern_is_searched_for_or_refused(
    run: RunScratch, live: dict[str, str], name: str, pattern: str, literal: bool, ignore_case: bool
) -> None:
    given = {"handle": live[name], "pattern": pattern, "literal": literal, "ignore_case": ignore_case}
    answer = await ask(Toolset(run), "grep", given)
    if answer.is_error:
        assert json.loads(answer)["error"] in {"bad_pattern", "invalid_argument", "grep_too_large"}
    await ask(Toolset(run), "read_handle", {"handle": live[name], "match": pattern, "ignore_case": ignore_case})


@bounded(150)
@given(name=VALUES, key=VALUES)
async def test_names_of_any_kind_are_taken_or_refused(
    store: ScratchStore, run: RunScratch, name: Any, key: Any
) -> None:
    for work in (
        lambda: store.run(name, agent_id="a"),
        lambda: store.run("run-42", agent_id=name),
        lambda: run.write(key, "x"),
        lambda: run.read(key),
        lambda: run.list(prefix=key, after=name),
        lambda: run.renew(key, 1.0),
        lambda: run.write_artifact(key, "x"),
        lambda: run.read_handle(key),
        lambda: run.find(key),
    ):
        try:
            await work()
        except (InvalidArgument, LookupError) as error:
            str(error).encode()


@bounded(300)
@given(text=configurations(EXAMPLE))
def test_every_file_is_a_configuration_or_a_configuration_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scratch.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        config = Config.load(file)
    except ConfigError as error:
        said = str(error)
        said.encode()
        assert error.data["faults"]  # noqa: PT017 - both outcomes are right
        assert not any(character < " " and character != "\n" for character in said)
    else:
        config.policy()


@pytest.mark.parametrize("content", ["[" * 500 + "]" * 500, '{"a":' * 500 + "1" + "}" * 500])
async def test_what_is_nested_deep_is_not_walked_over_again_and_again(
    run: RunScratch, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """A thousand bytes took 84 s: each level walked over all below it, and what was suggested was tried 24 times."""
    steps = 0
    run_end = jsonscan.run_end

    def counting(*arguments: Any) -> int:
        nonlocal steps
        steps += 1
        return run_end(*arguments)

    tools = Toolset(run)
    handle = (await tools.capture(query(content))).handle
    monkeypatch.setattr(jsonscan, "run_end", counting)
    answer = await ask(tools, "schema", {"handle": handle, "max_depth": 2**31})
    first = json.loads(answer)["suggestions"][0]
    assert first["tool"] == "schema"
    assert not (await ask(tools, "schema", first["arguments"])).is_error
    await ask(tools, "get_in", {"handle": handle, "path": "$"})
    assert steps < 60_000  # it was millions
