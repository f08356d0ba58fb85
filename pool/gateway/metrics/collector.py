"""From what the pool tells, and what the gateway has counted, to the metrics of Prometheus."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from pool.gateway.metrics.families import FAMILIES, ROW_POWERS, TIME_POWERS, Family
from pool.gateway.metrics.request_counts import Route
from pool.wire.entries import is_entry, model_of, version_of
from pool.wire.faults import Fault
from pool.wire.records import Histogram, Metrics, ModelLoad, Slot, Status, VersionCounts

__all__ = ["OUTCOMES", "PoolCollector", "text_of"]

Labels = tuple[str, ...]

POOL_STATES = ("STARTING", "SERVING", "DRAINING", "DRAINED", "STOPPING")
SLOT_STATES = ("STARTING", "LOADING", "READY", "DRAINING", "STOPPING", "STOPPED", "BACKOFF", "FATAL")

# What may happen is told as 0 before it happens first: a rate of what was missing misses the first one.
OUTCOMES = (
    "done",
    "cancelled",
    Fault.DEADLINE_EXCEEDED.value,
    Fault.INVALID_INPUT.value,
    Fault.MODEL_FAILED.value,
    Fault.MODEL_NOT_FOUND.value,
    Fault.OUT_OF_MEMORY.value,
    Fault.OVERLOADED.value,
    Fault.POOL_STOPPING.value,
    Fault.QUARANTINED.value,
    Fault.QUOTA_EXCEEDED.value,
    Fault.STATEFUL_WORKER_LOST.value,
    Fault.WORKER_LOST.value,
)
EMPTY = Histogram((), 0.0)
NOTHING = VersionCounts(None, {}, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
USUAL_CAUSES = ("CRASHED", "HUNG", "SIGABRT", "SIGKILL", "SIGSEGV", "SILENT", "SLOW")


class PoolCollector(Collector):
    """Of one answer of each pool; None: it gave none. A pool alone is called "", and then no metric has its label."""

    def __init__(self, told: Mapping[str, Metrics | None], routes: Iterable[Route] = ()) -> None:
        self._numbers: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, tuple[list[int], float]]] = {}
        self._has_label = "" not in told
        self._pool: Labels = ()  # of which numbers come
        for pool, metrics in told.items():
            self._pool = (pool,) if self._has_label else ()
            self._set("pool_up", (), metrics is not None)
            if metrics is not None:
                self._add_status(metrics.status)
                self._add_counts(metrics)
        self._pool = ()
        for route in routes:
            self._add_route(route)

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES.values():
            if family.kind == "histogram":
                yield self._histogram_of(family)
            else:
                kind = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
                found = kind(family.name, family.text, labels=self._labels_of(family))
                for labels, number in self._numbers.get(family.name, {}).items():
                    found.add_metric(labels, number)
                yield found

    def _labels_of(self, family: Family) -> Labels:
        return ("pool", *family.labels) if self._has_label and family.of_pool else family.labels

    # --- what there is ------------------------------------------------------------------------------------------

    def _add_status(self, status: Status) -> None:
        self._set("pool_info", (status.version, status.instance, status.endpoint), 1)
        self._set("pool_uptime_seconds", (), status.uptime_s)
        for state in POOL_STATES:
            self._set("pool_state", (state,), state == status.state)
        self._set("pool_restart_needed", (), status.restart_needed is not None)
        self._set("pool_clients", (), status.clients)
        self._set("pool_queue_jobs", (), status.queue.jobs)
        self._set("pool_queue_waiting_jobs", (), status.queue.queued)
        self._set("pool_queue_bytes", (), status.queue.bytes)
        self._set("pool_queue_limit_jobs", (), status.queue.max_jobs)
        self._set("pool_queue_limit_bytes", (), status.queue.max_bytes)
        self._set("pool_shared_memory_bytes", (), status.lent_bytes)
        self._set("pool_shared_memory_limit_bytes", (), status.lendable_bytes)
        self._set("pool_shared_memory_segments", (), status.segments)
        self._set("pool_unread_bytes", (), status.unread_bytes)
        self._set("pool_refused_messages_total", (), sum(status.refused.values()))
        self._set("pool_dropped_messages_total", (), sum(status.dropped.values()))
        for process in status.gateway.processes if status.gateway is not None else ():
            self._set("pool_gateway_process_up", (str(process.number),), process.state == "SERVING")
            self._set("pool_gateway_process_restarts_total", (str(process.number),), process.restarts)
        for slot in status.slots:
            self._add_slot(slot)
        for model in status.models:
            self._add_model(model, status.slots)
            self._add_outcomes((model.model, _version(model.version)), {})

    def _add_slot(self, slot: Slot) -> None:
        labels = (str(slot.slot), slot.device)
        for state in SLOT_STATES:
            self._set("pool_slot_state", (*labels, state), state == slot.state)
        self._set("pool_slot_jobs_total", labels, slot.jobs_done)
        self._set("pool_slot_lanes", labels, slot.lanes)
        self._set("pool_slot_busy_lanes", labels, slot.busy_lanes)
        self._set("pool_slot_memory_bytes", labels, slot.memory_bytes)
        self._set("pool_slot_restarts_total", labels, slot.restarts)
        for cause, deaths in {**dict.fromkeys(USUAL_CAUSES, 0), **slot.deaths}.items():
            self._set("pool_worker_deaths_total", (*labels, cause), deaths)
        for name in slot.models if slot.state == "READY" else ():
            version = version_of(name) if is_entry(name) else slot.versions.get(name)
            self._add_version((model_of(name), _version(version)), NOTHING)
        for uuid, gpu in zip(slot.uuids, slot.gpus, strict=False):
            self._set("pool_slot_gpu_info", (*labels, uuid, slot.device_name), 1)
            self._set("pool_gpu_memory_used_bytes", (uuid,), gpu.used_bytes)
            self._set("pool_gpu_memory_total_bytes", (uuid,), gpu.total_bytes)
            self._set("pool_gpu_utilization_ratio", (uuid,), gpu.utilization)
            self._set("pool_gpu_temperature_celsius", (uuid,), gpu.temperature_c)

    def _add_model(self, model: ModelLoad, slots: Sequence[Slot]) -> None:
        labels = (model.model, _version(model.version))
        self._set("pool_model_waiting_jobs", labels, model.queued_jobs)
        self._set("pool_model_waiting_rows", labels, model.queued_rows)
        self._set("pool_model_running_jobs", labels, max(0, model.unanswered_jobs - model.queued_jobs))
        self._set("pool_model_bytes", labels, model.bytes)
        self._set("pool_model_oldest_job_age_seconds", labels, model.oldest_s or 0.0)
        self._set("pool_model_device_seconds_total", labels, model.device_s)
        ready = sum(model.name in slot.models and slot.state == "READY" for slot in slots)
        self._set("pool_model_ready_slots", labels, 0 if model.leaving else ready)

    def _add_counts(self, metrics: Metrics) -> None:
        """Of a model that was served with one version, and then with several, both names may have counted the same."""
        for model in metrics.models:
            for counts in model.versions:
                version = _version(counts.version if model.version is None else model.version)
                self._add_version((model.model, version), counts)
        for outcome, jobs in metrics.nameless.items():
            self._add("pool_jobs_total", ("", "", outcome), jobs)

    def _add_version(self, labels: Labels, counts: VersionCounts) -> None:
        self._add_outcomes(labels, counts.jobs)
        self._add_times("pool_job_duration_seconds", labels, counts.total)
        self._add_times("pool_job_queue_seconds", labels, counts.queue)
        self._add_times("pool_job_batch_wait_seconds", labels, counts.batch_wait)
        self._add_times("pool_job_run_seconds", labels, counts.run)
        self._add_buckets("pool_batch_rows", labels, _within(counts.batch_rows, ROW_POWERS))

    def _add_outcomes(self, labels: Labels, jobs: Mapping[str, int]) -> None:
        for outcome, count in {**dict.fromkeys(OUTCOMES, 0), **jobs}.items():
            self._add("pool_jobs_total", (*labels, outcome), count)

    def _add_route(self, route: Route) -> None:
        for code, requests in route.requests.items():
            self._add("pool_gateway_requests_total", (route.name, code), requests)
        self._add_times("pool_gateway_request_duration_seconds", (route.name,), route.times)

    # --- numbers ------------------------------------------------------------------------------------------------

    def _set(self, name: str, labels: Labels, number: float | None) -> None:
        """None: it is not known, so it is not told."""
        if number is not None:
            self._numbers.setdefault(name, {})[*self._pool, *labels] = number

    def _add(self, name: str, labels: Labels, number: float) -> None:
        found, key = self._numbers.setdefault(name, {}), (*self._pool, *labels)
        found[key] = found.get(key, 0) + number

    def _add_times(self, name: str, labels: Labels, times: Histogram) -> None:
        self._add_buckets(name, labels, _within(times, TIME_POWERS))

    def _add_buckets(self, name: str, labels: Labels, more: tuple[list[int], float]) -> None:
        found, key = self._histograms.setdefault(name, {}), (*self._pool, *labels)
        counts, total = found.get(key, ([0] * len(more[0]), 0.0))
        found[key] = [a + b for a, b in zip(counts, more[0], strict=True)], total + more[1]

    def _histogram_of(self, family: Family) -> Metric:
        found = HistogramMetricFamily(family.name, family.text, labels=self._labels_of(family))
        of_rows = family.name == "pool_batch_rows"
        ends = [float(2**power) if of_rows else 2**power / 1e6 for power in (ROW_POWERS if of_rows else TIME_POWERS)]
        names = [*map(floatToGoString, ends), "+Inf"]
        for labels, (counts, total) in self._histograms.get(family.name, {}).items():
            found.add_metric(labels, list(zip(names, accumulate(counts), strict=True)), total)
        return found


def text_of(metrics: Metrics) -> str:
    """As `/metrics` has it, without the gateway's own."""
    return generate_latest(PoolCollector({"": metrics})).decode()


def _version(version: int | None) -> str:
    return "" if version is None else str(version)


def _within(histogram: Histogram, powers: range) -> tuple[list[int], float]:
    """How many are in each of these buckets: smaller ones are in the first, larger ones in one more at the end."""
    counts = [0] * (len(powers) + 1)
    for power, count in enumerate(histogram.counts):
        counts[min(max(0, power - powers.start), len(powers))] += count
    return counts, histogram.sum
