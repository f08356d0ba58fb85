"""The clients: who speaks where, what the pool keeps for each of them, and how long ago each was heard of.

By its number a client is known and shown; where it is reached is told to nobody. A pool that was frozen (SIGSTOP, a
suspended machine, a debugger) finds its clients' pings unread and an hour gone by; no client was silent for that. So a
pause counts as no more than the time between two looks.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from pool.keys import Entrant
from pool.serve.calls import Calls
from pool.serve.repeats import Reading
from pool.serve.shared_memory import JobRegions
from pool.serve.standing import NOBODY, Standing
from pool.wire.client_messages import Opened

__all__ = ["LOOK_S", "Address", "Client", "Clients"]

MOST_RESTING = 4096
LOOK_S = 5.0  # somebody looks at least this often while there are clients

Address = tuple[int, bytes]  # which of the sockets, and the routing id there


@dataclass(slots=True, eq=False)
class Client:
    """`name`: its number as bytes, and the name of its account. `owed`: the jobs that it has no answer to, and where
    each lies in segments.

    `comparing`: those of them that are compared with quarantined ones first. `terms`: the last that it was told of.
    `standing`: who it is, and what it may. `entrant`: whose key it has shown; `uid`: whose process it is, where the
    kernel says so. `impersonates`: as whom it has come; "": as itself.
    """

    name: bytes
    address: Address
    terms: Opened
    standing: Standing = NOBODY
    entrant: Entrant | None = None
    uid: int | None = None
    impersonates: str = ""
    calls: Calls = field(default_factory=Calls)
    owed: dict[int, JobRegions | None] = field(default_factory=dict)
    comparing: dict[int, Reading] = field(default_factory=dict)
    heard_at: float = 0.0  # in time that the pool was awake

    def settle(self, job: int, quietly: bool = False) -> bool:
        """It does not wait for the job any more; whether nobody uses its memory either.

        `quietly`: then it hears of that in another way. Where somebody does, it is told later.
        """
        regions = self.owed.pop(job, None)
        if regions is None:
            return True
        last = regions.is_last
        regions.quiet = quietly and last
        regions.let_go()
        return last

    def forget(self) -> None:
        """It is gone, and is told of nothing any more."""
        for reading in self.comparing.values():
            reading.give_up()
        for regions in self.owed.values():
            if regions is not None:
                regions.quiet = True
                regions.let_go()
        self.owed, self.comparing, self.calls = {}, {}, Calls()


class Clients:
    """The numbers count from 1, and none is given twice."""

    def __init__(self, silence_s: float, terms: Opened) -> None:
        """A client that was not heard of for `silence_s` seconds is silent. `terms`: the first, that all may know."""
        self.at: dict[Address, Client] = {}
        """To be read: who is where."""
        self.named: dict[bytes, Client] = {}
        """To be read: whose name it is; who was forgotten has none."""
        self._silence_s, self._terms = silence_s, terms
        self._last = 0
        self._resting: OrderedDict[Client, None] = OrderedDict()  # known by name alone, until they are heard of again
        self._heard: OrderedDict[Client, None] = OrderedDict()  # the one not heard of for longest is first
        self._latest: Client | None = None  # which is last there, if it is there
        self._asleep_s = 0.0  # of all pauses, what is beyond the time between two looks
        self._looked = math.inf

    def find(
        self,
        address: Address,
        standing: Standing = NOBODY,
        entrant: Entrant | None = None,
        uid: int | None = None,
        impersonates: str = "",
    ) -> Client:
        """The client there; a new one if there is none, of which the rest is said."""
        client = self.at.get(address)
        if client is None:
            self._last += 1
            name = self._last.to_bytes(8, "big") + standing.account.encode()
            client = self.at[address] = Client(name, address, self._terms, standing, entrant, uid, impersonates)
            self.named[client.name] = client
        return client

    def rest(self, client: Client) -> None:
        """Nothing is known of it any more. If it speaks again before many others have come to rest, it is the same."""
        self._heard.pop(client, None)
        client.terms = self._terms
        if client.standing is NOBODY:  # the next message is to tell who it is
            self.forget(client)
        elif client.name in self.named:
            self._resting[client] = None
            if len(self._resting) > MOST_RESTING:
                self.forget(next(iter(self._resting)))

    def forget(self, client: Client) -> None:
        """It is gone."""
        self._heard.pop(client, None)
        self._resting.pop(client, None)
        if self.named.pop(client.name, None) is not None:
            del self.at[client.address]

    # --- who is there -------------------------------------------------------------------------------------------

    def heard(self, client: Client, now: float) -> None:
        if now - self._looked > LOOK_S:
            self._asleep_s += now - self._looked - LOOK_S
        self._looked = now
        client.heard_at = now - self._asleep_s
        if self._resting:
            self._resting.pop(client, None)
        if client is not self._latest or client not in self._heard:
            self._heard[client] = None
            self._heard.move_to_end(client)
            self._latest = client

    def present(self) -> list[Client]:
        """Who was heard of and has not gone."""
        return list(self._heard)

    def silent(self, now: float) -> list[Client]:
        """The silent ones, each of which the caller forgets or hears of before it asks again."""
        if now - self._looked > LOOK_S:
            self._asleep_s += now - self._looked - LOOK_S
        self._looked = now
        silent = []
        for client in self._heard:
            if now - self._asleep_s - client.heard_at <= self._silence_s:
                break
            silent.append(client)
        return silent

    def next_look(self, now: float) -> float | None:
        """When `silent` is to be called at the latest."""
        return now + LOOK_S if self._heard else None
