"""The status page. It holds nothing itself, so it is open to all; what it fetches needs a token."""

import asyncio
import base64
import hashlib
import time
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from pool.door.door import Door
from pool.errors import PoolError

EVERY_S = 5.0
PAGE = Path(__file__).with_name("page.html").read_text("utf-8")


def own(tag: str) -> str:
    """How the policy names the page's one script or style."""
    text = PAGE.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


SOURCES = f"default-src 'none'; script-src {own('script')}; style-src {own('style')}; connect-src 'self'; img-src data:"
NOTHING = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
HEADERS = {"content-security-policy": f"{SOURCES}; {NOTHING}", "x-frame-options": "DENY", "cache-control": "no-store"}
HEADERS |= {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


async def sample(door: Door) -> None:
    """For ever: adds to the door's history, but while the pool does not answer."""
    while True:
        with suppress(PoolError):
            models = (await door.status())["models"]
            sums = {key: sum(each[key] for each in models) for key in ("done", "failed", "waiting", "running")}
            door.history.append({"at": time.monotonic(), **sums})
        await asyncio.sleep(EVERY_S)


def routes(door: Door) -> list[Route]:
    async def status(_: Request) -> Response:
        return await asyncio.to_thread(JSONResponse, await door.status(), headers=HEADERS)

    async def history(_: Request) -> Response:
        return JSONResponse({"now": time.monotonic(), "points": [*door.history]}, headers=HEADERS)

    async def model(request: Request) -> Response:
        return JSONResponse(await door.record(request.query_params.get("name", "")), headers=HEADERS)

    page = Route("/", HTMLResponse(PAGE, headers=HEADERS), methods=["GET"])
    return [page, *[Route(f"/page/{each.__name__}", each) for each in (status, history, model)]]
