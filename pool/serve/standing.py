"""Who a client is to the pool, and what it may do.

    the pool's own user and root, at the Unix socket    everything, whatever the configuration says of them
    a key or user that a [[client]] names               its `models` and its `may`; its jobs count on its account
    anybody else who gets in                            submits jobs of all models, and asks
    who impersonates a client                           what both may, on the account of that client

The account of who has no [[client]] is shown as `key:NAME`, `token:NAME`, `uid:NUMBER`, or `anybody`. A token is what a
gateway that impersonates has been shown.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.core.policy import KEY, TOKEN
from pool.wire.rights import RIGHTS

if TYPE_CHECKING:
    from pool.config import ClientSection

__all__ = ["ANYBODY", "NOBODY", "Standing", "Standings", "other_models"]


@dataclass(frozen=True, slots=True)
class Standing:
    """`account`: on which its jobs count. `models`: those that it may use; None: all. `may`: its rights."""

    account: str
    models: frozenset[str] | None = None
    may: frozenset[str] = frozenset()


ANYBODY = Standing("anybody")
"""Who comes over TCP where no key is asked for."""
NOBODY = Standing("nobody", frozenset())
"""Of whom the pool has failed to read who it is."""


def other_models(standing: Standing, what: str, model: str) -> str:
    """What is said to who may not do this with a model, whether there is one or not."""
    return f"client {standing.account} may not {what} model {model!r:.100}: its [[client]] has other `models`"


class Standings:
    def __init__(self, clients: "Sequence[ClientSection]" = ()) -> None:
        """REQUIRES that no two name the same key or user."""
        self._named = {client.name: client for client in clients}
        self._keys = {key: client for client in clients for key in (client.name, *client.keys)}
        self._users = {user: client for client in clients for user in client.users}
        self._owners = {os.getuid(), 0}

    def impersonated(self, own: Standing, name: str) -> Standing | None:
        """Of who is `own` and comes as the client of this name; None: it may not. REQUIRES a name."""
        if "impersonate" not in own.may:
            return None
        client = self._named.get(name)
        standing = Standing(f"{TOKEN}{name}") if client is None else _as_written(client)
        return Standing(standing.account, _both(own.models, standing.models), standing.may & own.may)

    def of_key(self, name: str) -> Standing:
        client = self._keys.get(name)
        return Standing(f"{KEY}{name}") if client is None else _as_written(client)

    def of_user(self, uid: int | None) -> Standing:
        """Of who comes by the Unix socket. None: the kernel does not say who it is."""
        if uid is None:
            return ANYBODY
        client = self._users.get(uid)
        standing = Standing(f"uid:{uid}") if client is None else _as_written(client)
        return Standing(standing.account, None, RIGHTS) if uid in self._owners else standing


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    return other if one is None else one if other is None else one & other


def _as_written(client: "ClientSection") -> Standing:
    models = None if client.models is None else frozenset(client.models)
    return Standing(client.name, models, frozenset(client.may))
