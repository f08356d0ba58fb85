"""One question to all pools at once: who answers, who does not, and how long those are waited for."""

import time
from collections.abc import Callable, Mapping

from pool.client.connection import Connection
from pool.client.spread.member import SILENT_S, Member
from pool.client.wait import Wait
from pool.errors import PoolError, PoolUnreachable

__all__ = ["Survey"]

FIRST_S = 1.0  # a pool that was never there may come within this time from the client's first use
LOOK_S = 0.02  # how often pools are looked at that are waited for and may come, or go


class _Question(Wait):
    """Its end wakes who asks all of them."""

    __slots__ = ("_wake", "connection", "number")

    def __init__(self, connection: Connection, what: str, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake
        self.connection = connection
        self.number = connection.pose(self, what, "")

    def ring(self) -> None:
        self._wake()


class Survey:
    """`until`: when it ends at the latest; `first_until`: how long the first pool is waited for."""

    def __init__(self, what: str, first_until: float, until: float) -> None:
        self._what = what
        self._first_until = min(first_until, until)
        self._until = until
        self._asked: dict[str, _Question] = {}
        self._bell = Wait()
        self._bell.prepare()

    def answers(self, members: Callable[[], Mapping[str, Member]]) -> dict[str, bytes | PoolError]:
        """By the keys of those that are members in the end. A pool that gives no answer has the error instead."""
        try:
            while True:
                now = time.monotonic()
                there = {**members()}
                self._ask(there)
                if now >= self._until or not any(self._waits_for(key, there[key], now) for key in there):
                    return {key: self._outcome(key) for key in there}
                self._bell.sleep(min(LOOK_S, self._until - now))
        finally:
            for question in self._asked.values():
                question.connection.forget(question.number)

    def _ask(self, members: Mapping[str, Member]) -> None:
        for key, member in members.items():
            connection = member.connection
            if key not in self._asked and connection is not None and connection.has_pool:
                self._asked[key] = _Question(connection, self._what, self._bell.ring)

    def _waits_for(self, key: str, member: Member, now: float) -> bool:
        question = self._asked.get(key)
        if question is None:
            is_new = not member.was_there and now < member.away_since + FIRST_S
            return is_new or (not self._asked and now < self._first_until)
        if question.is_over:
            return False
        others = any(each.is_over and not isinstance(each.outcome, PoolError) for each in self._asked.values())
        return not others or question.connection.unanswered_s(now) < SILENT_S

    def _outcome(self, key: str) -> bytes | PoolError:
        question = self._asked.get(key)
        if question is None:
            return PoolUnreachable(f"no pool answers at {key}")
        if question.outcome is None:
            return PoolUnreachable(f"the pool at {key} has not answered {self._what!r} in time")
        if isinstance(question.outcome, PoolError):
            return question.outcome
        answer: bytes = question.outcome[0]
        return answer
