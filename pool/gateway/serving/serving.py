"""Each request's way: from its path and body to a job, and from the job's outputs to JSON."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from pool import AsyncClient
from pool.errors import InvalidInput, ModelNotFound
from pool.gateway import json_text
from pool.gateway.http import Refused, Request, Response
from pool.gateway.serving.calls import Call, call_of
from pool.gateway.serving.known import Known
from pool.gateway.serving.metadata import metadata
from pool.gateway.serving.paths import Asked, Method, asked
from pool.gateway.serving.states import states
from pool.wire.records import Model, Tensor
from pool.wire.tensors import Array

__all__ = ["Serving"]

LARGE_BYTES = 1 << 20  # JSON of more is read and written by another thread

T = TypeVar("T")


class Serving:
    """TensorFlow Serving's REST API for one pool."""

    def __init__(self) -> None:
        self._known: dict[AsyncClient, Known] = {}  # each is told of the models that it may use

    def _known_to(self, client: AsyncClient) -> Known:
        if (known := self._known.get(client)) is None:
            known = self._known[client] = Known()
        return known

    async def answer(self, request: Request, client: AsyncClient) -> Response:
        """Raises `Refused` and `PoolError`. Its `CancelledError` has cancelled the job."""
        body = await self._answered(request, client)
        return Response(200, (("Content-Type", "application/json"),), (body,))

    async def _answered(self, request: Request, client: AsyncClient) -> bytes:
        what, known = asked(request), self._known_to(client)
        match what.method:
            case Method.STATUS:
                models = await known.versions(client, what.model, what.version)
                slots = () if all(each.ready_slots for each in models) else (await client.status()).slots
                return json_text.write(states(models, slots, what.version))
            case Method.METADATA:
                await known.versions(client, what.model, what.version)
                model = await known.model(client, what.model, what.version)
                return json_text.write(metadata(what.model, model, what.version))
        return await self._job(what, request, client)

    async def _job(self, what: Asked, request: Request, client: AsyncClient) -> bytes:
        known = self._known_to(client)
        model = await known.model(client, what.model, what.version)
        call: Call | None = None
        try:
            call = await _call(what, request, model)
            found = await self._run(what, call, model, client)
        except (Refused, InvalidInput, ModelNotFound):  # it has not run: another may be made of what is true now
            if call is None and known.is_fresh:
                raise
            await known.again(client)
            now = await known.model(client, what.model, what.version)
            if _inputs(now) == _inputs(model):
                raise
            call = await _call(what, request, now)
            found = await self._run(what, call, now, client)
        write = call.write
        return await _apart(sum(map(_size_bytes, found.values())), lambda: write(found))

    async def _run(self, what: Asked, call: Call, model: Model, client: AsyncClient) -> Mapping[str, Array]:
        is_numbered = model.version is not None or model.versions
        version = what.version if is_numbered or what.version != 1 else None  # the number of one without any
        try:
            return await client.run(
                what.model, call.inputs, signature=call.signature, outputs=call.outputs, version=version
            )
        finally:
            self._known_to(client).renew(client)


async def _call(what: Asked, request: Request, model: Model) -> Call:
    """The body is read for it each time: its lists take many times the memory of their text, and a job may be long."""
    return await _apart(len(request.body), lambda: call_of(what.method, json_text.read(request.body), model))


async def _apart(size_bytes: int, work: Callable[[], T]) -> T:
    """Where it would keep the event loop for long, another thread does it."""
    return await asyncio.to_thread(work) if size_bytes > LARGE_BYTES else work()


def _inputs(model: Model) -> dict[str, Mapping[str, Tensor]]:
    return {name: signature.inputs for name, signature in model.signatures.items()}


def _size_bytes(array: Array) -> int:
    return sum(map(len, array.reshape(-1).tolist())) if array.dtype.hasobject else array.nbytes
