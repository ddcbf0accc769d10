"""What the soak measured, as a table at the end."""

from __future__ import annotations

import os
import random

import pytest

FIGURES = pytest.StashKey[list[tuple[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[tuple[str, str]]:
    """Rows of the table: a name and a value."""
    return pytestconfig.stash[FIGURES]


@pytest.fixture
def seed(figures: list[tuple[str, str]]) -> int:
    """What all that is random starts from; SOAK_SEED repeats a run."""
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SOAK_SEED={seed}")
    return seed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash[FIGURES]
    width = max((len(name) for name, _ in figures), default=0)
    for name, value in figures:
        terminalreporter.write_line(f"{name:<{width}}  {value}")
