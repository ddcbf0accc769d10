"""What each scope has used: counted while it is open, handed to the host when it closes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from scratch.budget import ScratchpadUsage
from scratch.entries import Scope

logger = logging.getLogger("scratch")


class UsageBook:
    """The usage of the open scopes of a store. Tasks of its loop may share it."""

    def __init__(self, on_usage: Callable[[ScratchpadUsage], None] | None = None) -> None:
        self._on_usage = on_usage
        self._open: dict[Scope, ScratchpadUsage] = {}

    def get(self, scope: Scope) -> ScratchpadUsage:
        """What a scope has used so far."""
        return self._open.get(scope) or ScratchpadUsage(run_id=scope.run_id, agent_id=scope.agent_id)

    def add(
        self,
        scope: Scope,
        *,
        spills: int = 0,
        tokens_intercepted: int = 0,
        calls: int = 0,
        tokens_extracted: int = 0,
    ) -> None:
        """Count something that a scope did."""
        usage = self.get(scope)
        self._open[scope] = replace(
            usage,
            spills=usage.spills + spills,
            tokens_intercepted=usage.tokens_intercepted + tokens_intercepted,
            calls=usage.calls + calls,
            tokens_extracted=usage.tokens_extracted + tokens_extracted,
        )

    def close(self, run_id: str | None = None, agent_id: str | None = None) -> None:
        """Report the scopes of a run and an agent (None: of all), and forget them. Only active ones are known here."""
        for scope in list(self._open):
            if run_id in (None, scope.run_id) and agent_id in (None, scope.agent_id):
                usage = self._open.pop(scope)
                if self._on_usage is not None:
                    try:
                        self._on_usage(usage)
                    except Exception:
                        logger.exception("on_usage failed for run %r, agent %r", scope.run_id, scope.agent_id)
