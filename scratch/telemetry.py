"""A store's counters as OpenTelemetry metrics. Needs ``pip install run-scratch[otel]``.

The metrics are observable counters: they are read when a reader collects, and the store does nothing more than count,
as it always does. Their attributes are words of our own and names of errors, never content, keys, handles or ids.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from scratch.metrics import GROUPS
from scratch.store import ScratchStore

# counter of scratch.metrics, name, unit (UCUM), attribute of its words, description
_METRICS = (
    ("captures", "scratch.captures", "{result}", "", "Tool results that were given to capture."),
    ("spills", "scratch.spills", "{result}", "", "Results that were stored, with a stub in their place."),
    ("kept", "scratch.kept", "{result}", "scratch.reason", "Results that stayed in context, by the reason."),
    ("bytes_kept_out", "scratch.context.kept_out", "By", "", "Bytes of spilled contents less those of their stubs."),
    ("reads", "scratch.reads", "{read}", "scratch.read.kind", "Answers that hold stored content."),
    ("bytes_read", "scratch.context.read_back", "By", "", "Bytes that reads gave back."),
    ("misses", "scratch.misses", "{miss}", "error.type", "Questions for what is not live or not there."),
    ("note_writes", "scratch.notes.written", "{note}", "", "Notes written."),
    ("artifacts_written", "scratch.artifacts.written", "{artifact}", "", "Artifacts written."),
    ("sweeps", "scratch.sweeps", "{sweep}", "", "Sweeps that came to their end."),
    ("swept_entries", "scratch.swept.entries", "{entry}", "", "Expired entries deleted by sweeps."),
    ("swept_bytes", "scratch.swept.content", "By", "", "Content of those."),
    ("bytes_given_back", "scratch.swept.given_back", "By", "", "Bytes by which sweeps made the file smaller."),
    ("failures", "scratch.failures", "{operation}", "error.type", "Operations that the store could not do."),
)


class Instrumentation:
    """A store whose counts are reported. Any thread may close it."""

    def __init__(self, totals: _Totals, store: ScratchStore) -> None:
        self._totals = totals
        self._store = weakref.ref(store)
        self.counters = store._database.counters  # noqa: SLF001 - no part of the programming interface

    @property
    def is_over(self) -> bool:
        """Whether nobody can use the store any more."""
        return self._store() is None

    def close(self) -> None:
        """Report nothing new of the store. What it has counted stays in the totals: these never go back."""
        self._totals.retire(self)


class _Totals:
    """The sums over all instrumented stores of one meter provider.

    An SDK takes the first instrument of a name and leaves out the callbacks of a second one without a word, and none
    can be taken away again. So there is one set of instruments, and it outlives the stores.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # readers collect on threads of their own
        self._live: dict[int, Instrumentation] = {}
        self._retired: Counter[str] = Counter()

    def add(self, one: Instrumentation) -> Instrumentation:
        """Report a store; return the one that reports it already, if any."""
        with self._lock:
            return self._live.setdefault(id(one.counters), one)

    def retire(self, one: Instrumentation) -> None:
        """Keep what it has counted, and nothing else of it."""
        with self._lock:
            if self._live.pop(id(one.counters), None) is not None:
                self._retired.update(dict(one.counters.values))

    def values(self) -> Counter[str]:
        """All counters by name."""
        with self._lock:
            for one in list(self._live.values()):
                if one.is_over:
                    self.retire(one)
            values = self._retired.copy()
            for one in self._live.values():
                values.update(dict(one.counters.values))
            return values

    def observe(self, counter: str, attribute: str, _options: CallbackOptions) -> Iterator[Observation]:
        """What a reader is told of one counter, or of all words of a group."""
        values = self.values()
        if counter not in GROUPS:
            yield Observation(values[counter])
            return
        for name, value in values.items():
            group, _, word = name.partition(".")
            if group == counter:
                yield Observation(value, {attribute: word})


class _Global:
    """Stands for the global provider, which is another object before the host sets it."""


_GLOBAL = _Global()
_BY_PROVIDER: weakref.WeakKeyDictionary[MeterProvider | _Global, _Totals] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def instrument(store: ScratchStore, *, meter_provider: MeterProvider | None = None) -> Instrumentation:
    """Report what ``store`` counts, from its opening on, as the metrics ``scratch.*``.

    Several stores of a process add up. A closed store needs nothing: what it has counted stays in the sums, and the
    store itself is not kept. Calling it again for a store that is reported already does nothing.

    Args:
        store: An open store.
        meter_provider: Whose meter; the global one when None (also when that is set only later).
    """
    provider = meter_provider or get_meter_provider()
    key = _GLOBAL if provider is get_meter_provider() else provider
    with _LOCK:
        totals = _BY_PROVIDER.get(key)
        if totals is None:
            totals = _BY_PROVIDER[key] = _Totals()
            meter = provider.get_meter("scratch")
            for counter, name, unit, attribute, description in _METRICS:
                callback: Callable[[CallbackOptions], Iterator[Observation]] = partial(
                    totals.observe, counter, attribute
                )
                meter.create_observable_counter(name, [callback], unit, description)
    return totals.add(Instrumentation(totals, store))
