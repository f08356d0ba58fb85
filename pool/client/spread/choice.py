"""Which of several pools gets a job: the one that is likely to answer first. The clock is an argument.

    SOUGHT ──► SERVING ◄──► SILENT
       ▲          ├──► DRAINING
       └──────────┴────────┴──── its connection has ended

Of each pool it knows what the pool tells with its answers and when it is asked: which models it has, how many jobs of
all clients wait there, what a job takes. To this it adds the jobs that this client has sent there since. Of a few pools
that it draws, it takes the one where the least is to be done. So clients whose knowledge is equally old do not all
choose the same pool. For a moment, the pool that it took last gets the next job too, if it has nothing to do: what a
job passes through is still in that processor's caches.

A model that keeps state, or of which nobody has told whether it does, has one pool: the first in an order that depends
on nothing but the names of model and endpoint (rendezvous hashing). All clients with these endpoints agree on it, and
no other pool takes its place while it is away.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from operator import itemgetter
from typing import TypeAlias

from pool.wire.offers import Offer, Offers

__all__ = ["Choice", "Pool", "PoolState"]

_Asked: TypeAlias = tuple[str, int | str | None]  # a model, and a version of it

DRAWN = 4  # pools that are compared; simulated: fewer are worse where pools differ, and with more, clients herd
LEARNED = 0.1  # the share of what was told last in what is usual …
MOST_RUNS = 50  # a job counts for one of so many in what a job takes: its model may be like no other
FADING_S = 1.0  # how long what was told last counts for more than what is usual …
FADING_JOBS = 4.0  # … and so many times as long as it takes the pool to answer what waited then
LACKING_S = 5.0  # a model that a pool did not have is asked for again after this, as it may have been loaded
MOST_LACKING = 1000  # names that are remembered so: callers may send any
LONGEST_S = 1e6  # what is told of a longer job, or of none that has a length, is no help
LEAST_S = 1e-4  # a pool takes no less for a job: what is not known yet is not free
NEAR = 2.0  # a pool on this machine may be so many times as busy as the best one elsewhere
ALIKE = 1.5  # where nothing waits, pools are alike whose jobs do not take so many times as long
KEPT_S = 0.1  # how long the pool taken last is not compared: of those that seem alike, another may answer sooner


class PoolState(Enum):
    SOUGHT = "there is no connection, so it gets no job that another can run"
    SERVING = "it takes jobs"
    SILENT = "it owes an answer to a ping, so it gets no job that another can run"
    DRAINING = "it stops, and takes no more jobs"


class Pool:
    """`mine`: jobs that this client has sent there, or is about to, and has no answer to.

    `others`: jobs of other clients, as the pool told when it was `heard` last, and `usual`, as many as there mostly
    are. `job_s`: device time that a job takes, 0.0 where it is not known, on one of `slots`. `offers`: the models that
    it has; None: it has never told.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.state = PoolState.SOUGHT
        self.offers: Mapping[str, Offer] | None = None
        self.mine = 0
        self.others = 0
        self.usual = 0.0
        self.heard = 0.0
        self.job_s = 0.0
        self.slots = 1
        self._runs = 0  # of which the last is one part of `job_s`
        self._lacking: dict[_Asked, float] = {}  # until when, the oldest first

    # --- how much is to be done ---------------------------------------------------------------------------------

    def waits(self, waiting: int, now: float) -> None:
        """It has told that so many jobs wait there."""
        others = waiting - self.mine
        self.others = others if others > 0 else 0
        self.usual += LEARNED * (self.others - self.usual)
        self.heard = now

    def ran(self, job_s: float) -> None:
        """A job has taken so long."""
        if not 0 <= job_s < LONGEST_S:
            return
        self._runs = runs = self._runs + 1 if self._runs < MOST_RUNS else MOST_RUNS
        self.job_s += (job_s - self.job_s) / runs

    def expected_s(self, now: float) -> float:
        """How long a job is likely to take that is sent there now."""
        job_s = (self.job_s if self.job_s > LEAST_S else LEAST_S) / self.slots
        others, usual = self.others, self.usual
        fresh = 1.0 - (now - self.heard) / (FADING_S + FADING_JOBS * others * job_s)
        return (usual + (others - usual) * (fresh if fresh > 0.0 else 0.0) + self.mine + 1) * job_s

    # --- what it has --------------------------------------------------------------------------------------------

    def told(self, offers: Offers, asked: Collection[str], now: float) -> None:
        known = {} if self.offers is None or not asked else dict(self.offers)
        for model in asked:
            known.pop(model, None)
        self.offers = {**known, **offers.models}
        if self._lacking:
            self._lacking = {about: until for about, until in self._lacking.items() if about[0] not in offers.models}
        self.waits(offers.waiting, now)
        # Later, own jobs tell it better: in the average is each time that it hung.
        if 0 < offers.job_s < LONGEST_S and not self._runs:
            self.job_s, self._runs = offers.job_s, MOST_RUNS
        self.slots = max(1, offers.slots)

    @property
    def is_ready(self) -> bool:
        """Whether all that it has can run."""
        return all(offer.slots for offer in (self.offers or {}).values())

    def has_not(self, model: str, version: int | str | None, now: float) -> None:
        """A job for it was told that it is not there."""
        lacking = self._lacking
        lacking.pop((model, version), None)
        lacking[(model, version)] = now + LACKING_S
        while (oldest := next(iter(lacking))) and (lacking[oldest] <= now or len(lacking) > MOST_LACKING):
            del lacking[oldest]

    def lacks(self, model: str, version: int | str | None, now: float) -> bool:
        """Whether a job has been told so of late."""
        return bool(self._lacking) and self._lacking.get((model, version), now) > now

    def may_have(self, model: str, version: int | str | None, now: float) -> bool:
        return (self.offers is None or model in self.offers) and not self.lacks(model, version, now)


