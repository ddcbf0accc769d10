"""The one clock, and durations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from scratch.errors import InvalidArgument

Clock = Callable[[], float]
"""Seconds since the Unix epoch, UTC, like :func:`time.time`."""

system_clock: Clock = time.time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TTL_SECONDS = 100 * 366 * 24 * 3600.0


def now_ms(clock: Clock) -> int:
    """The clock's time in whole milliseconds since the epoch."""
    return int(clock() * 1000)


def ttl_seconds(ttl: float | timedelta, argument: str = "ttl") -> float:
    """Check a duration and return it in seconds.

    Raises:
        InvalidArgument: not a number of seconds or a timedelta, not above 0, or over 100 years.
    """
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        msg = f"{argument} must be seconds (a number) or a timedelta, not {type(ttl).__name__}"
        raise InvalidArgument(msg, argument=argument)
    # an int is compared as an int: 10**400 does not fit a float
    if not 0 < seconds <= MAX_TTL_SECONDS or (isinstance(seconds, float) and math.isnan(seconds)):
        msg = f"{argument} must be more than 0 seconds and at most 100 years"
        raise InvalidArgument(msg, argument=argument)
    return float(seconds)


def expiry_ms(now: int, *, ttl: float | timedelta | None, expires_at: datetime | None, default_ttl: float) -> int:
    """When something expires, in milliseconds since the epoch, from one of three ways to say it.

    Raises:
        InvalidArgument: both are given, a naive datetime, a time that has passed, or a bad ttl.
    """
    if expires_at is None:
        seconds = default_ttl if ttl is None else ttl_seconds(ttl)
        return now + max(1, round(seconds * 1000))
    if ttl is not None:
        msg = "give ttl or expires_at, not both"
        raise InvalidArgument(msg, argument="expires_at")
    if not isinstance(expires_at, datetime) or expires_at.utcoffset() is None:
        msg = "expires_at must be a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
        raise InvalidArgument(msg, argument="expires_at")
    at = (expires_at - _EPOCH) // timedelta(milliseconds=1)
    if at <= now:
        msg = f"expires_at has passed: {expires_at.isoformat()}"
        raise InvalidArgument(msg, argument="expires_at")
    if at - now > MAX_TTL_SECONDS * 1000:
        msg = "expires_at is more than 100 years away"
        raise InvalidArgument(msg, argument="expires_at")
    return at
