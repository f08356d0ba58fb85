"""Models that come and go: Triton's repository, where clients are allowed to change it.

A model comes from the pool's configuration by its name. What a request says of files or configurations is refused.

Of several pools, each changes. None does if one of them gives no answer now: it would come back with what it had.
"""

import asyncio
import logging
from collections.abc import Sequence

from pool import AsyncClient
from pool.errors import InvalidConfig, PoolError
from pool.gateway import json_text
from pool.gateway.catalogue import Catalogue
from pool.gateway.codes import refused
from pool.gateway.http import Refused, Request
from pool.gateway.inference.options import flag, members

__all__ = ["change", "wants_ready"]

log = logging.getLogger("pool.gateway")

OFF = "clients may load and unload models here only where `[gateway]` has `repository_control = true`"


async def change(what: str, name: str, request: Request, client: AsyncClient, catalogue: Catalogue) -> None:
    """`what`: load, or unload. A load ends when the model is served. Raises `PoolError` and `Refused`."""
    parameters = members("parameters", _asked(request).get("parameters"))
    for key in parameters:
        if key == "config" or key.startswith("file:"):
            text = "a model is loaded as the pool's configuration has it, never from a request"
            raise Refused(400, f"parameter {key!r:.80}: {text}")
    try:
        await _check_all_there(catalogue)
        if what == "unload":
            await catalogue.versions(name)
        pools = client.pools
        _check(what, name, pools, await asyncio.gather(*(_changed(what, name, pool, len(pools)) for pool in pools)))
    finally:
        catalogue.forget()


async def _check_all_there(catalogue: Catalogue) -> None:
    told = await catalogue.statuses()
    for answer in told.values():
        if isinstance(answer, PoolError):
            why = refused(answer)
            all_or_none = "" if len(told) == 1 else "; a model is loaded or unloaded in all pools, so none has changed"
            raise Refused(why.status, why.text + all_or_none, why.retry_after_s)


async def _changed(what: str, name: str, pool: AsyncClient, pools: int) -> PoolError | None:
    """Why it has not changed, if it should have."""
    try:
        if what == "load":
            await pool.load(name)
        elif pools == 1 or any(each.model == name for each in await pool.models()):
            await pool.unload(name)
    except PoolError as error:
        return error
    return None


def _check(what: str, name: str, pools: Sequence[AsyncClient], errors: Sequence[PoolError | None]) -> None:
    """Raises `Refused`. A model that is loaded need not be in the configurations of all pools."""
    refuse = [error for error in errors if isinstance(error, InvalidConfig)]
    for pool, error in zip(pools, errors, strict=True):
        if error is None:
            continue
        text = str(error) if len(pools) == 1 else f"pool {pool.endpoint}: {error}"
        if error not in refuse:
            why = refused(error)
            raise Refused(why.status, text, why.retry_after_s)
        if what == "unload" or len(refuse) == len(pools):
            raise Refused(400, text)
        log.info("model %.200s is loaded in other pools; %s", name, text)


def wants_ready(request: Request) -> bool:
    """Whether the index is to list only models that can serve."""
    return flag("the request", _asked(request), "ready", False)


def _asked(request: Request) -> dict[str, object]:
    """The body may be empty."""
    return {**members("the request", json_text.read(request.body.data) if len(request.body) else None)}
