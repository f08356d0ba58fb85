"""The log of a real pool, for programs, and for nobody."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pool import Client, errors
from support.pool_process import PoolProcess, stub_config
from support.processes import eventually, pid_of

pytestmark = pytest.mark.faults

JSON = ("--log-format", "json")


def entries(pool: PoolProcess) -> list[dict[str, Any]]:
    """Each line must be an object; the last one may be on its way."""
    return [json.loads(line) for line in pool.text().split("\n")[:-1]]


def test_for_programs_each_line_is_an_object_and_a_death_an_event() -> None:
    pool = PoolProcess(stub_config(), options=JSON)
    try:
        pool.start().await_ready()
        with pool.client() as client:
            lost = client.submit("faults", signal.SIGKILL.value, signature="kill", device="slot:1")
            with pytest.raises(errors.Quarantined):
                lost.result(30)
            eventually(lambda: client.status().slots[1].state == "READY")
        assert pool.stop() == 0
        told = entries(pool)
        assert all({"time", "level", "event", "message"} <= entry.keys() for entry in told)
        death = next(entry for entry in told if entry["event"] == "slot_backoff")
        ready = [entry for entry in told if entry["event"] == "slot_ready" and entry["slot"] == 1]
        assert death["pid"] == ready[0]["pid"]
        assert death.items() >= {"slot": 1, "incarnation": 1, "level": "warning", "jobs": [1]}.items()
        assert ready[1]["incarnation"] > 1
        assert [entry["event"] for entry in told[:2]] == ["configuration", "starting"]
        assert told[-1]["event"] == "stopped"
    finally:
        pool.kill()


def test_for_programs_why_it_failed_is_an_event_too() -> None:
    models = '[[model]]\nname = "m"\npath = "stub:load-exit"\n'
    config = stub_config(devices='["cpu"]', models=models, rest="[restart]\nintensity = 0")
    pool = PoolProcess(config, options=JSON).start()
    try:
        assert pool.wait() == 3
        told = entries(pool)
        words = next(entry for entry in told if entry["event"] == "worker_output")
        assert words["message"] == "slot 0 | the stub was told to die while it loads"
        assert words.items() >= {"slot": 0, "incarnation": 1, "level": "info"}.items()
        fatal = next(entry for entry in told if entry["event"] == "slot_fatal")
        assert fatal["last_output"][-1] == "the stub was told to die while it loads"
        assert told[-1].items() >= {"event": "failed", "level": "error", "error": "NoSlotLeft"}.items()
    finally:
        pool.kill()


def test_for_programs_a_refused_configuration_is_an_event() -> None:
    pool = PoolProcess("[pool]\nlanez = 3\n", options=JSON).start()
    try:
        assert pool.wait() == 2
        (only,) = entries(pool)
        assert only["event"] == "failed"
        assert "lanez" in only["message"]
    finally:
        pool.kill()


@pytest.fixture
def full() -> Iterator[tuple[int, int]]:
    """The ends of a pipe that takes nothing more until somebody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"\n" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def serves(client: Client) -> bool:
    try:
        return bool(client.run("echo", 1.0, timeout=2.0)["x"] == 1.0)
    except errors.PoolError:
        return False


def succeeded(client: Client, pid: int) -> bool:
    """Whether another worker than that serves in slot 0."""
    slot = client.status().slots[0]
    return bool(slot.state == "READY" and slot.pid != pid)


def test_a_log_that_nobody_reads_does_not_hold_up_the_pool(full: tuple[int, int]) -> None:
    reader, writer = full
    pool = PoolProcess(stub_config()).start(stderr=writer)
    try:
        with pool.client() as client:
            eventually(lambda: serves(client), 60)
            for _ in range(3):
                victim = pid_of(client.status().slots[0])
                os.kill(victim, signal.SIGKILL)
                assert client.run("echo", 2.0, timeout=10.0)["x"] == 2.0
                eventually(lambda gone=victim: succeeded(client, gone), 60)  # type: ignore[misc]
            assert client.run("echo", 3.0, timeout=5.0)["x"] == 3.0

        # Nothing was lost while nobody read.
        os.set_blocking(reader, False)
        text = bytearray()

        def all_read() -> bool:
            with contextlib.suppress(BlockingIOError):
                while chunk := os.read(reader, 65536):
                    text.extend(chunk)
            return text.count(b" slot 0 cpu:0 BACKOFF: ") == 3

        eventually(all_read)
        assert b"dropped" not in text
        assert pool.stop() == 0
        eventually(lambda: all_read() and b"stopped: SIGTERM came\n" in text)
    finally:
        pool.kill()


@pytest.mark.parametrize(
    ("models", "status"), [("", 0), ('[[model]]\nname = "broken"\npath = "stub:cannot-load"\n', 3)]
)
def test_a_log_that_nobody_reads_does_not_hold_up_the_end(full: tuple[int, int], models: str, status: int) -> None:
    pool = PoolProcess(stub_config(models=models) if models else stub_config()).start(stderr=full[1])
    try:
        if status == 0:
            with pool.client() as client:
                eventually(lambda: serves(client), 60)
            assert pool.stop() == 0
        else:
            assert pool.wait() == status
            pool.assert_clean([])
    finally:
        pool.kill()
