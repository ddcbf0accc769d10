"""The context budget of an agent, and the figures of a scope."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratch import InvalidArgument
from scratch.budget import MAX_EXTRACTION_TOKENS, TURN_DEPTH_BONUS, ContextBudget, ScratchpadUsage

NOT_COUNTS: list[Any] = [-1, True, 1.0, "1", None, 2**63]


def test_a_fifth_of_the_window_is_not_handed_out() -> None:
    budget = ContextBudget(128_000)
    assert (budget.usable, budget.used, budget.remaining) == (102_400, 0, 102_400)


@pytest.mark.parametrize(
    ("window", "margin", "usable"),
    [
        (1_000, 0.2, 800),  # in doubles 1000 * (1 - 0.2) is fine, and with the exact value of 0.2 it is 799.99…
        (1_000, 0.9, 100),  # in doubles 1000 * (1 - 0.9) is 99.99…
        (10, 0.7, 3),
        (999, 0.2, 799),
        (1, 0.2, 0),
        (200_000, 0, 200_000),
        (200_000, -0.0, 200_000),
        (1_000_000, 1e-06, 999_999),
        (2**63 - 1, 0.5, 2**62 - 1),
    ],
)
def test_what_is_usable_is_rounded_down_from_the_margin_as_it_is_written(
    window: int, margin: float, usable: int
) -> None:
    assert ContextBudget(window, safety_margin=margin).usable == usable


@given(window=st.integers(1, 10**9), margin=st.decimals(0, Decimal("0.9999"), places=4))
def test_what_is_usable_is_exact_for_every_window_and_margin(window: int, margin: Decimal) -> None:
    assert ContextBudget(window, safety_margin=float(margin)).usable == int(window * (1 - margin))


@pytest.mark.parametrize("margin", [1, 1.0, -0.01, float("nan"), float("inf"), 10**400, True, False, "0.2", None])
def test_a_margin_that_is_no_part_of_the_window_is_refused(margin: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ContextBudget(1_000, safety_margin=margin)
    assert caught.value.data == {"argument": "safety_margin"}


@pytest.mark.parametrize("window", [0, *NOT_COUNTS])
def test_a_window_that_is_no_number_of_tokens_is_refused(window: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ContextBudget(window)
    assert caught.value.data == {"argument": "context_window"}


@pytest.mark.parametrize("tokens", NOT_COUNTS)
def test_a_charge_that_is_no_number_of_tokens_is_refused_and_changes_nothing(tokens: Any) -> None:
    budget = ContextBudget(100, safety_margin=0)
    budget.charge_anyway(7)
    charges: list[Callable[[], object]] = [
        lambda: budget.charge(tokens),
        lambda: budget.charge_anyway(tokens),
        lambda: budget.record_usage(tokens, 0),
        lambda: budget.record_usage(0, tokens),
    ]
    for charge in charges:
        with pytest.raises(InvalidArgument):
            charge()
    assert budget.used == 7


def test_a_charge_that_fits_to_the_last_token_is_taken_and_one_that_does_not_changes_nothing() -> None:
    budget = ContextBudget(100, safety_margin=0)
    assert not budget.charge(101)
    assert budget.used == 0
    assert budget.charge(100)
    assert not budget.charge(1)
    assert budget.charge(0)
    assert (budget.used, budget.remaining) == (100, 0)


def test_what_must_be_said_is_charged_beyond_the_budget_and_what_is_left_is_never_negative() -> None:
    budget = ContextBudget(100, safety_margin=0)
    budget.charge_anyway(130)
    assert (budget.used, budget.remaining) == (130, 0)
    assert not budget.charge(1)


def test_what_the_model_reports_replaces_what_was_counted_and_may_go_down() -> None:
    budget = ContextBudget(1_000, safety_margin=0)
    budget.charge_anyway(500)
    budget.record_usage(600, 50)
    assert budget.used == 650
    budget.charge_anyway(10)
    assert budget.used == 660
    budget.record_usage(90, 10)  # after a compaction
    assert (budget.used, budget.remaining) == (100, 900)


@given(
    st.lists(st.tuples(st.sampled_from(["charge", "charge_anyway", "record_usage"]), st.integers(0, 400)), max_size=30)
)
def test_the_sums_hold_after_any_sequence_of_calls(calls: list[tuple[str, int]]) -> None:
    budget = ContextBudget(1_000)
    used = 0
    for name, tokens in calls:
        if name == "record_usage":
            budget.record_usage(tokens, tokens)
            used = 2 * tokens
        elif name == "charge_anyway":
            budget.charge_anyway(tokens)
            used += tokens
        else:
            fits = used + tokens <= 800
            assert budget.charge(tokens) is fits
            used += tokens if fits else 0
        assert (budget.used, budget.remaining) == (used, max(0, 800 - used))


def test_threads_that_charge_at_the_same_time_never_get_more_than_there_is() -> None:
    budget = ContextBudget(10_000, safety_margin=0)
    with ThreadPoolExecutor(8) as threads:
        taken = sum(threads.map(lambda _: sum(budget.charge(3) for _ in range(1_000)), range(8)))
    assert taken == 3_333
    assert (budget.used, budget.remaining) == (9_999, 1)


async def test_parallel_tool_calls_on_one_loop_never_get_more_than_there_is() -> None:
    budget = ContextBudget(1_000, safety_margin=0)

    async def call(tokens: int) -> bool:
        await asyncio.sleep(0)
        return budget.charge(tokens)

    taken = await asyncio.gather(*(call(300) for _ in range(10)))
    assert sum(taken) == 3
    assert budget.used == 900


def test_two_agents_have_budgets_of_their_own() -> None:
    one, other = ContextBudget(1_000), ContextBudget(1_000)
    one.charge_anyway(500)
    assert (one.used, other.used) == (500, 0)


def test_the_defaults_of_the_tools_are_what_the_contract_says() -> None:
    assert (MAX_EXTRACTION_TOKENS, TURN_DEPTH_BONUS) == (10_000, 6)


def test_usage_is_an_event_with_a_name_and_plain_values() -> None:
    usage = ScratchpadUsage("researcher", "run-42", spills=1, tokens_intercepted=50_000, calls=3, tokens_extracted=900)
    assert usage.to_event() == {
        "event": "aura.scratchpad_usage",
        "agent_id": "researcher",
        "run_id": "run-42",
        "spills": 1,
        "tokens_intercepted": 50_000,
        "calls": 3,
        "tokens_extracted": 900,
    }


def test_usage_starts_at_nothing_and_cannot_be_changed() -> None:
    usage = ScratchpadUsage("researcher")
    assert (usage.spills, usage.tokens_intercepted, usage.calls, usage.tokens_extracted) == (0, 0, 0, 0)
    with pytest.raises(FrozenInstanceError):
        usage.calls = 1  # type: ignore[misc]


@given(agent_id=st.text(), run_id=st.none() | st.text(st.characters()), calls=st.integers(0, 2**63))
def test_a_server_sent_event_is_two_lines_and_an_empty_one_whatever_the_names_hold(
    agent_id: str, run_id: str | None, calls: int
) -> None:
    usage = ScratchpadUsage(agent_id, run_id, calls=calls)
    sent = usage.to_sse().encode()  # a lone surrogate is escaped: it can be sent
    assert b"\r" not in sent
    name, data, *rest = sent.split(b"\n")
    assert name == b"event: aura.scratchpad_usage"
    assert rest == [b"", b""]
    assert data.startswith(b"data: {")
    assert json.loads(data.removeprefix(b"data: ")) == usage.to_event()
