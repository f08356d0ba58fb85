"""The metrics, in the formats of Prometheus.

    scrape ──► what the pool has told within the last second, or is asked now ──► collector ──► text
                     requests, of all processes of the gateway ─────────────────────┘

A pool that gives no answer is told as `pool_up 0`. Those of several pools have the label `pool`.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

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
        self._trouble: dict[str, str] = {}  # of each pool, that was told last

    async def answer(self, request: Request, client: AsyncClient) -> Response:
        """Never raises; the pool's errors are numbers here."""
        if request.path not in PATHS:
            return Response(404, [TEXT], (f"nothing is at {request.path!r:.200}; metrics are at /metrics\n".encode(),))
        if request.method not in ("GET", "HEAD"):
            return Response(405, [TEXT, ("Allow", "GET, HEAD")], (b"metrics can only be read: use GET\n",))
        told = await self._told(client)
        routes = list(self._requests.routes())
        # Thousands of lines take long enough for a request beside to notice.
        content_type, text = await asyncio.to_thread(_text, told, routes, request.headers.get("accept", ""))
        return Response(200, [("Content-Type", content_type)], (text,))

    async def _told(self, client: AsyncClient) -> Mapping[str, Metrics | None]:
        """By pool; None: it gives no answer, or takes too long. The log has each reason once."""
        told: Mapping[str, Metrics | Exception]
        try:
            told = await self._catalogues.of(client).metrics()
        except Exception as error:
            told = {"": error}
        for pool, answer in told.items():
            former = self._trouble.pop(pool, "")
            if isinstance(answer, Exception):
                self._trouble[pool] = trouble = str(answer)
                if trouble != former:
                    unknown = None if isinstance(answer, PoolError | Refused) else answer
                    whose = f"pool {pool}" if pool else "the pool"
                    log.warning("no metrics of %s: %s", whose, trouble, exc_info=unknown)
        return {pool: None if isinstance(answer, Exception) else answer for pool, answer in told.items()}


def _text(told: Mapping[str, Metrics | None], routes: Sequence[Route], accept: str) -> tuple[str, bytes]:
    """In the format that was asked for; the usual one where none of them was."""
    try:
        encode, content_type = choose_encoder(accept)
    except (ValueError, TypeError):  # a version that is no number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return content_type, encode(PoolCollector(told, routes))
