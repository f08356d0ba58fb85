"""When one of the gateway's processes starts, is replaced, and ends. Sans-I/O: instants come in, orders go out.

    begin ─► STARTING ─ its first sign of life ─► SERVING ─ replace ─► STARTING, and the former ends once this serves
                │ ▲                                  │
           died │ │ the pause is over           died │ silent for too long
                ▼ │                                  ▼
              BACKOFF ◄──────────────────────────────┘     stop ─► STOPPING ─ all are gone ─► STOPPED

It is never given up: what it may lack, such as memory or a certificate, may be there later.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pool.core import IllegalStep

__all__ = ["GATEWAY_STEPS", "GatewayState", "Kill", "Life", "Order", "Pace", "Spawn", "Terminate"]


class GatewayState(Enum):
    STARTING = "the process has started and does not answer yet"
    SERVING = "it accepts connections"
    BACKOFF = "it died; the next one starts after a pause"
    STOPPING = "it was told to end, and finishes what it has"
    STOPPED = "there is no process, and none is wanted"


GATEWAY_STEPS: Mapping[GatewayState, frozenset[GatewayState]] = {
    GatewayState.STOPPED: frozenset({GatewayState.STARTING}),
    GatewayState.STARTING: frozenset(
        {GatewayState.STARTING, GatewayState.SERVING, GatewayState.BACKOFF, GatewayState.STOPPING}
    ),
    GatewayState.SERVING: frozenset({GatewayState.STARTING, GatewayState.BACKOFF, GatewayState.STOPPING}),
    GatewayState.BACKOFF: frozenset({GatewayState.STARTING, GatewayState.STOPPING, GatewayState.STOPPED}),
    GatewayState.STOPPING: frozenset({GatewayState.STOPPED}),
}


@dataclass(frozen=True, slots=True)
class Spawn:
    incarnation: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """It finishes what it has, and accepts nothing any more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Kill:
    incarnation: int


