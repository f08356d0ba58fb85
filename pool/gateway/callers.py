"""Who asks: a client of the pool for each token, with what it may do."""

import hashlib
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pool import AsyncClient
from pool.gateway.http import Refused, Request
from pool.wire.gateway import ClientRules, GatewaySettings

__all__ = ["Caller", "Callers"]


class Caller:
    """One client of the pool, and its accounts here."""

    def __init__(self, client: AsyncClient, rules: ClientRules) -> None:
        """`rules`: of this process."""
        self.client = client
        self.name = rules.name
        self._rules = rules
        self._jobs = 0
        self._bytes = 0
        self._tokens = self._most = max(1.0, rules.rate or 0.0)  # a second's worth may come at once
        self._filled_at = time.monotonic()

    @property
    def is_bound(self) -> bool:
        """Whether there are models that it may not use."""
        return self._rules.models is not None

    def memory(self, size_bytes: int) -> NDArray[np.uint8]:
        """For a body: lent by the pool, if there is some."""
        return self.client._memory(size_bytes)

    def check_model(self, model: str) -> None:
        """Raises `Refused`."""
        if self._rules.models is not None and model not in self._rules.models:
            raise Refused(403, f"{self.name} may not use model {model}")

    def begin(self, size_bytes: int) -> None:
        """A job more. Raises `Refused` (429) at a bound of its own. Every `begin` has an `end`."""
        rules = self._rules
        if rules.max_jobs is not None and self._jobs >= rules.max_jobs:
            raise Refused(429, f"{self.name} has {self._jobs} jobs open, as many as it may have", 1.0)
        if rules.max_bytes is not None and self._bytes + size_bytes > rules.max_bytes:
            raise Refused(429, f"{self.name} may have {rules.max_bytes} bytes of open requests", 1.0)
        if rules.rate is not None:
            now = time.monotonic()
            self._tokens = min(self._most, self._tokens + (now - self._filled_at) * rules.rate)
            self._filled_at = now
            if self._tokens < 1.0:
                wait_s = (1.0 - self._tokens) / rules.rate
                raise Refused(429, f"{self.name} may send {rules.rate:g} jobs a second", wait_s)
            self._tokens -= 1.0
        self._jobs += 1
        self._bytes += size_bytes

    def end(self, size_bytes: int) -> None:
        self._jobs -= 1
        self._bytes -= size_bytes


class Callers:
    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._names = None if settings.tokens is None else {each.digest: each.name for each in settings.tokens}
        self._callers: dict[str, Caller] = {}
        self.anybody = Caller(AsyncClient(settings.endpoint), ClientRules("anybody"))
        """Who needs no token."""

    def of(self, request: Request) -> Caller:
        """Raises `Refused` (401) for who shows no token, or one that is not known."""
        if self._names is None:
            return self.anybody
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Refused(401, "a token is needed; send the header Authorization: Bearer TOKEN")
        # Of a random token, as these are, its digest tells nothing, nor how long it took to find it.
        name = self._names.get(hashlib.sha256(token.strip().encode("latin-1", "replace")).digest())
        if name is None:
            raise Refused(401, "the token is not known here")
        return self._callers.get(name) or self._named(name)

    async def close(self) -> None:
        for caller in (self.anybody, *self._callers.values()):
            await caller.client.close()

    def _named(self, name: str) -> Caller:
        rules = _share(self._settings.rules(name), self._settings.processes)
        caller = self._callers[name] = Caller(AsyncClient(self._settings.endpoint), rules)
        return caller


def _share(rules: ClientRules, processes: int) -> ClientRules:
    """Of one process: all of them together allow no more than the rules, but that each allows one job at a time."""
    return replace(
        rules,
        rate=None if rules.rate is None else rules.rate / processes,
        max_jobs=None if rules.max_jobs is None else max(1, rules.max_jobs // processes),
        max_bytes=None if rules.max_bytes is None else rules.max_bytes // processes,
    )
