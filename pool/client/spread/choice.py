"""Which of several pools gets a job: the one that is likely to answer first. The clock is an argument.

    SOUGHT ──► SERVING ◄──► SILENT
       ▲          ├──► DRAINING
       └──────────┴────────┴──── its connection has ended

Of each pool it knows what the pool itself tells, with each answer and when it is asked: which models it has, how many
jobs of each wait there, what a job takes. To this it adds the jobs that this client has sent there since. Of two pools
that it draws, it takes the one with the shorter queue. So clients whose knowledge is equally old do not all choose the
same pool.

A model that keeps state, or of which nobody has told whether it does, has one pool: the first in an order that depends
on nothing but the names of model and endpoint (rendezvous hashing). All clients with these endpoints agree on it, and
no other pool takes its place while it is away.
"""

import random
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import TypeAlias

from pool.wire.offers import Offer

__all__ = ["Choice", "Load", "Pool", "PoolState"]

_Asked: TypeAlias = tuple[str, int | str | None]  # a model, and a version of it

LEARNED = 0.1  # the share of a new cost in what is known of it
LACKING_S = 5.0  # a model that a pool did not have is asked for again after this, as it may have been loaded
FADING_S = 1.0  # what a pool has told of others' jobs counts for nothing after so long …
FADING_JOBS = 4.0  # … or after it could have answered so many times as many
LEAST_S = 1e-4  # a pool takes no less for a job: what is not known yet is not free
ALIKE = 1.5  # of two pools where nothing waits, none is preferred whose job takes this many times as long at most


class PoolState(Enum):
    SOUGHT = "there is no connection, so it gets no job that another can run"
    SERVING = "it takes jobs"
    SILENT = "it owes an answer to a ping, so it gets no job that another can run"
    DRAINING = "it stops, and takes no more jobs"


class Load:
    """One model at one pool. `mine`: jobs that this client has sent there, or is about to, and has no answer to.

    `others`: jobs of other clients, as the pool told `at` that instant. `job_s`: device time that one takes; 0.0: not
    known. `slots`: of the pool, which run the model side by side.
    """

    __slots__ = ("at", "job_s", "mine", "others", "pool", "slots")

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.mine = 0
        self.others = 0
        self.at = 0.0
        self.job_s = 0.0
        self.slots = 1

    def learn(self, waiting: int, job_s: float, now: float) -> None:
        """With an answer: so many jobs of the model wait there, one has taken so long."""
        others = waiting - self.mine
        self.others = others if others > 0 else 0
        self.at = self.pool.heard = now
        self.job_s = self.job_s + LEARNED * (job_s - self.job_s) if self.job_s else job_s

    def expected_s(self, now: float) -> float:
        """How long a job is likely to take that is sent there now."""
        job_s = (self.job_s if self.job_s > LEAST_S else LEAST_S) / self.slots
        others: float = self.others
        if others:
            left = 1.0 - (now - self.at) / (FADING_S + FADING_JOBS * others * job_s)
            others = others * left if left > 0.0 else 0.0
        return (others + self.mine + 1) * job_s


