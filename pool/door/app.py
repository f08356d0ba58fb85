"""The ASGI application: what every request passes, which protocol it is of, and how it is refused."""

import asyncio
import ipaddress
import logging
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from pool.door import inference, metrics, page, serving
from pool.door.door import FAILED, HEADERS, STATUS, Door, Refused
from pool.errors import PoolError

OPEN = frozenset(("/", "/v2/health/live", "/v2/health/ready"))  # load balancers have no token, and learn nothing here
MOST_KNOWN = 64

log = logging.getLogger("pool.door")


class App:
    def __init__(self, door: Door) -> None:
        self._door, own = door, socket.gethostname().lower()
        self._hosts = {"localhost", own, own.partition(".")[0], *map(str.lower, door.settings.hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in door.settings.origins}
        self._check_host = lru_cache(MOST_KNOWN)(self._check_host)  # type: ignore[method-assign]
        routes = [*inference.routes(door), *serving.routes(door), *metrics.routes(door), *page.routes(door)]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # Starlette raises its refusals then
        try:
            self._admit(scope)
            job = inference.JOB.fullmatch(scope["path"])  # looked at first, since nothing else is asked for so often
            if job is None:
                await self._router(scope, receive, send)
            elif scope["method"] != "POST":
                raise Refused(405, "a job is sent by POST", {"allow": "POST"})
            else:
                scope["path_params"] = job.groupdict()
                await inference.infer(self._door, scope, receive, send)
            return
        except asyncio.CancelledError:  # the caller has hung up, or the door cannot wait longer: his job was withdrawn
            status, text, headers = 503, "the door ends", {"retry-after": "1"}
        except Refused as error:  # Starlette's own, too
            text = f"nothing is at {scope['path']!r:.200}" if error.status_code == 404 else error.detail
            status, headers = error.status_code, dict(error.headers or {})
        except PoolError as error:
            status, text = STATUS.get(type(error), FAILED)[0], str(error)
            headers = {"pool-error": type(error).__name__, **({"retry-after": "1"} if error.retryable else {})}
        except Exception:
            log.exception("%s %.200s", scope["method"], scope["path"])
            status, text, headers = 500, "the door failed at this request; its log says why", {}
        finally:
            self._door.held_bytes -= len(scope.pop("body", b""))
        await JSONResponse({"error": text}, status, headers)(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        """Raises `Refused` for who may not come in. Nothing of the body was read."""
        headers, names = dict(scope["headers"]), [name for name, _ in scope["headers"]]
        HEADERS.set(scope["headers"])
        if names.count(b"host") > 1 or names.count(b"authorization") > 1:
            raise Refused(400, "there is more than one Host or Authorization")
        if b"host" in headers or scope["http_version"] != "1.0":
            # Pages in a browser may turn their own name to this address: `Host` or `Origin` has it.
            host, origin = headers.get(b"host", b""), headers.get(b"origin")
            self._check_host(host)
            if origin is not None:
                text = origin.decode("latin-1").lower().rstrip("/")
                if text not in self._origins and text.partition("://")[2] != host.decode("latin-1").lower():
                    raise Refused(403, f"requests of pages from {text!r:.200} are refused; add it to door.origins")
        tokens, shown = self._door.tokens, headers.get(b"authorization", b"").decode("latin-1")
        if tokens is not None and scope["path"] not in OPEN and not tokens.knows(shown):
            text = "a token is needed: send the header Authorization: Bearer TOKEN"
            raise Refused(401, text, {"www-authenticate": "Bearer"})

    def _check_host(self, host: bytes) -> None:
        text = host.decode("latin-1")
        try:
            parts = urlsplit(f"//{text}")
            name = "" if parts.username is not None or parts.path or parts.query else parts.hostname or ""
            if name not in self._hosts:
                ipaddress.ip_address(name)
        except ValueError:
            raise Refused(421, f"Host is {text!r:.200}, which this door is not; add it to door.hosts") from None
