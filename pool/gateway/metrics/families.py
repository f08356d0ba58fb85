"""The names of all metrics, with their labels and what they mean: for the collector, and for the reference page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["FAMILIES", "ROW_POWERS", "TIME_POWERS", "Family", "Kind"]

Kind = Literal["gauge", "counter", "histogram"]

# The upper ends of the buckets are 2^n: microseconds, 16 µs to 9 minutes, or rows. What is shorter is in the first.
TIME_POWERS = range(4, 30)
ROW_POWERS = range(17)


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str

    @property
    def of_pool(self) -> bool:
        """Whether a pool has it. Those of requests are the gateway's."""
        return not self.name.startswith("pool_gateway_request")


def _named(families: Iterable[Family]) -> Mapping[str, Family]:
    return {each.name: each for each in families}


MODEL, SLOT = ("model", "version"), ("slot", "device")

FAMILIES: Mapping[str, Family] = _named(
    (
        Family("pool_up", "gauge", (), "Whether the pool answered: 1 or 0. With 0 all else but requests is missing."),
        Family("pool_info", "gauge", ("release", "id", "endpoint"), "Always 1: which pool it is."),
        Family("pool_uptime_seconds", "gauge", (), "Since the pool's start, from which all counters count."),
        Family("pool_state", "gauge", ("state",), "1 for the state of the pool as a whole, 0 for the others."),
        Family("pool_restart_needed", "gauge", (), "1 if the installed files are of another release than the pool."),
        Family("pool_clients", "gauge", (), "Clients that are connected."),
        Family("pool_queue_jobs", "gauge", (), "Jobs that wait or run."),
        Family("pool_queue_waiting_jobs", "gauge", (), "Jobs that wait."),
        Family("pool_queue_bytes", "gauge", (), "Bytes of the inputs of jobs that wait or run."),
        Family("pool_queue_limit_jobs", "gauge", (), "How many jobs may wait or run."),
        Family("pool_queue_limit_bytes", "gauge", (), "How many bytes of inputs the pool holds at most."),
        Family("pool_shared_memory_bytes", "gauge", (), "Shared memory that is lent to clients."),
        Family("pool_shared_memory_limit_bytes", "gauge", (), "How much of it may be lent."),
        Family("pool_shared_memory_segments", "gauge", (), "In how many segments it is lent."),
        Family("pool_unread_bytes", "gauge", (), "Bytes of answers that clients have not read."),
        Family("pool_refused_messages_total", "counter", (), "Messages of clients that were refused."),
        Family("pool_dropped_messages_total", "counter", (), "Messages of workers that were dropped."),
        Family("pool_jobs_total", "counter", (*MODEL, "outcome"), "Jobs that ended, by how. Refused ones count too."),
        Family("pool_job_duration_seconds", "histogram", MODEL, "From a job's arrival in the pool to its result."),
        Family("pool_job_queue_seconds", "histogram", MODEL, "How long jobs with a result waited for a lane."),
        Family(
            "pool_job_batch_wait_seconds",
            "histogram",
            MODEL,
            "How long jobs with a result waited for company before, as batch_wait says.",
        ),
        Family("pool_job_run_seconds", "histogram", MODEL, "How long the model ran for jobs with a result."),
        Family("pool_batch_rows", "histogram", MODEL, "Rows of the batches that workers answered, padding excluded."),
        Family("pool_model_waiting_jobs", "gauge", MODEL, "Jobs that wait."),
        Family("pool_model_waiting_rows", "gauge", MODEL, "Their rows."),
        Family("pool_model_running_jobs", "gauge", MODEL, "Jobs that run."),
        Family("pool_model_bytes", "gauge", MODEL, "Bytes of the inputs of jobs that wait or run."),
        Family("pool_model_oldest_job_age_seconds", "gauge", MODEL, "How long the oldest waiting job waits, or 0."),
        Family("pool_model_device_seconds_total", "counter", MODEL, "Device time of its batches."),
        Family("pool_model_ready_slots", "gauge", MODEL, "READY slots that have it, 0 once it takes no jobs any more."),
        Family("pool_slot_state", "gauge", (*SLOT, "state"), "1 for the slot's state, 0 for the others."),
        Family("pool_slot_jobs_total", "counter", SLOT, "Jobs whose last rows ran there, with a result or an error."),
        Family("pool_slot_lanes", "gauge", SLOT, "Lanes of the worker."),
        Family("pool_slot_busy_lanes", "gauge", SLOT, "Lanes that run a batch."),
        Family("pool_slot_memory_bytes", "gauge", SLOT, "Memory of the machine that the worker holds."),
        Family("pool_slot_restarts_total", "counter", SLOT, "Workers that the slot got after its first one."),
        Family("pool_worker_deaths_total", "counter", (*SLOT, "cause"), "Workers that ended without an order to."),
        Family("pool_slot_gpu_info", "gauge", (*SLOT, "uuid", "name"), "Always 1: which GPUs a slot has."),
        Family("pool_gpu_memory_used_bytes", "gauge", ("uuid",), "Memory that all processes hold on the GPU."),
        Family("pool_gpu_memory_total_bytes", "gauge", ("uuid",), "The GPU's memory."),
        Family("pool_gpu_utilization_ratio", "gauge", ("uuid",), "Share of the last second in which it computed."),
        Family("pool_gpu_temperature_celsius", "gauge", ("uuid",), "Its temperature."),
        Family(
            "pool_gateway_process_up", "gauge", ("process",), "1 if it serves, of the gateway that the pool started."
        ),
        Family("pool_gateway_process_restarts_total", "counter", ("process",), "How often another one followed it."),
        Family("pool_gateway_requests_total", "counter", ("route", "code"), "HTTP requests that were answered."),
        Family(
            "pool_gateway_request_duration_seconds",
            "histogram",
            ("route",),
            "From a request that is whole to its response. Refused ones are left out.",
        ),
    )
)
