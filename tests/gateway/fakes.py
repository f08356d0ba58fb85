"""A client of a pool whose only model answers with its inputs, and requests as a foreign client makes them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pool import AsyncClient
from pool.client.payload import to_inputs
from pool.client.request import request_for
from pool.client.result import JobResult
from pool.errors import InvalidInput, PoolError
from pool.gateway.app import answer_of
from pool.gateway.http import Request, Response
from pool.gateway.inference import Inference
from pool.wire.records import Model
from pool.wire.tensors import Array
from pool.wire.timeline import Timeline

__all__ = ["Echo", "OnePool", "asked", "infer", "result_of"]

HEADER = "inference-header-content-length"


def result_of(outputs: Mapping[str, Array], version: int | None = None) -> JobResult:
    result = JobResult(outputs)
    timeline = Timeline(1, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 1, 0, "cpu:0", 1, version)
    result.measured = timeline, 0.0, 0.0, 0.0, 0.0
    result.own_rows = None
    return result


class OnePool:
    """In place of an `AsyncClient`, which has the questions of one pool."""

    async def _of_each(self, what: str, _within_s: float) -> dict[str, Any]:
        try:
            return {"": await getattr(self, what)()}
        except PoolError as error:
            return {"": error}


@dataclass(eq=False)
class Echo(OnePool, AsyncClient):
    """Checks a job as any client. `jobs`: what it was asked to run, without those that it has refused.

    `error`: what each ends in, instead. `outputs`: what each gives, instead.
    """

    version: int | None = None
    error: Exception | None = None
    outputs: Mapping[str, Array] | None = None
    jobs: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    told: tuple[Model, ...] = ()
    """What it says of its models."""

    async def models(self) -> tuple[Model, ...]:
        return self.told

    async def run(self, model: str, inputs: Any, **options: Any) -> JobResult:
        request_for(model, **options)
        to_inputs(model, inputs)
        self.jobs.append((model, inputs, options))
        if self.error is not None:
            raise self.error
        found = inputs if self.outputs is None else self.outputs
        wanted = options.get("outputs", found)
        if lost := [name for name in wanted if name not in found]:
            raise InvalidInput(f"model {model} has no output {lost[0]!r}")
        return result_of({name: found[name] for name in wanted}, self.version)


def infer(body: bytes, header_bytes: int | str | None, path: str = "/v2/models/m/infer") -> Request:
    """`header_bytes`: None for a request that is all JSON."""
    headers = {} if header_bytes is None else {HEADER: str(header_bytes)}
    return Request("POST", path, "", headers, np.frombuffer(body, np.uint8))


def asked(inference: Inference, client: AsyncClient, request: Request) -> tuple[Response, bytes]:
    """The response, and all of its body."""
    response = asyncio.run(answer_of(inference, request, client))
    return response, b"".join(response.body)
