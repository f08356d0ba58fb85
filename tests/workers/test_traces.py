"""A worker tells on its link, beside its work, what a traced run did on each device."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.config import Config
from pool.wire import RELEASE, WIRE
from pool.wire.link import Link
from support.pools import WAIT_S


@contextmanager
def running(models: dict[str, str]) -> Iterator[tuple[Link, subprocess.Popen[bytes]]]:
    """A worker that is READY, without lanes, and the pool's end of its link."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(WAIT_S)
    link, stacks = Link(ours), os.memfd_create("stacks")
    process = subprocess.Popen(
        [sys.executable, "-m", "workers", *map(str, (theirs.fileno(), os.getpid(), stacks))],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        pass_fds=[theirs.fileno(), stacks],
        process_group=0,
    )
    theirs.close()
    os.close(stacks)
    named = [{"name": name, "path": path} for name, path in models.items()]
    config = Config.model_validate({"model": named}, context={"base": "/", "names": []}).model_dump()
    device = {"uuids": [], "label": "cpu"}
    welcome = {"wire": WIRE, "release": RELEASE, "device": device, "models": len(named), "lanes": 0, "slot": 0}
    try:
        link.send({**welcome, "address": "", "token": b"", "tensorflow": config["tensorflow"], "state": "/"})
        for model in config["model"]:
            link.send({"model": model | {"version": "", "files": ""}})
        hear(link, "ready")
        yield link, process
    finally:
        process.kill()
        process.wait(WAIT_S)
        link.socket.close()


def hear(link: Link, key: str) -> dict[str, Any]:
    while said := link.receive():
        if key in said[0]:
            return said[0]
    raise AssertionError("the worker has ended")


def ask(link: Link, number: int, model: str) -> None:
    link.send({"trace": number, "model": model, "signature": "serving_default"})


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    away = tmp_path_factory.mktemp("traces") / "away" / "log"
    with running({"double": "stub:double?width=3", "echo": "stub:echo", "bad": f"stub:double?log={away}"}) as made:
        yield made[0]


@pytest.mark.parametrize("model", ["double", "echo"])
def test_each_device_is_told_with_its_ops(link: Link, model: str) -> None:
    ask(link, 7, model)
    answer = hear(link, "traced")
    (device,) = answer.pop("devices")
    assert answer == {"traced": 7}
    assert device.pop("seconds") >= 0
    assert device == {"device": "/cpu:0", "ops": 1, "names": [model]}


def test_what_cannot_be_traced_is_told_and_costs_the_worker_nothing(link: Link) -> None:
    link.send({"trace": "1", "model": "double", "signature": 2})  # no such message is known
    for model, why in (("triple", "KeyError: 'triple'"), ("bad", "FileNotFoundError: ")):
        ask(link, 1 << 62, model)
        answer = hear(link, "traced")
        assert answer.pop("error").startswith(why)
        assert answer == {"traced": 1 << 62}


def test_one_trace_runs_at_a_time_and_none_holds_up_the_link(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with running({"gated": f"stub:double?gate={gate}"}) as (link, process):
        for number in (1, 2):
            ask(link, number, "gated")
        refused = hear(link, "traced")
        assert "ask again" in refused["error"]
        hear(link, "beat")
        gate.touch()
        answered = hear(link, "traced")
        assert answered["devices"]
        assert {refused["traced"], answered["traced"]} == {1, 2}
        gate.unlink()
        ask(link, 3, "gated")
        link.socket.shutdown(socket.SHUT_RDWR)
        assert process.wait(WAIT_S) != 0, "a trace keeps no worker from ending with its pool"