class Choice:
    """Not safe for several threads at once."""

    def __init__(self, endpoints: Iterable[str], chance: random.Random, near: Collection[str] = ()) -> None:
        """`near`: those on this machine, which are preferred to others."""
        self.pools: dict[str, Pool] = {}
        self._random = chance.random
        self._free: dict[str, list[Pool]] = {}  # by model: where its jobs may go, as long as nothing else is told
        self._last: Pool | None = None  # the one that was found best
        self._kept_until = 0.0
        self.replace(endpoints, near)

    def replace(self, endpoints: Iterable[str], near: Collection[str] = ()) -> None:
        """These are the pools from now on."""
        self.pools = {each: self.pools.get(each) or Pool(each) for each in endpoints}
        self._near = [pool for each, pool in self.pools.items() if each in near]
        if len(self._near) == len(self.pools):
            self._near.clear()  # none is preferred
        self._free.clear()

    # --- what is known ------------------------------------------------------------------------------------------

    def becomes(self, pool: Pool, state: PoolState) -> None:
        if pool.state is not state:
            pool.state = state
            self._free.clear()

    def told(self, pool: Pool, offers: Offers, asked: Collection[str], now: float) -> None:
        """What the pool offers: of the models that were `asked` for, or of all."""
        pool.told(offers, asked, now)
        self._free.clear()

    def has_not(self, pool: Pool, model: str, version: int | str | None, now: float) -> None:
        """A job for this model was told that it is not there."""
        pool.has_not(model, version, now)
        self._free.clear()

    # --- who gets it --------------------------------------------------------------------------------------------

    def pick(self, model: str, version: int | str | None, now: float, tried: Collection[Pool] = ()) -> Pool | None:
        """Where a job goes now, but to none of those that it has `tried`. None: nowhere."""
        pools = self._free.get(model)
        if pools is None:
            pools = self._found(model, version, now)
        if tried or version is not None:
            pools = [pool for pool in pools if pool not in tried and not pool.lacks(model, version, now)]
        if len(pools) < 2:
            return pools[0] if pools else None
        last = self._last
        if last is None or now >= self._kept_until or last.mine or last.others or last not in pools:
            self._last = last = self._best(pools, now)
            self._kept_until = now + KEPT_S
        return last

    def forget_last(self) -> None:
        """What is picked next stays there, so it is compared."""
        self._last = None

    def _best(self, pools: Sequence[Pool], now: float) -> Pool:
        drawn = self._drawn(pools) if len(pools) > DRAWN else pools
        first = int(self._random() * len(drawn))
        best, others = drawn[first], [*drawn[first + 1 :], *drawn[:first]]
        best_s = best.expected_s(now)
        for other in others:
            seconds = other.expected_s(now)
            idle = not (best.mine or best.others or other.mine or other.others)
            if seconds * (ALIKE if idle else 1.0) < best_s:
                best, best_s = other, seconds
        return self._nearer(best, pools, now) if self._near else best

    def _drawn(self, pools: Sequence[Pool]) -> list[Pool]:
        """Some of more. Each set is as likely as any other: pools that lie side by side may have the same models."""
        drawn: list[Pool] = []
        for most in range(len(pools) - DRAWN, len(pools)):
            pool = pools[int(self._random() * (most + 1))]
            drawn.append(pools[most] if pool in drawn else pool)
        return drawn

    def _nearer(self, best: Pool, pools: Collection[Pool], now: float) -> Pool:
        """One on this machine instead, which has shared memory, unless it is far busier."""
        near = [pool for pool in pools if pool in self._near]
        if not near or best in near:
            return best
        other = min(near, key=lambda pool: pool.expected_s(now))
        return other if other.expected_s(now) <= NEAR * best.expected_s(now) else best

    def _found(self, model: str, version: int | str | None, now: float) -> list[Pool]:
        if self.keeps_state(model) is not False:
            kept = self.keeper(model, version, now)
            return [kept] if kept is not None and kept.state in (PoolState.SERVING, PoolState.SILENT) else []
        have = [pool for pool in self.pools.values() if pool.offers and model in pool.offers]
        able = [pool for pool in have if not pool.lacks(model, None, now)]
        for state in (PoolState.SERVING, PoolState.SILENT):
            there_are = [pool for pool in able if pool.state is state]
            if there_are:
                ready = [pool for pool in there_are if pool.offers and pool.offers[model].slots]
                if len(able) == len(have):  # else it ends with the time
                    self._free[model] = ready or there_are
                return ready or there_are
        return []

    def keeps_state(self, model: str) -> bool | None:
        """Whether its jobs keep to one pool. None: nobody has told, and then they do."""
        told = [pool.offers[model] for pool in self.pools.values() if pool.offers and model in pool.offers]
        if any(offer.stateful for offer in told):
            return True
        return False if any(offer.slots for offer in told) else None

    def keeper(self, model: str, version: int | str | None, now: float) -> Pool | None:
        """The pool where a model's state is, or would be, whether it is there now or not. None: no pool has it."""
        pools = self.pools.values()
        have = [pool for pool in pools if pool.may_have(model, version, now)]
        # None has told of it; it may have been loaded since.
        unsure = [] if have else [pool for pool in pools if not pool.lacks(model, version, now)]
        return max(have or unsure, key=lambda pool: _rank(pool.endpoint, model), default=None)

    def awaited(self, model: str, version: int | str | None, now: float, tried: Collection[Pool] = ()) -> Pool | None:
        """Where a job waits that can go nowhere: a pool that is away, may have the model, and is none of `tried`."""
        away = [pool for pool in self.pools.values() if pool.state is not PoolState.SERVING and pool not in tried]
        if self.keeps_state(model):
            kept = self.keeper(model, version, now)
            return kept if kept in away else None
        may = [pool for pool in away if pool.may_have(model, version, now)]
        return max(may, key=lambda pool: _rank(pool.endpoint, model), default=None)

    def to_probe(self, now: float, older_s: float) -> list[Pool]:
        """Two of those that serve and have told nothing for so long, or that had models which nobody could run yet."""
        serve = [pool for pool in self.pools.values() if pool.state is PoolState.SERVING]
        stale = [(self._random(), pool) for pool in serve if pool.heard + older_s <= now or not pool.is_ready]
        return [pool for _, pool in sorted(stale, key=itemgetter(0))[:2]]


def _rank(endpoint: str, model: str) -> bytes:
    return blake2b(f"{endpoint}\0{model}".encode(errors="surrogatepass"), digest_size=8).digest()
