"""The metrics, in the formats of Prometheus.

    scrape ──► what the pool has told within the last second, or is asked now ──► collector ──► text
                     requests, of all processes of the gateway ─────────────────────┘

A pool that gives no answer is told as `pool_up 0`.
"""

import asyncio
import logging
from collections.abc import Sequence

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest

from pool import AsyncClient
from pool.errors import PoolError
from pool.gateway.catalogue import Catalogues
from pool.gateway.http import Refused, Request, Response
from pool.gateway.metrics.collector import PoolCollector
from pool.gateway.metrics.request_counts import RequestCounts, Route
from pool.wire.records import Metrics

__all__ = ["PATHS", "Exposition"]

log = logging.getLogger("pool.gateway")

PATHS = ("/metrics", "/monitoring/prometheus/metrics")
TEXT = ("Content-Type", "text/plain; charset=utf-8")


class Exposition:
    def __init__(self, requests: RequestCounts, catalogues: Catalogues) -> None:
        self._requests = requests
        self._catalogues = catalogues
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
        """None: the pool gives no answer, or takes too long. The log has each reason once."""
        try:
            metrics = await self._catalogues.of(client).metrics()
        except Exception as error:
            former, self._trouble = self._trouble, str(error)
            if self._trouble != former:
                known = isinstance(error, PoolError | Refused)
                log.warning("no metrics of the pool: %s", error, exc_info=None if known else error)
            return None
        self._trouble = ""
        return metrics


def _text(metrics: Metrics | None, routes: Sequence[Route], accept: str) -> tuple[str, bytes]:
    """In the format that was asked for; the usual one where none of them was."""
    try:
        encode, content_type = choose_encoder(accept)
    except (ValueError, TypeError):  # a version that is no number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return content_type, encode(PoolCollector(metrics, routes))
