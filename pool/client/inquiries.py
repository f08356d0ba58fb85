"""The questions of a client that have no answer yet."""

from collections.abc import Iterator, Sequence

import zmq

from pool.client.wait import Wait
from pool.errors import PoolError, PoolUnreachable, from_fault
from pool.wire.client_messages import Answer, Ask

__all__ = ["Inquiries"]

REPEATABLE = frozenset({"status", "metrics", "models", "explain", "logs"})  # asked twice, they do no more than once


class Inquiries:
    """Used by the I/O thread alone, but for `requests`: who asks puts its wait there, and takes it back at last."""

    def __init__(self, requests: dict[int, Wait]) -> None:
        self._requests = requests
        self._asks: dict[int, Ask] = {}

    def add(self, ask: Ask) -> None:
        self._asks = {number: each for number, each in self._asks.items() if number in self._requests}
        self._asks[ask.request] = ask

    def wanted(self) -> Iterator[Ask]:
        """Those that somebody still waits for, in their order."""
        return iter([ask for ask in self._asks.values() if ask.request in self._requests])

    def answered(self, answer: Answer, payload: Sequence[zmq.Frame]) -> None:
        self._asks.pop(answer.request, None)
        wait = self._requests.get(answer.request)
        if wait is not None:
            refused = None if answer.error is None else from_fault(answer.fault, answer.error)
            wait.finish(refused or (b"".join([frame.buffer for frame in payload]),))

    def lose_pool(self, lost: PoolError) -> None:
        """What the pool was asked to do, and has perhaps done, the next one is not asked for."""
        for ask in list(self._asks.values()):
            if ask.what not in REPEATABLE:
                del self._asks[ask.request]
                if (wait := self._requests.get(ask.request)) is not None:
                    wait.finish(PoolUnreachable(f"{lost}, and did not say whether it would {ask.what}"))