class Pool:
    """`offers`: what it has; None: it has never told. `heard`: when it told anything last."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.state = PoolState.SOUGHT
        self.offers: Mapping[str, Offer] | None = None
        self.heard = 0.0
        self.loads: dict[str, Load] = {}
        self._lacking: dict[_Asked, float] = {}

    def load(self, model: str) -> Load:
        found = self.loads.get(model)
        if found is None:
            found = self.loads[model] = Load(self)
        return found

    def lacks(self, model: str, version: int | str | None, now: float) -> bool:
        """Whether a job for it has just been told that it is not there."""
        return bool(self._lacking) and self._lacking.get((model, version), now) > now

    def has_not(self, model: str, version: int | str | None, now: float) -> None:
        """A job for it has been told so."""
        self._lacking = {asked: until for asked, until in self._lacking.items() if until > now}
        self._lacking[(model, version)] = now + LACKING_S

    def may_have(self, model: str, version: int | str | None, now: float) -> bool:
        return (self.offers is None or model in self.offers) and not self.lacks(model, version, now)

    @property
    def is_ready(self) -> bool:
        """Whether all that it has can run."""
        return all(offer.slots for offer in (self.offers or {}).values())

    def told(self, offers: Mapping[str, Offer], asked: Collection[str], now: float) -> None:
        known = {} if self.offers is None or not asked else dict(self.offers)
        for model in asked:
            known.pop(model, None)
        self.offers, self.heard = {**known, **offers}, now
        self._lacking = {about: until for about, until in self._lacking.items() if about[0] not in offers}
        for model, offer in offers.items():
            load = self.load(model)
            load.others, load.at = max(0, offer.waiting - load.mine), now
            load.slots = max(1, offer.slots)
            load.job_s = offer.job_s or load.job_s


class Choice:
    """Not safe for several threads at once."""

    def __init__(self, endpoints: Iterable[str], chance: random.Random) -> None:
        self.pools: dict[str, Pool] = {}
        self._random = chance.random
        self._free: dict[str, list[Load]] = {}  # by model: where its jobs may go, as long as nothing else is told
        self.replace(endpoints)

    def replace(self, endpoints: Iterable[str]) -> None:
        """These are the pools from now on."""
        self.pools = {each: self.pools.get(each) or Pool(each) for each in endpoints}
        self._free.clear()

    # --- what is known ------------------------------------------------------------------------------------------

    def becomes(self, pool: Pool, state: PoolState) -> None:
        if pool.state is not state:
            pool.state = state
            self._free.clear()

    def told(self, pool: Pool, offers: Mapping[str, Offer], asked: Collection[str], now: float) -> None:
        """What the pool offers: of those that were `asked` for, or of all."""
        pool.told(offers, asked, now)
        self._free.clear()

    def has_not(self, pool: Pool, model: str, version: int | str | None, now: float) -> None:
        """A job for this model was told that it is not there."""
        pool.has_not(model, version, now)
        self._free.clear()

    # --- who gets it --------------------------------------------------------------------------------------------

    def pick(self, model: str, version: int | str | None, now: float, tried: Collection[Pool] = ()) -> Load | None:
        """Where a job goes now, but to none of those that it has `tried`. None: nowhere."""
        loads = self._free.get(model)
        if loads is None:
            loads = self._found(model, version, now)
        if tried or version is not None:
            loads = [load for load in loads if load.pool not in tried and not load.pool.lacks(model, version, now)]
        count = len(loads)
        if count < 2:
            return loads[0] if loads else None
        first = int(self._random() * count)
        second = (first + 1 + int(self._random() * (count - 1))) % count
        one, other = loads[first], loads[second]
        margin = 1.0 if one.mine or one.others or other.mine or other.others else ALIKE
        return one if one.expected_s(now) <= margin * other.expected_s(now) else other

    def _found(self, model: str, version: int | str | None, now: float) -> list[Load]:
        if self.keeps_state(model) is not False:
            kept = self.keeper(model, version, now)
            there = kept is not None and kept.state in (PoolState.SERVING, PoolState.SILENT)
            return [kept.load(model)] if there and kept is not None else []
        have = [pool for pool in self.pools.values() if pool.offers and model in pool.offers]
        able = [pool for pool in have if not pool.lacks(model, None, now)]
        for state in (PoolState.SERVING, PoolState.SILENT):
            there_are = [pool for pool in able if pool.state is state]
            if there_are:
                ready = [pool for pool in there_are if pool.offers and pool.offers[model].slots]
                loads = [pool.load(model) for pool in ready or there_are]
                if len(able) == len(have):  # else it ends with the time
                    self._free[model] = loads
                return loads
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

    def awaited(self, model: str, version: int | str | None, now: float) -> Pool | None:
        """Where a job waits that can go nowhere now: a pool that is not there, and may have the model."""
        if self.keeps_state(model):
            kept = self.keeper(model, version, now)
            return None if kept is None or kept.state is PoolState.SERVING else kept
        pools = [pool for pool in self.pools.values() if pool.state is not PoolState.SERVING]
        may = [pool for pool in pools if pool.may_have(model, version, now)]
        return max(may, key=lambda pool: _rank(pool.endpoint, model), default=None)

    def to_probe(self, now: float, older_s: float) -> list[Pool]:
        """Two of those that serve and have told nothing for so long, or that had models which nobody could run yet."""
        serve = [pool for pool in self.pools.values() if pool.state is PoolState.SERVING]
        stale = [pool for pool in serve if pool.heard + older_s <= now or not pool.is_ready]
        return sorted(stale, key=lambda _: self._random())[:2]


def _rank(endpoint: str, model: str) -> bytes:
    return blake2b(f"{endpoint}\0{model}".encode(errors="surrogatepass"), digest_size=8).digest()
