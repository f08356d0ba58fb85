"""What the pool and the door count, for Prometheus."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pool.core.slots import SlotState
from pool.door.door import Door
from pool.door.http import packed
from pool.errors import PoolError

POOL_STATES = ("STARTING", "READY", "DEGRADED", "DRAINING")
OUTCOMES = ("DeadlineExceeded", "InvalidInput", "ModelFailed", "OutOfMemory", "Overloaded", "Quarantined")
MOST_CHILDREN = 1000
CAUSES = ("KILLED", "SIGABRT", "SIGKILL", "SIGSEGV")
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def metric(name: str, text: str, values: Mapping[Any, Any], *labels: str) -> Metric:
    """`values`: by those of the labels; None: nobody knows it."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    made = kind(name, text, labels=labels)
    for each, value in values.items():
        if value is not None:
            made.add_metric(each, value)
    return made


def of(records: Mapping[Any, Mapping[str, Any]], key: str) -> Mapping[Any, Any]:
    return {labels: record[key] for labels, record in records.items()}


def of_pool(record: Mapping[str, Any] | None) -> Iterator[Metric]:
    """`record`: the pool's status; None: it gave none."""
    yield metric("pool_up", "1 if the pool answers; else 0, and it says no more.", {(): record is not None})
    if record is not None:
        pool, queue = record["pool"], record["queue"]
        states = {(each,): each == pool["state"] for each in POOL_STATES}
        yield metric("pool_info", "Always 1.", {(pool["release"],): 1}, "release")
        yield metric("pool_uptime_seconds", "Since the pool's start, when it counted 0.", {(): pool["uptime_s"]})
        yield metric("pool_state", "1 for the state of the pool, 0 for the others.", states, "state")
        yield metric("pool_queue_jobs", "Jobs that wait or run.", {(): queue["jobs"]})
        yield metric("pool_queue_bytes", "Bytes of their inputs.", {(): queue["bytes"]})
        yield metric("pool_queue_limit_jobs", "How many jobs may wait or run.", {(): queue["max_jobs"]})
        yield metric("pool_queue_limit_bytes", "How many bytes they may have.", {(): queue["max_bytes"]})
        yield from of_models({(each["name"],): each for each in record["models"]})
        # While a worker is replaced, a slot is told of twice; the one that leaves comes first.
        yield from of_slots({(str(each["slot"]), each["device"]): each for each in reversed(record["slots"])})


def of_models(models: Mapping[tuple[str], Any]) -> Iterator[Metric]:
    ended: dict[tuple[str, ...], int] = {}
    runs = HistogramMetricFamily("pool_batch_run_seconds", "Time of a lane for one batch of jobs.", labels=("model",))
    for name, model in models.items():
        counts: Counter[str] = Counter(model["errors"]) + Counter(model["refused"])
        counts.update(done=model["done"], cancelled=model["cancelled"])
        # What may happen is told as 0 before it happens: of what was missing, a rate misses the first one.
        ended |= {(*name, outcome): counts[outcome] for outcome in {*OUTCOMES, *counts}}
        below = [*accumulate(model["run_times"])]
        buckets = [(str(2.0**power / 1e6), below[power]) for power in range(4, 30)]  # 16 µs to 9 minutes
        runs.add_metric(name, [*buckets, ("+Inf", below[-1])], model["run_s"])
    ready = {name: len(model["slots"]) for name, model in models.items()}
    yield metric("pool_jobs_total", "Jobs that ended or were refused.", ended, "model", "outcome")
    yield runs
    yield metric("pool_batches_joined_total", "Batches whose jobs shared one run.", of(models, "joined"), "model")
    yield metric("pool_model_waiting_jobs", "Jobs that wait.", of(models, "waiting"), "model")
    yield metric("pool_model_running_jobs", "Jobs that run.", of(models, "running"), "model")
    yield metric("pool_model_oldest_job_age_seconds", "Of those that wait, or 0.", of(models, "oldest_s"), "model")
    yield metric("pool_model_ready_slots", "Slots that serve it now.", ready, "model")


def of_slots(slots: Mapping[tuple[str, str], Any]) -> Iterator[Metric]:
    labels = ("slot", "device")
    states = {(*slot, each.name): about["state"] == each.name for slot, about in slots.items() for each in SlotState}
    causes = {slot: dict.fromkeys(CAUSES, 0) | about["deaths"] for slot, about in slots.items()}
    deaths = {(*slot, cause): count for slot, counts in causes.items() for cause, count in counts.items()}
    yield metric("pool_slot_state", "1 for the state of the slot, 0 for the others.", states, *labels, "state")
    yield metric("pool_slot_jobs_total", "Jobs that its workers have answered.", of(slots, "jobs"), *labels)
    yield metric("pool_slot_busy_lanes", "Lanes that run a batch.", of(slots, "busy"), *labels)
    yield metric("pool_slot_restarts_total", "Workers that followed another one.", of(slots, "restarts"), *labels)
    yield metric("pool_worker_deaths_total", "Workers that died. KILLED: by the pool.", deaths, *labels, "cause")
    gpus = {(gpu["uuid"],): gpu for slot in slots.values() for gpu in slot["gpus"]}
    yield metric("pool_gpu_memory_used_bytes", "Memory that all processes hold.", of(gpus, "used_bytes"), "uuid")
    yield metric("pool_gpu_memory_total_bytes", "Memory of the GPU.", of(gpus, "total_bytes"), "uuid")
    yield metric("pool_gpu_utilization_percent", "Time in which a kernel ran.", of(gpus, "utilization"), "uuid")
    yield metric("pool_gpu_temperature_celsius", "Temperature of the GPU.", of(gpus, "temperature"), "uuid")


def routes(door: Door) -> list[Route]:
    prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
    registry, labels = prometheus.CollectorRegistry(), ("protocol", "model")
    requests = prometheus.Counter("pool_door_requests", "Jobs of the door.", (*labels, "outcome"), registry=registry)
    name, text = "pool_door_request_duration_seconds", "From the inputs of such a job to its result."
    durations = prometheus.Histogram(name, text, labels, buckets=REQUEST_S, registry=registry)
    known: set[str] = set()  # models; callers could invent any number of names

    @lru_cache(MOST_CHILDREN)  # to look one up by its labels takes longer than to count
    def children(*values: str) -> tuple[prometheus.Counter, prometheus.Histogram]:
        return requests.labels(*values), durations.labels(*values[:2])

    def count(protocol: str, model: str, outcome: str, seconds: float, _: Any) -> None:
        if outcome == "ok":
            known.add(model)
        counter, histogram = children(protocol, model if model in known else "", outcome)
        counter.inc()
        histogram.observe(seconds)

    door.told.append(count)

    async def metrics(request: Request) -> Response:
        record = None
        with suppress(PoolError):
            record = await door.status()
        of_all: Any = SimpleNamespace(collect=partial(of_pool, record))
        told = await asyncio.to_thread(prometheus.generate_latest, of_all)  # of 500 models it is a megabyte
        told += prometheus.generate_latest(registry)
        return packed(request, Response(told, media_type="text/plain; version=0.0.4; charset=utf-8"))

    return [Route(path, metrics) for path in ("/metrics", "/monitoring/prometheus/metrics")]
