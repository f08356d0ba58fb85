"""Metrics for Prometheus: what the pool has counted comes in, and each request with its response; text goes out.

    RequestCounts ── by all processes of the gateway ─┐
    client.metrics() ── at most once a second ────────┴─► collector: the families that are told ─► text

It counts nothing of the pool itself, and never holds a request up: the pool counts, and its answer is turned into text
beside the loop. `dashboards` has rules for Prometheus and a dashboard for Grafana, which ask for these names.
"""

from pool.gateway.metrics.collector import text_of
from pool.gateway.metrics.exposition import PATHS, Exposition
from pool.gateway.metrics.request_counts import ROUTES, RequestCounts

__all__ = ["PATHS", "ROUTES", "Exposition", "RequestCounts", "text_of"]
