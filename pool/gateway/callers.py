"""Who asks: a client of the pool for each token, with what it may do."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pool import AsyncClient
from pool.gateway.http import Refused, Request

__all__ = ["Caller", "Callers", "Rights"]


@dataclass(frozen=True, slots=True)
class Rights:
    """Of one name, in one process. None: as the pool says. `rate`: jobs a second, `max_bytes`: of open requests."""

    models: frozenset[str] | None = None
    rate: float | None = None
    max_jobs: int | None = None
    max_bytes: int | None = None


class Caller:
    """One client of the pool, and its accounts here."""

    def __init__(self, name: str, client: AsyncClient, rights: Rights) -> None:
        self.name = name
        self.client = client
        self._rights = rights
        self._jobs = 0
        self._bytes = 0
        self._tokens = self._most = max(1.0, rights.rate or 0.0)  # a second's worth may come at once
        self._filled_at = time.monotonic()

    @property
    def is_bound(self) -> bool:
        """Whether there are models that it may not use."""
        return self._rights.models is not None

    def memory(self, size_bytes: int) -> NDArray[np.uint8]:
        """For a body: lent by the pool, if there is some."""
        return self.client._memory(size_bytes)

    def check_model(self, model: str) -> None:
        """Raises `Refused`."""
        if self._rights.models is not None and model not in self._rights.models:
            raise Refused(403, f"{self.name} may not use model {model}")

    def begin(self, size_bytes: int) -> None:
        """A job more. Raises `Refused` (429) at a bound of its own. Every `begin` has an `end`."""
        rights = self._rights
        if rights.max_jobs is not None and self._jobs >= rights.max_jobs:
            raise Refused(429, f"{self.name} has {self._jobs} jobs open, as many as it may have", 1.0)
        if rights.max_bytes is not None and self._bytes + size_bytes > rights.max_bytes:
            raise Refused(429, f"{self.name} may have {rights.max_bytes} bytes of open requests", 1.0)
        if rights.rate is not None:
            now = time.monotonic()
            self._tokens = min(self._most, self._tokens + (now - self._filled_at) * rights.rate)
            self._filled_at = now
            if self._tokens < 1.0:
                wait_s = (1.0 - self._tokens) / rights.rate
                raise Refused(429, f"{self.name} may send {rights.rate:g} jobs a second", wait_s)
            self._tokens -= 1.0
        self._jobs += 1
        self._bytes += size_bytes

    def end(self, size_bytes: int) -> None:
        self._jobs -= 1
        self._bytes -= size_bytes


class Callers:
    def __init__(self, endpoint: str | None, tokens: Mapping[str, str] | None, rights: Mapping[str, Rights]) -> None:
        """`tokens`: names by the SHA-256 of their token, in hexadecimal digits; None where nobody needs one.

        `rights`: by name.
        """
        self._endpoint = endpoint
        self._tokens = tokens
        self._rights = rights
        self._callers: dict[str, Caller] = {}
        self.anybody = Caller("anybody", AsyncClient(endpoint), Rights())
        """Who needs no token."""

    def of(self, request: Request) -> Caller:
        """Raises `Refused` (401) for who shows no token, or one that is not known."""
        if self._tokens is None:
            return self.anybody
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Refused(401, "a token is needed; send the header Authorization: Bearer TOKEN")
        # Of a random token, as these are, its digest tells nothing, nor how long it took to find it.
        name = self._tokens.get(hashlib.sha256(token.strip().encode("latin-1", "replace")).hexdigest())
        if name is None:
            raise Refused(401, "the token is not known here")
        return self._callers.get(name) or self._named(name)

    async def close(self) -> None:
        for caller in (self.anybody, *self._callers.values()):
            await caller.client.close()

    def _named(self, name: str) -> Caller:
        caller = self._callers[name] = Caller(name, AsyncClient(self._endpoint), self._rights.get(name, Rights()))
        return caller
