"""Which clients were heard of, and how long ago in time that the pool itself was awake.

A pool that was frozen (SIGSTOP, a suspended machine, a debugger) finds its clients' pings unread and an hour gone by;
no client was silent for that. So a pause counts as no more than the time between two looks.
"""

from collections import OrderedDict

__all__ = ["Presence"]

LOOK_S = 5.0  # somebody looks at least this often while there are clients


class Presence:
    def __init__(self, silence_s: float) -> None:
        """A client that was not heard of for `silence_s` seconds is silent."""
        self._silence_s = silence_s
        self._awake_s = 0.0
        self._looked: float | None = None
        self._heard: OrderedDict[bytes, float] = OrderedDict()  # the one not heard of for longest is first

    def heard(self, client: bytes, now: float) -> None:
        self._advance(now)
        self._heard[client] = self._awake_s
        self._heard.move_to_end(client)

    def forget(self, client: bytes) -> None:
        self._heard.pop(client, None)

    def clients(self) -> list[bytes]:
        return list(self._heard)

    def silent(self, now: float) -> list[bytes]:
        """The silent clients, each of which the caller forgets or hears of before it asks again."""
        self._advance(now)
        silent = []
        for client, heard in self._heard.items():
            if self._awake_s - heard <= self._silence_s:
                break
            silent.append(client)
        return silent

    def next_look(self, now: float) -> float | None:
        """When `silent` is to be called at the latest."""
        return now + LOOK_S if self._heard else None

    def _advance(self, now: float) -> None:
        if self._looked is not None:
            self._awake_s += min(now - self._looked, LOOK_S)
        self._looked = now
