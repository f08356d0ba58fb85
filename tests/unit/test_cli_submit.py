"""`pool submit`: what it asks the client for, and what it prints beside the answer."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool.cli import submit as submit_module
from pool.client.futures import JobFuture
from pool.errors import Quarantined
from pool.kept.quarantine import KeptJob
from pool.wire.timeline import Timeline
from simulation.driver import Driver
from support import told_pool
from support.commands import in_process
from unit.results import result_of

RAN = Timeline(41, 0.002, 0.0, 0.001, 0.004, 0.001, rows=2, batch_rows=8, slot=1, device="gpu:1", attempts=1)
KEPT = KeptJob(
    model="digits",
    signature="serving_default",
    outputs=("y",),
    rows=2,
    history="0.000 s came\n0.100 s slot 0 incarnation 1 died: SIGSEGV\n0.200 s quarantined",
    payload=(b"table", b"12345678"),
    number=81,
    kept_at="2026-01-31T08:15:02+00:00",
)


class FakeClient:
    """Answers each job at once, and remembers how it was submitted."""

    def __init__(self, _endpoint: str | None) -> None:
        self.asked: dict[str, Any] = {}
        clients.append(self)

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def models(self) -> Any:
        return told_pool.models(Driver(["digits"]).serve())

    def submit(self, model: str, inputs: object, **options: Any) -> JobFuture:
        self.asked = {"model": model, "inputs": inputs, **options}
        return self._answer()

    def submit_payload(self, model: str, **options: Any) -> JobFuture:
        self.asked = {"model": model, **options}
        return self._answer()

    def _answer(self) -> JobFuture:
        future = JobFuture()
        if self.asked["model"] == "poison":
            future.finish(Quarantined("it killed slot 0"))
        else:
            future.finish(result_of({"y": np.array([1.0, 2.0], np.float32)}, RAN, encode_s=0.001, wall_s=0.01))
        return future


clients: list[FakeClient] = []


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(submit_module, "Client", FakeClient)
    clients.clear()

    return functools.partial(in_process, "submit")


def test_priority_and_device(pool: Any) -> None:
    options = ("--priority", "-7", "--device", "gpu:1", "--timeout", "3", "--version", "3")
    status, out, err = pool("digits", "--input", "[1, 2]", *options)
    assert (status, out, err) == (0, "y float32 [2]: [1., 2.]\n", "")
    asked = clients[0].asked
    assert (asked["priority"], asked["device"], asked["timeout"]) == (-7, "gpu:1", 3.0)
    assert asked["version"] == 3


def test_the_timeline_follows_the_answer(pool: Any) -> None:
    status, out, _ = pool("digits", "--input", "1", "--timeline")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "y float32 [2]: [1., 2.]"
    assert lines[2] == "job 41: 10.00 ms, 2 of 8 rows run together, slot 1 (gpu:1)"
    names = [line.split(" ms")[0].rsplit(maxsplit=1)[0].strip() for line in lines[3:]]
    assert names == ["encode", "queue", "batch wait", "feed", "run", "fetch", "reply"]


def test_the_timeline_as_json(pool: Any) -> None:
    _, out, _ = pool("digits", "--input", "1", "--timeline", "--json")
    found = json.loads(out)
    assert found["outputs"]["y"]["values"] == [1.0, 2.0]
    assert found["timeline"]["job"] == 41
    assert found["timeline"]["wall_s"] == 0.01
    assert "timeline" not in json.loads(pool("digits", "--input", "1", "--json")[1])


# --- replay


def test_a_kept_job_is_sent_as_it_was(pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path] = []
    monkeypatch.setattr("pool.kept.load", lambda path: asked.append(path) or KEPT)
    file = tmp_path / "81.job"
    status, out, err = pool("--replay", str(file), "--timeout", "3", "--priority", "1", "--device", "slot:0")
    assert status == 0
    assert out == "y float32 [2]: [1., 2.]\n"
    assert err.splitlines() == [
        "replaying job 81 of digits serving_default, 2 rows, 13 B, kept at 2026-01-31T08:15:02+00:00",
        "its end: 0.200 s quarantined",
    ]
    assert asked == [file]
    assert clients[0].asked == {
        "model": "digits",
        "signature": "serving_default",
        "outputs": ("y",),
        "rows": 2,
        "payload": (b"table", b"12345678"),
        "timeout": 3.0,
        "priority": 1,
        "device": "slot:0",
    }


def test_a_replay_that_kills_again(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = KeptJob("poison", None, None, None, "", (b"table",))
    monkeypatch.setattr("pool.kept.load", lambda _: poison)
    status, out, err = pool("--replay", "x.job")
    assert (status, out) == (1, "")
    assert err == "replaying job 0 of poison, 5 B\npool: it killed slot 0\n"


def test_a_file_that_is_no_kept_job(pool: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for name, reason in (("notes.txt", "is not a stored job"), ("none.job", "cannot be read")):
        status, out, err = pool("--replay", str(tmp_path / name))
        assert (status, out) == (1, "")
        assert err.startswith("pool: ")
        assert reason in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["digits"], "MODEL"),
        (["--input", "1"], "--input"),
        (["--signature", "s", "--output", "y"], "--signature, --output"),
    ],
)
def test_a_replay_is_of_that_job_alone(pool: Any, argv: list[str], named: str) -> None:
    status, out, err = pool("--replay", "x.job", *argv)
    assert (status, out) == (2, "")
    assert err.endswith(f"--replay sends a stored job unchanged: leave out {named}.\n")
    assert not clients
