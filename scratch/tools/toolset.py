"""The verbs of one agent in one run: calls that always return text, under a cap and a budget."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scratch.budget import MAX_EXTRACTION_TOKENS, ContextBudget
from scratch.capturing import Captured, off_loop_if_heavy
from scratch.entries import EntryInfo, Kind
from scratch.errors import HandleNotFound, InvalidArgument, NoteNotFound, ScratchError
from scratch.explore.explorer import Explorer
from scratch.explore.look import PREFIX, Call, ExploreError, Look, TooLarge
from scratch.jsontext import encodable
from scratch.metrics import held_back
from scratch.run import RunScratch
from scratch.spill import Observation, OwnText
from scratch.tokens import estimate_tokens
from scratch.tools.definition import GROUPS, Client, Group, Verb, shown_name
from scratch.tools.notes import LISTED, handle_line
from scratch.tools.refusal import refusal
from scratch.tools.verbs import VERBS
from scratch.windows import check_count

if TYPE_CHECKING:
    from scratch.tokens import TokenCounter

logger = logging.getLogger("scratch")

_BYTES_A_TOKEN = 128
"""No vocabulary has longer tokens: what has more bytes than this for each is over a cap for sure."""
_BYTES_A_TOKEN_ESTIMATED = 4
"""The same for the estimate."""
_BYTES_A_TOKEN_SUGGESTED = 8
"""What is suggested is tried first, and has no more bytes than this for each: trying is quick then."""
_SUGGESTED = 4
_REFUSAL = 250
"""Tokens that a refusal with its suggestions mostly takes of the budget: what it suggests has to fit into the rest."""
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}")
_HALVINGS = 24


class Toolset:
    """The verbs of one agent in one run, ready for a model. Tasks of the store's loop may share it.

    Capture results with :meth:`capture` of this object: its stubs name the verbs of the set, under their prefix.

    Args:
        run: The scope that the verbs work on.
        groups: Which groups beside ``read_handle``: ``notes``, ``explore``, ``artifacts``; all by default.
        prefix: Stands before each name, for hosts whose tools could have the same.
        budget: The agent's context budget; every text that is returned is charged to it. None: there is no budget.
        counter: Counts tokens; an estimate by script when None.
        max_extraction_tokens: The most tokens that one call returns.
        inline_bytes: For an agent without the exploration tools, who gets an artifact whole: a longer one is cut to
            its first so many bytes (at most 32,768), with a notice. None: never.

    Raises:
        InvalidArgument: an unknown group, a prefix that no client takes, or a cap below 1.
    """

    def __init__(
        self,
        run: RunScratch,
        *,
        groups: Iterable[Group] = GROUPS,
        prefix: str = "",
        budget: ContextBudget | None = None,
        counter: TokenCounter | None = None,
        max_extraction_tokens: int = MAX_EXTRACTION_TOKENS,
        inline_bytes: int | None = None,
    ) -> None:
        self.groups = frozenset(groups)
        if unknown := self.groups - GROUPS:
            msg = f"there is no group {', '.join(map(repr, sorted(unknown)))}; there are {', '.join(sorted(GROUPS))}"
            raise InvalidArgument(msg, argument="groups")
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            msg = "prefix must be up to 32 letters, digits, _ or -: it becomes a part of tool names"
            raise InvalidArgument(msg, argument="prefix")
        self.prefix = prefix
        self.budget = budget
        self.verbs = tuple(verb for verb in VERBS if verb.group is None or verb.group in self.groups)
        policy = replace(run.policy, verbs=frozenset(verb.name for verb in self.verbs), verb_prefix=prefix)
        if counter is not None:
            policy = replace(policy, count_tokens=counter.count_until)
        self.run = run.with_policy(policy)
        self.explorer = Explorer(self.run)
        self.inline_bytes = inline_bytes if inline_bytes is None else check_count(inline_bytes, "inline_bytes", least=1)
        self._counter = counter
        self._cap = check_count(max_extraction_tokens, "max_extraction_tokens", least=1)
        self._by_name = {prefix + verb.name: verb for verb in self.verbs}

    async def capture(self, observation: Observation) -> Captured:
        """:meth:`RunScratch.capture <scratch.RunScratch.capture>`, with stubs that name this set's verbs.

        A stub is charged to the budget. What is kept in context is not: the model reports it with its usage.
        """
        captured = await self.run.capture(observation)
        if captured.handle is not None and self.budget is not None:
            self.budget.charge_anyway(await self._count(captured.text))
        return captured

    def definitions(self, client: Client) -> list[dict[str, object]]:
        """The definitions in the form that a client takes."""
        return [verb.definition(client, self.prefix) for verb in self.verbs]

    def prompt(self) -> str:
        """A section for the system prompt: what the verbs are for. Names only what is in the set."""
        name = {verb.name: self.prefix + verb.name for verb in self.verbs}
        read = name["read_handle"]
        lines = [
            "## Stored results",
            (
                "A large tool result is kept outside this conversation; you get a stub with its handle, a preview and "
                f'its size. Read of it what you need: {read}(handle="…", offset=0) gives a byte range, with match the '
                "surroundings of a text."
            ),
        ]
        if "explore" in self.groups:
            lines.append(
                f"Look before you read: {name['schema']} outlines a result, {name['grep']} finds lines, {name['head']} "
                f"and {name['slice']} show them, {name['get_in']} shows the value at a path, {name['item_schema']} and "
                f"{name['iterate_over']} list the items of an array, {name['read']} shows all of it when it fits. An "
                "answer that would be too large is refused with smaller calls that work."
            )
        if "notes" in self.groups:
            lines.append(
                f"Keep notes outside this conversation with {name['scratch_write']} and read them with "
                f"{name['scratch_read']}; {name['scratch_list']} lists them, {name['scratch_delete']} deletes one."
            )
        if "artifacts" in self.groups:
            lines.append(
                f"Hand documents to the other agents of this run with {name['write_artifact']}, and read theirs with "
                f"{name['read_artifact']}."
            )
        return "\n".join(lines)

    async def call(self, name: str, arguments: object) -> OwnText:
        """Run a verb as a model called it. Never raises (cancellation passes through); the text is never spilled again.

        Everything that is returned is charged to the budget.

        Args:
            name: With the prefix.
            arguments: An object, or its JSON text.
        """
        prefix = PREFIX.set(self.prefix)
        try:
            answer, tokens = await self._answer(name, arguments)
        except Exception:
            logger.exception("the tool %r failed", shown_name(name))
            answer = refusal("internal_error", "this call failed inside run-scratch; try another way", {})
            tokens = self._charged(estimate_tokens(answer))
        finally:
            PREFIX.reset(prefix)
        self.run.count_call(tokens)
        return answer

    async def _answer(self, name: object, arguments: object) -> tuple[OwnText, int]:
        """What a call returns, and its tokens, which are charged."""
        handle: object = None
        try:
            verb = self._by_name.get(name) if isinstance(name, str) else None
            if verb is None:
                msg = f"there is no tool {shown_name(name)!r}; there are {', '.join(self._by_name)}"
                raise InvalidArgument(msg, argument="name")
            checked = verb.check(arguments)
            handle = checked.get("handle")
            try:
                longest = _BYTES_A_TOKEN_ESTIMATED if self._counter is None else _BYTES_A_TOKEN
                with held_back() as reads:
                    look = await verb.handler(self, checked, self._limit() * longest)
            except TooLarge as error:
                return await self._too_large(
                    verb, checked, max(self._limit() + 1, error.estimated_bytes // 4), error.smaller
                )
            text, tokens = await self._rendered(verb, look)
            if verb.writes or (verb.name == "read_artifact" and "explore" not in self.groups):
                # What is done is done, and has to be said; whoever has no tools to look into an artifact gets it whole.
                return self._given(text, reads), self._charged(tokens)
            if tokens <= self._cap and (self.budget is None or self.budget.charge(tokens)):
                return self._given(text, reads), tokens
            return await self._too_large(verb, checked, tokens, look.smaller)
        except ScratchError as error:
            return await self._refusal(error, handle)

    def _given(self, text: str, reads: Sequence[str]) -> OwnText:
        """An answer into the context, counted by what was read for it last."""
        if reads:
            self.run.counters.read(reads[-1], len(text.encode("utf-8", "surrogatepass")))
        return OwnText(text)

    def _limit(self) -> int:
        """Tokens that an answer can have now."""
        return self._cap if self.budget is None else min(self._cap, self.budget.remaining)

    def _charged(self, tokens: int) -> int:
        if self.budget is not None:
            self.budget.charge_anyway(tokens)
        return tokens

    async def _count(self, text: str) -> int:
        if self._counter is None:
            return await off_loop_if_heavy(text, lambda: estimate_tokens(text))
        return (await self._counter.count_async(text)).tokens

    async def _rendered(self, verb: Verb, look: Look) -> tuple[str, int]:
        """The whole text with its footer, and its tokens."""
        tokens = await self._count(look.text)
        if not look.covered:
            return look.text, tokens
        footer = self._footer(verb, look, tokens)
        tokens += await self._count(footer) + 1
        footer = self._footer(verb, look, tokens)
        return (f"{look.text}\n{footer}" if look.text else footer), tokens

    def _footer(self, verb: Verb, look: Look, tokens: int) -> str:
        left = ""
        if self.budget is not None:
            left = f", ~{max(0, self.budget.remaining - tokens):,} of ~{self.budget.usable:,} left"
        covered = encodable(look.covered.replace("\n", "\\n"))  # a field's name can hold anything
        return f"{self.prefix}{verb.name}: {covered} | ~{tokens:,} tokens{left}"

    # --- what is said instead

    async def _too_large(
        self, verb: Verb, arguments: dict[str, Any], tokens: int, smaller: tuple[Call, ...]
    ) -> tuple[OwnText, int]:
        data: dict[str, object] = {"estimated_tokens": tokens}
        limits = []
        if tokens > self._cap:
            data["per_call_limit"] = self._cap
            limits.append(f"one call gives {self._cap:,}")
        if self.budget is not None and tokens > self.budget.remaining:
            data["remaining_budget_tokens"] = self.budget.remaining
            limits.append(f"{self.budget.remaining:,} are left of your budget")
        why = f"the answer would be about {tokens:,} tokens, and {' and '.join(limits)}"
        if verb.instead is not None:
            answer = OwnText(await verb.instead(self, arguments, data))
            return answer, self._charged(await self._count(answer))
        return await self._suggesting(f"{verb.name}_too_large", why, data, smaller, arguments.get("handle"))

    async def _refusal(self, error: ScratchError, handle: object) -> tuple[OwnText, int]:
        data = {key: value for key, value in error.data.items() if key != "path"}
        if isinstance(error, ExploreError):
            return await self._suggesting(error.code, error.message, data, error.suggestions, handle)
        try:
            if isinstance(error, HandleNotFound):
                data["live_handles"] = [handle_line(info) for info in await self._some(Kind.HANDLE)]
            elif isinstance(error, NoteNotFound):
                data["live_keys"] = [info.key for info in await self._some(Kind.NOTE)]
        except ScratchError:
            logger.exception("the live entries could not be listed")
        answer = refusal(error.code, error.message, data)
        return answer, self._charged(await self._count(answer))

    async def _some(self, kind: Kind) -> list[EntryInfo]:
        return await self.run.list(kind=kind, limit=LISTED)

    async def _suggesting(
        self, code: str, message: str, data: Mapping[str, object], calls: Sequence[Call], handle: object
    ) -> tuple[OwnText, int]:
        """An error with those of the calls that fit into what it leaves of the budget itself."""
        reserve = _REFUSAL
        while True:
            suggestions = await self._that_fit(calls, handle, reserve)
            what = "take one of the suggestions" if suggestions else "ask for less, or work with what you have"
            said = f"{message}; {what}" if code.endswith("_too_large") else message
            answer = refusal(code, said, {**data, "suggestions": suggestions})
            cost = await self._count(answer)
            if self.budget is None or cost <= reserve or not suggestions:
                return answer, self._charged(cost)
            reserve = cost + _REFUSAL

    async def _that_fit(self, calls: Sequence[Call], handle: object, reserve: int) -> list[dict[str, object]]:
        """Those of the calls that work and fit, made smaller where they need it, ready to run."""
        limit = self._cap if self.budget is None else min(self._cap, self.budget.remaining - reserve)
        suggestions: list[dict[str, object]] = []
        for call in calls if limit > 0 else ():
            fitting = await self._shrunk(call, handle, limit)
            if fitting is not None and fitting not in suggestions:
                suggestions.append(fitting)
            if len(suggestions) == _SUGGESTED:
                break
        return suggestions

    async def _shrunk(self, call: Call, handle: object, limit: int) -> dict[str, object] | None:
        verb = self._by_name.get(self.prefix + call.tool)
        if verb is None:
            return None
        for _ in range(_HALVINGS):
            arguments = {"handle": handle, **call.arguments} if handle is not None else dict(call.arguments)
            try:
                with held_back():
                    look = await verb.handler(self, verb.check(arguments), limit * _BYTES_A_TOKEN_SUGGESTED)
                _, tokens = await self._rendered(verb, look)
                if tokens <= limit:
                    return {"tool": self.prefix + verb.name, "arguments": arguments}
                smaller = look.smaller
            except TooLarge as error:
                smaller = error.smaller
            except ScratchError:
                return None
            same = [one for one in smaller if one.tool == call.tool]
            if not same:
                return None
            call = same[0]
        return None
