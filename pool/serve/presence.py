"""Which clients were heard of, and how long ago in time that the pool itself was awake.

A pool that was frozen (SIGSTOP, a suspended machine, a debugger) finds its clients' pings unread and an hour gone by;
no client was silent for that. So a pause counts as no more than the time between two looks.
"""

import math
from collections import OrderedDict

__all__ = ["Presence"]

LOOK_S = 5.0  # somebody looks at least this often while there are clients


class Presence:
    def __init__(self, silence_s: float) -> None:
        """A client that was not heard of for `silence_s` seconds is silent."""
        self._silence_s = silence_s
        self._asleep_s = 0.0  # of all pauses, what is beyond the time between two looks
        self._looked = math.inf
        self._heard: OrderedDict[bytes, float] = OrderedDict()  # the one not heard of for longest is first
        self._latest: bytes | None = None  # which is last there, if it is there

    def heard(self, client: bytes, now: float) -> None:
        if now - self._looked > LOOK_S:
            self._asleep_s += now - self._looked - LOOK_S
        self._looked = now
        self._heard[client] = now - self._asleep_s
        if client != self._latest:
            self._heard.move_to_end(client)
            self._latest = client

    def forget(self, client: bytes) -> None:
        self._heard.pop(client, None)

    def clients(self) -> list[bytes]:
        return list(self._heard)

    def silent(self, now: float) -> list[bytes]:
        """The silent clients, each of which the caller forgets or hears of before it asks again."""
        if now - self._looked > LOOK_S:
            self._asleep_s += now - self._looked - LOOK_S
        self._looked = now
        silent = []
        for client, heard in self._heard.items():
            if now - self._asleep_s - heard <= self._silence_s:
                break
            silent.append(client)
        return silent

    def next_look(self, now: float) -> float | None:
        """When `silent` is to be called at the latest."""
        return now + LOOK_S if self._heard else None
