"""One of several pools: the connection to it, one after the other, and what it was asked about itself."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pool.client.connection import Connection
from pool.client.outstanding import Job, Withdrawal
from pool.client.peer import Peer
from pool.client.spread.choice import Pool
from pool.client.wait import Wait
from pool.errors import PoolError, PoolUnreachable
from pool.wire.codec import BadFrame, unpack
from pool.wire.offers import Offers
from pool.wire.timeline import Timeline

if TYPE_CHECKING:
    from pool.client.spread.spread import Spread

__all__ = ["SILENT_S", "Member"]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
STEADY_S = 5.0  # a pool that was lost sooner is returned to more slowly
SILENT_S = 1.5  # a pool that has not answered a ping for so long gets no new jobs, and is not waited for
AGAIN_S = 1.0  # after an answer that is of no use
ANSWER_S = 5.0  # how long an answer about its models is waited for
MOST_NAMED = 64  # models that a pool is asked about by their names; for more, it is asked about all
OFFERS_BYTES = 64 << 20


class _Asked(Wait):
    """A question whose answer nobody waits for: it wakes the thread that sees to the pools."""

    __slots__ = ("_wake", "about", "models", "until")

    def __init__(self, wake: Callable[[], None], models: Collection[str], until: float) -> None:
        super().__init__()
        self._wake = wake
        self.models = models
        self.until = until
        self.about = 0

    def ring(self) -> None:
        self._wake()


class Member:
    """What a connection tells comes from any thread, and anybody reads `connection`; all else is for `Spread`'s thread.

    `away_since`: when it was looked for first, of now; `was_there`: it has served before.
    """

    def __init__(self, spread: Spread, pool: Pool, peer: Peer, now: float) -> None:
        self.pool = pool
        self.connection: Connection | None = None
        self.away_since = now
        self.was_there = False
        self.trouble: PoolError | None = None
        """How its last connection has ended, while it is away."""
        self._spread = spread
        # A connection looks for its pool once: what it holds goes to another pool if this one is lost.
        self._peer = replace(peer, reconnect_timeout_s=0.0)
        self._reconnect_timeout_s = peer.reconnect_timeout_s
        self.models: set[str] = set()
        """Those that its jobs have asked for, as long as they are asked about by their names."""
        self._asked: _Asked | None = None
        self._asks_from = 0.0
        self._there_since = 0.0
        self._pause_s = FIRST_PAUSE_S

    # --- what a connection tells --------------------------------------------------------------------------------

    def changed(self) -> None:
        """It has found its pool, or has ended."""
        self._spread.wake()

    def came(self, job: Job) -> None:
        """A job is about to be sent there."""
        if job.request.model not in self.models and len(self.models) <= MOST_NAMED:
            self.models.add(job.request.model)
        with self._spread.lock:
            self.pool.mine += job.weight

    def left(self, jobs: int) -> None:
        """So many are there no more."""
        pool = self.pool
        with self._spread.lock:
            pool.mine = pool.mine - jobs if pool.mine > jobs else 0

    def answered(self, job: Job, line: Timeline) -> None:
        """A job that ran so."""
        share = line.rows / line.batch_rows if line.batch_rows else 1.0
        with self._spread.lock:
            self.pool.ran(line.run_s * share / job.weight)

    def told(self, waiting: int, now: float) -> None:
        """The pool has told, with answers, how much waits there."""
        with self._spread.lock:
            self.pool.waits(waiting, now)

    def onward(self, job: Job, error: PoolError, *, lost: bool = False) -> bool:
        """Whether a job goes on to another pool that has ended here in this error. Then nothing here ends it any more.

        `lost`: the connection has ended, and the pool has said nothing of the job. A job whose caller waits for nothing
        else has the error as its end: he goes on with it himself.
        """
        return self._spread.onward(job, error, lost)

    def elsewhere(self, job: Job, why: PoolError) -> bool:
        """The same for a job that waits here for its pool to come: if another one takes it now."""
        return self._spread.elsewhere(job, why)

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Nobody waits for it any more, wherever it is by now."""
        self._spread.withdraw(withdrawal)

    # --- its connection -----------------------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        return self.connection is not None and not self.connection.lost

    def is_awaited(self, since: float, now: float) -> bool:
        """Whether a job that was submitted then still waits for it to come, or to come back."""
        first_s = self._peer.connect_timeout_s
        return now < max(self.away_since + (self._reconnect_timeout_s if self.was_there else first_s), since + first_s)

    def connect(self, pause_s: float = 0.0) -> None:
        """A new connection, which first rests for so long. There may be none left for it: then it is tried again."""
        if self._spread.is_closed:
            return
        try:
            self.connection = Connection(replace(self._peer, pause_s=pause_s), self._spread.spin_s, self)
        except PoolUnreachable:
            self.connection = None

    def lose(self, now: float) -> None:
        """Its connection has ended."""
        if self.connection is not None:
            self.trouble = self.connection.driver.over
        if self._there_since:
            self._pause_s = FIRST_PAUSE_S if now - self._there_since >= STEADY_S else self._longer()
            self.was_there, self.away_since, self._there_since = True, now, 0.0
        else:
            self._pause_s = self._longer()
        self._asked, self._asks_from = None, 0.0
        with self._spread.lock:
            self.pool.mine = 0
        self.connect(self._pause_s * (1 + random.random()) / 2)  # those of one pool do not all return at once

    def _longer(self) -> float:
        return min(2 * self._pause_s, LONGEST_PAUSE_S)

    def arrive(self, now: float) -> None:
        """It serves."""
        self.trouble = None
        self._there_since = self._there_since or now

    # --- what it offers -----------------------------------------------------------------------------------------

    def ask(self, now: float) -> None:
        """What it offers of the models that this client uses; of all, as long as it has not told."""
        if self._asked is not None or self.connection is None or now < self._asks_from:
            return
        models = list(self.models)
        if self.pool.offers is None or not 0 < len(models) <= MOST_NAMED:
            models = []
        asked = _Asked(self._spread.wake, models, now + ANSWER_S)
        asked.about = self.connection.pose(asked, "offers", json.dumps(models) if models else "")
        self._asked = asked

    def answer(self, now: float) -> tuple[Offers, Collection[str]] | None:
        """What it has answered since, and which models it was asked about."""
        asked = self._asked
        if asked is None or (asked.outcome is None and now < asked.until):
            return None
        self._asked = None
        if self.connection is not None:
            self.connection.forget(asked.about)
        outcome: Any = asked.outcome
        offers = None if outcome is None or isinstance(outcome, PoolError) else _offers_of(outcome[0])
        if offers is None:
            self._asks_from = now + AGAIN_S
            return None
        return offers, asked.models


def _offers_of(answer: bytes) -> Offers | None:
    """None if it can't be read."""
    try:
        return unpack(Offers, answer, OFFERS_BYTES)
    except BadFrame:
        return None
