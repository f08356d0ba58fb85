"""From a request below /v2 to its response: which of the protocol's questions it is."""

from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Any

from pool import AsyncClient
from pool.errors import PoolError
from pool.gateway import json_text
from pool.gateway.catalogue import Catalogue, Catalogues, answered
from pool.gateway.http import Refused, Request, Response
from pool.gateway.inference.answer import JSON
from pool.gateway.inference.descriptions import config, index, metadata
from pool.gateway.inference.infer import Infer
from pool.gateway.inference.paths import Place, allow, asked_signature, of_model
from pool.gateway.inference.repository import OFF, change, wants_ready
from pool.gateway.inference.statistics import statistics
from pool.wire.readiness import why_not_ready
from pool.wire.records import Metrics, Status

__all__ = ["Inference"]

EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "schedule_policy"]
NOT_SERVED = {
    "systemsharedmemory": "system shared memory",
    "cudasharedmemory": "CUDA shared memory",
    "trace": "trace",
    "logging": "logging",
    "generate": "generate",
    "generate_stream": "generate",
}
"""Extensions, by the part of a path that they are at."""


class Inference:
    """One of a gateway process. It keeps what clients send and ask often, see `Plans` and `Catalogue`."""

    def __init__(self, catalogues: Catalogues | None = None, *, repository: bool = False) -> None:
        """`repository`: whether clients may load and unload models, by the names of the pool's configuration."""
        self._repository = repository
        self._catalogues = catalogues or Catalogues()
        self._infer = Infer(self._catalogues)
        self._version = version("tf-worker-pool")

    async def answer(self, request: Request, client: AsyncClient) -> Response:
        """Raises `Refused` and `PoolError`. Its `CancelledError` has cancelled the job."""
        if request.path.endswith("/infer"):
            return await self._infer.answer(request, client)
        catalogue = self._catalogues.of(client)
        parts = request.segments()[1:]
        if parts[-1:] == [""]:
            parts.pop()
        match parts:
            case []:
                allow(request, "GET", "HEAD")
                extensions = [*EXTENSIONS, "statistics"]
                return _json({"name": "tf-worker-pool", "version": self._version, "extensions": extensions})
            case ["health", "live"]:
                allow(request, "GET", "HEAD")
                return Response(200)
            case ["health", "ready"]:
                allow(request, "GET", "HEAD")
                return _ready(_why_not_ready(await catalogue.statuses()))
            case ["models", "stats"]:
                allow(request, "GET", "HEAD")
                return _json(statistics((await catalogue.models()).all, await _metrics(catalogue)))
            case ["models", *rest] if (place := of_model(rest)) is not None:
                return await self._of_model(place, request, catalogue)
            case ["repository", "index"]:
                allow(request, "POST")
                return _json(index((await catalogue.models()).all, only_ready=wants_ready(request)))
            case ["repository", "models", name, "load" | "unload" as what]:
                allow(request, "POST")
                if not self._repository:
                    raise Refused(403, OFF)
                await change(what, name, request, client, catalogue)
                return Response(200)
            case ["models", _, extension, *_] | [extension, *_] if extension in NOT_SERVED:
                raise Refused(501, f"the {NOT_SERVED[extension]} extension is not served here")
        raise Refused(404, f"nothing is at {request.path!r:.200}")

    async def _of_model(self, place: Place, request: Request, catalogue: Catalogue) -> Response:
        if place.action in NOT_SERVED:
            raise Refused(501, f"the {NOT_SERVED[place.action]} extension is not served here")
        if place.action not in ("", "ready", "config", "stats"):
            raise Refused(404, f"nothing is at {request.path!r:.200}")
        allow(request, "GET", "HEAD")
        if place.action == "stats":
            found = await catalogue.versions(place.name, place.version)
            return _json(statistics(found, await _metrics(catalogue)))
        model = await catalogue.model(place.name, place.version)
        if place.action == "ready":
            return _ready("" if model.ready_slots else f"model {model.name} is not served now")
        signature = asked_signature(request)
        if place.action == "config":
            return _json(config(model, signature))
        return _json(metadata(await catalogue.versions(place.name), model, signature))


async def _metrics(catalogue: Catalogue) -> Collection[Metrics]:
    return answered(await catalogue.metrics()).values()


def _why_not_ready(statuses: Mapping[str, Status | PoolError]) -> str:
    """ "" if one pool can serve. Raises `PoolError` where none answers."""
    whys = {pool: why_not_ready(status, None) for pool, status in answered(statuses).items()}
    return "" if "" in whys.values() else "; ".join(f"{pool}: {why}" if pool else why for pool, why in whys.items())


def _json(value: Any) -> Response:
    return Response(200, JSON, (json_text.write(value),))


def _ready(why_not: str) -> Response:
    if why_not:
        raise Refused(503, why_not, 1.0)
    return Response(200)
