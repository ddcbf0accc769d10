"""The write lock among the threads of this process: who waits for it hears when upkeep has given it back."""

from __future__ import annotations

import threading
import time

_PATIENCE_SECONDS = 0.002


class _Turns:
    """One for the process, for any thread. Nobody counts on being told: other processes are not heard of."""

    def __init__(self) -> None:
        self._given_back = threading.Condition()
        self._waiting = 0

    def wait(self, seconds: float) -> None:
        """Wait until somebody gives way, for so long at most."""
        with self._given_back:
            self._waiting += 1
            self._given_back.wait(seconds)
            self._waiting -= 1

    def give_way(self) -> None:
        """Wake those who wait and let them go first. Who gave the lock back and wants it again calls this between."""
        if self._waiting:
            with self._given_back:
                self._given_back.notify_all()
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while self._waiting and time.monotonic() < deadline:
                time.sleep(0.0001)


TURNS = _Turns()
