"""The command `pool` with a door whose times and bounds are small, and with paths that only tests have."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pool.cli import main
from pool.door import app, http, rpc, server
from pool.door.door import Door

http.HEAD_S = server.HEAD_S = 1
http.IDLE_S, http.PACE_S, http.PACE_BYTES = 0.2, 1.0, 64 << 10
server.MOST_CONNECTIONS = 100
rpc.MOST_SLOW, rpc.QUICK_S, rpc.MESSAGE_S = 4, 0.5, 3.0
routes = app.serving.routes


def with_more(door: Door) -> list[Route]:
    async def echo(request: Request) -> Response:
        return JSONResponse(len(await http.read(request.scope, request.receive, door)))

    async def large(request: Request) -> Response:
        return Response(bytes(int(request.query_params["bytes"])))

    async def held(_: Request) -> Response:
        return JSONResponse(door.held_bytes)

    named = {"/echo": echo, "/large": large, "/held": held}
    return [*routes(door), *(Route(path, each, methods=["GET", "POST"]) for path, each in named.items())]


app.serving.routes = with_more
main()
