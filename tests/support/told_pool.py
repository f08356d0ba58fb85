"""What a pool tells of itself in a state that a test has driven the core to, made by the product's own functions."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pool.devices import Device, Reading
from pool.serve.status import models_status, pool_status, slot_status
from simulation.driver import Driver

__all__ = ["ABOUT", "history", "models", "slot", "status", "with_values"]

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
    "dropped": {},
    "rolling_update": {},
    "versions": {},
    "failover": {"away": [], "stays": []},
    "copies": [],
}
READ = [Reading(97 << 30, 141 << 30, 0.87, 61)]  # of its GPU
UUID = "GPU-5f1d4a3e-0000-4000-8000-000000000000"

Plain = TypeVar("Plain")


def status(driver: Driver, **about: Any) -> dict[str, Any]:
    return _sent(pool_status(driver.machine, _devices(driver), lambda _: READ, driver.now, with_values(ABOUT, **about)))


def slot(driver: Driver, number: int) -> dict[str, Any]:
    return _sent(slot_status(driver.machine, _devices(driver)[number], number, READ, driver.now))


def models(driver: Driver) -> list[dict[str, Any]]:
    return _sent(models_status(driver.machine, (), lambda _: []))


def history(driver: Driver, job: int | None = None) -> dict[str, Any]:
    """Of one job, or those of late."""
    found = driver.machine.explain("" if job is None else str(job))
    assert found is not None
    return _sent(found)


def with_values(told: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """What is told, with other values in places that it has: a place that it has not is a mistake of the test."""
    assert values.keys() <= told.keys(), sorted(values.keys() - told.keys())
    return {**told, **values}


def _devices(driver: Driver) -> list[Device]:
    return [
        Device("gpu", (UUID,), f"gpu:{seat.number}", "NVIDIA H200", 141 << 30) for seat in driver.machine.fleet.slots
    ]


def _sent(told: Plain) -> Plain:
    """As it comes out of a client's socket."""
    sent: Plain = json.loads(json.dumps(told))
    return sent