Order = Spawn | Terminate | Kill


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient the parent is."""

    start_s: float = 60.0  # until the first sign of life: imports take a second, more on a busy machine
    silent_s: float = 15.0  # a process that serves says so each second
    first_pause_s: float = 0.1  # one that died once is wanted back at once
    longest_pause_s: float = 30.0
    served_pause_s: float = 1.0  # at most, after one that has served: so will the next, and connections wait for it
    steady_s: float = 60.0  # who has served for so long is no longer one of those that die at once


class Life:
    """Of the process with one number, and of those that follow it.

    REQUIRES that each exit of a spawned process is told once, whatever was ordered.
    """

    def __init__(self, number: int, rng: random.Random, pace: Pace) -> None:
        self.number = number
        self.state = self.said = GatewayState.STOPPED
        """`said`: the last that the log has."""
        self.incarnation = 0
        """The one that is to serve."""
        self.restarts = 0
        self.reason = ""
        """How the last one died; "" once the next one serves."""
        self.pause_s = 0.0
        self._rng = rng
        self._pace = pace
        self._due = math.inf  # when something follows from the state
        self._serves_since = math.inf
        self._deaths = 0  # in a row
        self._former: list[int] = []  # they serve until the next one does
        self._leaving: dict[int, float] = {}  # those told to end, and when they are killed
        self._patience_s = 0.0  # for those

    @property
    def is_gone(self) -> bool:
        return self.state is GatewayState.STOPPED and not self._leaving

    def next_deadline(self) -> float:
        """Infinite where none is awaited."""
        return min([self._due, *self._leaving.values()])

    def begin(self, now: float) -> list[Order]:
        """REQUIRES that it is STOPPED."""
        return self._start(now)  # STOPPED → STARTING

    def alive(self, incarnation: int, now: float) -> list[Order]:
        """A process accepts connections, and its loop turns."""
        if incarnation != self.incarnation or self.state not in (GatewayState.STARTING, GatewayState.SERVING):
            return []
        self._due = now + self._pace.silent_s
        if self.state is GatewayState.SERVING:
            return []
        self._step(GatewayState.SERVING)  # STARTING → SERVING
        self._serves_since, self.reason = now, ""
        return self._let_former_go(now)

    def exited(self, incarnation: int, how: str, now: float) -> list[Order]:
        """The process is gone, or could not be had at all."""
        if incarnation in self._former:
            self._former.remove(incarnation)
            return []
        self._leaving.pop(incarnation, None)
        if self.state is GatewayState.STOPPING:
            return self._end_if_gone()
        if incarnation != self.incarnation or self.state not in (GatewayState.STARTING, GatewayState.SERVING):
            return []
        return self._died(how, now)

    def replace(self, patience_s: float, now: float) -> list[Order]:
        """The next one has other settings. The former gets `patience_s` seconds to finish what it has."""
        self._patience_s = patience_s
        if self.state in (GatewayState.STARTING, GatewayState.SERVING):
            self._former.append(self.incarnation)
            return self._start(now)  # SERVING → STARTING
        if self.state is GatewayState.BACKOFF:  # what it died of may be put right
            self._due, self._deaths = now, 0
        return []

    def stop(self, patience_s: float, now: float) -> list[Order]:
        self._patience_s = patience_s
        if self.state in (GatewayState.STOPPED, GatewayState.STOPPING):
            return []
        if self.state in (GatewayState.STARTING, GatewayState.SERVING):
            self._former.append(self.incarnation)
        self._step(GatewayState.STOPPING)
        self._due = math.inf
        return [*self._let_former_go(now), *self._end_if_gone()]

    def kill(self, now: float) -> list[Order]:
        """Whatever is left ends at once, and nobody follows."""
        orders = self.stop(0.0, now)
        left = [each for each, due in self._leaving.items() if due < math.inf]
        self._leaving.update(dict.fromkeys(left, math.inf))
        return [*(each for each in orders if not isinstance(each, Terminate)), *map(Kill, left)]

    def tick(self, now: float) -> list[Order]:
        """What is due."""
        late = [each for each, due in self._leaving.items() if due <= now]
        self._leaving.update(dict.fromkeys(late, math.inf))  # it is killed once
        orders: list[Order] = list(map(Kill, late))
        if self._due > now:
            return orders
        match self.state:
            case GatewayState.BACKOFF:
                self.restarts += 1
                orders += self._start(now)  # BACKOFF → STARTING
            case GatewayState.STARTING:
                orders += self._stuck(f"it did not answer within {self._pace.start_s:g} s", now)
            case GatewayState.SERVING:
                orders += self._stuck(f"it gave no sign of life for {self._pace.silent_s:g} s", now)
        return orders

    def _start(self, now: float) -> list[Order]:
        self._step(GatewayState.STARTING)
        self.incarnation += 1
        self._due = now + self._pace.start_s
        return [Spawn(self.incarnation)]

    def _stuck(self, why: str, now: float) -> list[Order]:
        self._leaving[self.incarnation] = math.inf
        return [Kill(self.incarnation), *self._died(why, now)]

    def _died(self, how: str, now: float) -> list[Order]:
        """STARTING, SERVING → BACKOFF. The former ones end, too: what they serve by is no longer valid."""
        if now - self._serves_since >= self._pace.steady_s:
            self._deaths = 0
        self._deaths += 1
        longest_s = self._pace.longest_pause_s if self._serves_since == math.inf else self._pace.served_pause_s
        self._step(GatewayState.BACKOFF)
        self.reason, self._serves_since = how, math.inf
        pause_s = min(longest_s, self._pace.first_pause_s * 2.0 ** min(self._deaths - 1, 64))
        self.pause_s = pause_s * self._rng.uniform(0.6, 1.0)
        self._due = now + self.pause_s
        return self._let_former_go(now)

    def _let_former_go(self, now: float) -> list[Order]:
        former, self._former = self._former, []
        self._leaving.update(dict.fromkeys(former, now + self._patience_s))
        return [Terminate(each) for each in former]

    def _end_if_gone(self) -> list[Order]:
        if not self._leaving:
            self._step(GatewayState.STOPPED)  # STOPPING → STOPPED
        return []

    def _step(self, state: GatewayState) -> None:
        """Raises `IllegalStep` for one that the table does not have, and changes nothing."""
        if state not in GATEWAY_STEPS[self.state]:
            raise IllegalStep(f"{self.state.name} → {state.name} is no step of a gateway")
        self.state = state
