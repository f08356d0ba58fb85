"""A client without a pool, and the command line as a function."""

import io
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pool.cli import main

# As JSON, since a dictionary's display would take a line for each key.
STATUS: dict[str, Any] = json.loads(
    """{
    "pool": {"pid": 4321, "release": "0.2.0", "endpoint": "ipc:///x/pool.sock", "state": "DEGRADED", "uptime_s": 300},
    "slots": [
        {"slot": 0, "device": "gpu:0 (GPU-12345678…)", "uuids": ["GPU-12345678"], "pid": 4400, "state": "READY",
         "for_s": 240, "models": ["digits", "guesslang"], "failed": {}, "phase": "serve", "jobs": 4, "restarts": 0,
         "doing": "runs 4 of digits for 0.1 s", "why": ""},
        {"slot": 1, "device": "gpu:1 (GPU-87654321…)", "uuids": ["GPU-87654321"], "pid": null, "state": "FATAL",
         "for_s": 9, "models": [], "failed": {"broken": "no such file \\u001b[31m"}, "phase": "", "jobs": 0,
         "restarts": 5, "doing": "", "why": "6 deaths within 60 s, the last one by SIGKILL (out of memory?)"}],
    "models": [
        {"name": "digits", "state": "READY", "why": "", "waiting": 12, "running": 4, "done": 1234567, "failed": 2,
         "errors": {"ModelFailed": 2}, "rate": 5123.4, "p50_s": 0.0008, "p99_s": 1.5, "slots": [0]}],
    "queue": {"jobs": 16, "bytes": 3145728, "max_jobs": 10000, "max_bytes": 2147483648},
    "clients": 1, "deaths": ["slot 1: SIGKILL"]
    }"""
)
MODEL: dict[str, Any] = json.loads(
    """{
    "name": "digits", "path": "/models/digits", "batching": "auto", "is_stateful": false, "slots": [0], "why": "",
    "signatures": {
        "serving_default": {"inputs": {"pixels": ["float32", [-1, 64]]}, "outputs": {"label": ["int64", [-1]]},
                            "defaults": [], "is_joined": false, "max_batch": 1},
        "text": {"inputs": {"content": ["string", [-1]]}, "outputs": {"classes": ["string", null]},
                 "defaults": [], "is_joined": false, "max_batch": 1}},
    "left_out": {"odd": "no inputs"}, "notes": []
    }"""
)


class Result(dict[str, Any]):
    device, slot = "cpu:0", 0


class FakeClient:
    """Says what `STATUS` and `MODEL` say, and keeps what it was asked to do."""

    def __init__(self) -> None:
        self.record = STATUS
        self.result = Result(label=np.array([7]))
        self.log = [(number, f"line {number}") for number in range(1, 451)]
        self.jobs: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.error: BaseException | None = None

    def __enter__(self) -> "FakeClient":
        if self.error:
            raise self.error
        return self

    def __exit__(self, *_: object) -> None: ...

    def status(self) -> dict[str, Any]:
        return self.record

    def models(self) -> list[dict[str, Any]]:
        return [MODEL]

    def model(self, _: str) -> dict[str, Any]:
        return MODEL

    def is_ready(self) -> bool:
        return all(model["state"] == "READY" for model in self.record["models"])

    def run(self, model: str, inputs: dict[str, Any], **options: Any) -> Result:
        self.jobs.append((model, inputs, options))
        return self.result

    def logs(self, since: int) -> dict[str, Any]:
        lines = [line for line in self.log if line[0] > since][:200]
        return {"lines": lines, "next": lines[-1][0] if lines else since}


class Shell:
    """Runs a command line. `out` and `err` are what the last one printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: Callable[..., None]) -> None:
        self._capsys, self._patch = capsys, patch
        self.out = self.err = ""

    def __call__(self, *argv: str, status: int = 0, stdin: bytes = b"") -> str:
        """What the command prints; of a failure, what it says."""
        self._patch(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exited:
            main(list(argv))
        self.out, self.err = self._capsys.readouterr()
        assert (exited.value.code or 0) == status, self.err
        return self.err if status else self.out
