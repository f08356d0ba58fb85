"""What a pool tells of itself in a state that a test has driven the core to, made by the product's own functions."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pool.devices import Device, Reading
from pool.serve.status import model_counts, models_status, pool_status, slot_status
from pool.wire.codec import packed, unpack
from pool.wire.records import JobHistory, Metrics, Model, Recent, Slot, Status
from simulation.driver import Driver

__all__ = ["ABOUT", "history", "metrics", "models", "recent", "slot", "status"]

# What the loop adds to the core's status; `integration/test_cli.py` holds the keys against a pool's.
ABOUT = {
    "version": "0.1.0",
    "instance": "00",
    "pid": 77,
    "endpoint": "ipc:///run/user/1000/pool/pool.sock",
    "uptime_s": 3700.0,
    "refused": {},
    "unread_bytes": 0,
    "call_bytes": 0,
    "chunk_bytes": 0,
    "lent_bytes": 0,
    "segments": 0,
    "lendable_bytes": 1 << 30,
    "clients": 0,
    "dropped": {},
    "rolling_update": {"left": [], "failure": ""},
    "versions": {"broken": [], "troubles": {}},
    "failover": {"away": [], "stays": []},
    "copies": [],
    "unloadable": [],
}
READ = [Reading(97 << 30, 141 << 30, 0.87, 61)]  # of its GPU
UUID = "GPU-5f1d4a3e-0000-4000-8000-000000000000"

Told = TypeVar("Told")


def status(driver: Driver, **about: Any) -> Status:
    return _sent(
        Status, pool_status(driver.machine, _devices(driver), lambda _: READ, driver.now, {**ABOUT, **about}, {})
    )


def metrics(driver: Driver, **about: Any) -> Metrics:
    nameless = dict(driver.machine.answered_nameless)
    told = {"status": status(driver, **about).to_dict(), "models": model_counts(driver.machine), "nameless": nameless}
    return _sent(Metrics, told)


def slot(driver: Driver, number: int) -> Slot:
    return _sent(Slot, slot_status(driver.machine, _devices(driver)[number], number, READ, driver.now))


def models(driver: Driver, unloadable: Sequence[Mapping[str, Any]] = ()) -> tuple[Model, ...]:
    return _sent(tuple[Model, ...], models_status(driver.machine, (), unloadable, lambda _: [], driver.now))


def history(driver: Driver, job: int) -> JobHistory:
    return _sent(JobHistory, driver.machine.explain(str(job)))


def recent(driver: Driver, deaths: list[dict[str, Any]]) -> Recent:
    jobs = driver.machine.explain("")
    assert jobs is not None
    return _sent(Recent, {**jobs, "deaths": deaths})


def _devices(driver: Driver) -> list[Device]:
    return [
        Device("gpu", (UUID,), f"gpu:{seat.number}", "NVIDIA H200", 141 << 30) for seat in driver.machine.fleet.slots
    ]


def _sent(kind: type[Told], told: object) -> Told:
    """As it comes out of a client's socket."""
    return unpack(kind, packed(told))
