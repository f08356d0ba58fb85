"""Who asks: a client of the pool for each token, with what it may do."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from pool import AsyncClient
from pool.gateway.accounts import Accounts, Rate, Sum
from pool.gateway.http import Refused, Request
from pool.wire.gateway import ClientRules, GatewaySettings

__all__ = ["Caller", "Callers"]

UNBOUND = 1 << 62


class Caller:
    """One client of the pool, and what it has open in all processes of the gateway."""

    def __init__(self, client: AsyncClient, rules: ClientRules, jobs: Sum, size_bytes: Sum, rate: Rate | None) -> None:
        self.client = client
        self.name = rules.name
        self._rules = rules
        self._jobs = jobs
        self._bytes = size_bytes
        self._rate = rate

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
        if not self._jobs.take(1, UNBOUND if rules.max_jobs is None else rules.max_jobs):
            raise Refused(429, f"{self.name} has {rules.max_jobs} jobs open, as many as it may have", 1.0)
        if not self._bytes.take(size_bytes, UNBOUND if rules.max_bytes is None else rules.max_bytes):
            self._jobs.give(1)
            raise Refused(429, f"{self.name} may have {rules.max_bytes} bytes of open requests", 1.0)
        if self._rate is not None and (wait_s := self._rate.take()):
            self.end(size_bytes)
            raise Refused(429, f"{self.name} may send {rules.rate:g} jobs a second", wait_s)

    def end(self, size_bytes: int) -> None:
        self._jobs.give(1)
        self._bytes.give(size_bytes)


class Callers:
    def __init__(self, settings: GatewaySettings, accounts: Accounts) -> None:
        self._settings = settings
        self._accounts = accounts
        self._names = None if settings.tokens is None else {each.digest: each.name for each in settings.tokens}
        self._callers: dict[str, Caller] = {}
        self.anybody = self._caller(ClientRules("anybody"))
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
        if (caller := self._callers.get(name)) is None:
            caller = self._callers[name] = self._caller(self._settings.rules(name))
        return caller

    async def close(self) -> None:
        for caller in (self.anybody, *self._callers.values()):
            await caller.client.close()

    def _caller(self, rules: ClientRules) -> Caller:
        return Caller(AsyncClient(self._settings.endpoints or None), rules, *self._accounts.of_client(rules.name))
