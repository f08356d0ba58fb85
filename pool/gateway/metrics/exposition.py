"""The metrics, in the formats of Prometheus.

    scrape ──► what the pool has told within the last second, or is asked now ──► collector ──► text
                     requests, of all processes of the gateway ─────────────────────┘

The pool is asked once a second at most, however many scrape. A pool that gives no answer is told as `pool_up 0`.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest

from pool import AsyncClient
from pool.errors import PoolError
from pool.gateway.http import Request, Response
from pool.gateway.metrics.collector import PoolCollector
from pool.gateway.metrics.request_counts import RequestCounts, Route
from pool.wire.records import Metrics

__all__ = ["PATHS", "Exposition"]

log = logging.getLogger("pool.gateway")

PATHS = ("/metrics", "/monitoring/prometheus/metrics")
FRESH_S = 1.0  # for so long an answer of the pool serves whoever asks
ANSWER_S = 5.0  # Prometheus waits ten
TEXT = ("Content-Type", "text/plain; charset=utf-8")


class Exposition:
    def __init__(self, requests: RequestCounts) -> None:
        self._requests = requests
        self._asked: asyncio.Task[Metrics] | None = None
        self._asked_at = 0.0
        self._trouble = ""  # that was told last

    async def answer(self, request: Request, client: AsyncClient) -> Response:
        """Never raises; the pool's errors are numbers here."""
        if request.path not in PATHS:
            return Response(404, [TEXT], (f"nothing is at {request.path!r:.200}; metrics are at /metrics\n".encode(),))
        if request.method not in ("GET", "HEAD"):
            return Response(405, [TEXT, ("Allow", "GET, HEAD")], (b"metrics can only be read: use GET\n",))
        metrics = await self._metrics(client)
        routes = list(self._requests.routes())
        # Thousands of lines take long enough for a request beside to notice.
        content_type, text = await asyncio.to_thread(_text, metrics, routes, request.headers.get("accept", ""))
        return Response(200, [("Content-Type", content_type)], (text,))

    async def _metrics(self, client: AsyncClient) -> Metrics | None:
        """None: the pool gives no answer, or takes too long. One that is asked is not asked again until it answers."""
        asked, now = self._asked, time.monotonic()
        if asked is None or (asked.done() and now - self._asked_at >= FRESH_S):
            asked = self._asked = asyncio.create_task(client.metrics())
            asked.add_done_callback(self._told)
            self._asked_at = now
        await asyncio.wait((asked,), timeout=ANSWER_S)
        return asked.result() if asked.done() and not asked.cancelled() and asked.exception() is None else None

    def _told(self, asked: "asyncio.Task[Metrics]") -> None:
        error = None if asked.cancelled() else asked.exception()
        former, self._trouble = self._trouble, str(error or "")
        if error is not None and self._trouble != former:
            log.warning("no metrics of the pool: %s", error, exc_info=None if isinstance(error, PoolError) else error)


def _text(metrics: Metrics | None, routes: Sequence[Route], accept: str) -> tuple[str, bytes]:
    """In the format that was asked for; the usual one where none of them was."""
    try:
        encode, content_type = choose_encoder(accept)
    except (ValueError, TypeError):  # a version that is no number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return content_type, encode(PoolCollector(metrics, routes))
