"""Who asks: a client of the pool for each token, which has the standing and the account of that name there."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from pool import AsyncClient
from pool.gateway.accounts import Accounts, Sum
from pool.gateway.http import Refused, Request
from pool.wire.gateway import GatewaySettings

__all__ = ["Caller", "Callers"]


class Caller:
    """One client of the pool. `bodies`: the bytes of its requests, in all processes; None: they have no bound."""

    def __init__(self, name: str, client: AsyncClient, bodies: Sum | None) -> None:
        self.name = name
        self.client = client
        self.bodies = bodies

    def memory(self, size_bytes: int) -> NDArray[np.uint8]:
        """For a body: lent by the pool, if there is some."""
        return self.client._memory(size_bytes)


class Callers:
    def __init__(self, settings: GatewaySettings, accounts: Accounts) -> None:
        self._settings = settings
        self._accounts = accounts
        self._names = None if settings.tokens is None else {each.digest: each.name for each in settings.tokens}
        self._callers: dict[str, Caller] = {}
        self.anybody = Caller("anybody", self._client(), None)
        """Who needs no token: the gateway itself, to the pool."""

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
            caller = self._callers[name] = Caller(name, self._client(name), self._accounts.bodies_of(name))
        return caller

    async def close(self) -> None:
        for caller in (self.anybody, *self._callers.values()):
            await caller.client.close()

    def _client(self, impersonate: str | None = None) -> AsyncClient:
        return AsyncClient(self._settings.endpoints or None, impersonate=impersonate)
