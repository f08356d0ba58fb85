"""The Open Inference Protocol over HTTP, with Triton's binary tensors."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pool.door.door import Door


def routes(door: Door) -> list[Route]:
    async def live(_: Request) -> Response:
        return Response()

    async def ready(_: Request) -> Response:
        return Response(status_code=200 if await door.client.is_ready() else 503)

    return [Route("/v2/health/live", live), Route("/v2/health/ready", ready)]
