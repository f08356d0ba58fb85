"""Models that come and go: Triton's repository, where clients are allowed to change it.

A model comes from the pool's configuration by its name. What a request says of files or configurations is refused.
"""

from pool import AsyncClient
from pool.errors import InvalidConfig
from pool.gateway import json_text
from pool.gateway.catalogue import Catalogue
from pool.gateway.http import Refused, Request
from pool.gateway.inference.options import flag, members

__all__ = ["change", "wants_ready"]

OFF = "clients may load and unload models here only where `[gateway]` has `repository_control = true`"


async def change(what: str, name: str, request: Request, client: AsyncClient, catalogue: Catalogue) -> None:
    """`what`: load, or unload. A load ends when the model is served. Raises `PoolError` and `Refused`."""
    parameters = members("parameters", _asked(request).get("parameters"))
    for key in parameters:
        if key == "config" or key.startswith("file:"):
            text = "a model is loaded as the pool's configuration has it, never from a request"
            raise Refused(400, f"parameter {key!r:.80}: {text}")
    try:
        if what == "load":
            await client.load(name)
        else:
            await catalogue.versions(name)
            await client.unload(name)
    except InvalidConfig as error:
        raise Refused(400, str(error)) from None
    finally:
        catalogue.forget()


def wants_ready(request: Request) -> bool:
    """Whether the index is to list only models that can serve."""
    return flag("the request", _asked(request), "ready", False)


def _asked(request: Request) -> dict[str, object]:
    """The body may be empty."""
    return {**members("the request", json_text.read(request.body.data) if len(request.body) else None)}
