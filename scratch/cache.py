"""A small memory of what was made last, by its size in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SizedCache(Generic[T]):
    """Keeps what was used last, up to ``most`` bytes in all; what is larger than that is not kept. One thread only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._items: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """What is kept under ``key``, if anything."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: Hashable, item: T, size: int) -> None:
        """Keep ``item``, in place of what was used longest ago."""
        self.drop(key)
        if size > self._most:
            return
        while self._held + size > self._most:
            self.drop(next(iter(self._items)))
        self._items[key] = (item, size)
        self._held += size

    def drop(self, key: Hashable) -> None:
        """Keep nothing under ``key``."""
        if key in self._items:
            self._held -= self._items.pop(key)[1]
