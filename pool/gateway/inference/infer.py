"""Jobs: from an infer request to its response. This is the path that every job takes."""

import asyncio
import json
import sys
from collections.abc import Mapping

from pool import AsyncClient, JobResult
from pool.errors import ModelNotFound
from pool.gateway.catalogue import Catalogues
from pool.gateway.http import Refused, Request, Response
from pool.gateway.inference.answer import HEAD_BYTES, answered
from pool.gateway.inference.options import brief
from pool.gateway.inference.paths import allow, asked_signature, to_infer
from pool.gateway.inference.plan import Plan, prepared
from pool.gateway.inference.plans import Plans
from pool.gateway.inference.raw import raw
from pool.wire.tensors import Array

__all__ = ["Infer"]

SLOW_ELEMENTS = 50_000
SLOW_JSON_BYTES = 1 << 20
"""More than these take some ten milliseconds, and are converted in a thread."""

MOST_UNNUMBERED = 1000
_DIGITS = 18
_HEAD_BYTES = HEAD_BYTES.lower()


class Infer:
    def __init__(self, catalogues: Catalogues) -> None:
        self._catalogues = catalogues
        self._plans = Plans()
        self._unnumbered: set[str] = set()
        """Models that had no versions when somebody asked for the first."""

    async def answer(self, request: Request, client: AsyncClient) -> Response:
        """Raises `PoolError` and `Refused`."""
        if request.method != "POST":
            allow(request, "POST")
        body = request.body
        length = request.headers.get(_HEAD_BYTES)
        start = len(body)
        if length is not None:
            start = int(length) if length.isdecimal() and len(length) <= _DIGITS else -1
            if not 0 <= start <= len(body):
                raise Refused(400, f"{HEAD_BYTES} is {brief(length)}; the body has {len(body)} bytes")
        own_id = b""
        if length is None:
            plan = await _all_json(request)
            inputs = plan.arrays(body, start)
        elif not start:
            place = to_infer(request)
            model = await self._catalogues.of(client).model(place.name, place.version)
            plan, inputs = raw(place, model, asked_signature(request), body)
        else:
            known, header, own_id = self._plans.find(request.path, body[:start].tobytes())
            plan = known or self._plans.prepare(request.path, to_infer(request), header)
            if plan.elements > SLOW_ELEMENTS:
                inputs = await asyncio.to_thread(plan.arrays, body, start)
            else:
                inputs = plan.arrays(body, start)
        if plan.version != 1:
            result = await client.run(plan.model, inputs, **plan.options)
        else:
            result = await self._run_first(plan, inputs, client)
        if plan.id is not None:
            own_id = json.dumps(plan.id).encode()
        response = answered(plan, result, own_id, SLOW_ELEMENTS)
        if response is None:
            response = await asyncio.to_thread(answered, plan, result, own_id, sys.maxsize)
            assert response is not None
        return response

    async def _run_first(self, plan: Plan, inputs: Mapping[str, Array], client: AsyncClient) -> JobResult:
        """Clients of this protocol also give the number 1 to a model without versions; the pool gives it none."""
        unnumbered = {key: value for key, value in plan.options.items() if key != "version"}
        if plan.model in self._unnumbered:
            result = await client.run(plan.model, inputs, **unnumbered)
            if result.version in (None, 1):
                return result
            self._unnumbered.discard(plan.model)  # it has versions since
        try:
            return await client.run(plan.model, inputs, **plan.options)
        except ModelNotFound:
            if await self._catalogues.of(client).is_numbered(plan.model):
                raise
        if len(self._unnumbered) >= MOST_UNNUMBERED:
            self._unnumbered.clear()
        self._unnumbered.add(plan.model)
        return await client.run(plan.model, inputs, **unnumbered)


async def _all_json(request: Request) -> Plan:
    place = to_infer(request)
    if len(request.body) > SLOW_JSON_BYTES:
        return await asyncio.to_thread(prepared, place.name, place.version, request.body.data, has_binary=False)
    return prepared(place.name, place.version, request.body.data, has_binary=False)
