"""A peer while it serves one model: started, checked, driven, ended."""

import http.client
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.cases import Array, Case
from benchmarks.line_process import Ended, LineProcess, end_group, environment, last_line
from benchmarks.peers import wrk

__all__ = ["HandleServer", "HttpServer", "NotServing", "Server", "free_port"]

START_S = 180.0
ANSWER_S = 60.0


class NotServing(Exception):
    """It did not come up, or died."""


class Server(Protocol):
    def rate(self, in_flight: int, seconds: float) -> float:
        """Rows a second, with checked answers."""
        ...

    def alone(self, seconds: float) -> float:
        """The median of single jobs in seconds."""
        ...

    def end(self) -> None: ...


class HttpServer:
    """Driven by wrk. A row is checked before and after each turn; wrk itself counts what is no 200."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        url: str,
        headers: Mapping[str, str],
        case: Case,
        row: Array,
        expected: Array,
        folder: Path,
    ) -> None:
        """Returns once it has given the right answer. Raises `NotServing`, `WrongAnswer`."""
        self._url, self._headers, self._case, self._expected, self._folder = url, headers, case, expected, folder
        self._body = folder / f"{case.name}.body"
        self._body.write_bytes(row[0] if case.dtype == "string" else row.tobytes())
        self._log = folder / "server.log"
        self._log.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(env),
                process_group=0,
                cwd=folder,
            )
        try:
            self._await()
        except BaseException:
            self.end()
            raise

    def _await(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._check()
            except (OSError, http.client.HTTPException) as error:
                if self._process.poll() is not None:
                    raise NotServing(f"ended with {self._process.returncode}: {last_line(self._log)}") from None
                if time.monotonic() > deadline:
                    raise NotServing(f"not within {START_S:g} s ({error}): {last_line(self._log)}") from None
                time.sleep(0.2)
            else:
                return

    def _check(self) -> None:
        request = urllib.request.Request(self._url, self._body.read_bytes(), dict(self._headers))
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            raw = reply.read()
            skip = int(reply.headers.get("Inference-Header-Content-Length", 0))  # Triton's own, before the tensor
        self._case.check(np.frombuffer(raw[skip:], self._expected.dtype).reshape(self._expected.shape), self._expected)

    def rate(self, in_flight: int, seconds: float) -> float:
        return self._drive(in_flight, seconds).rate

    def alone(self, seconds: float) -> float:
        return self._drive(1, seconds).p50

    def _drive(self, connections: int, seconds: float) -> wrk.WrkRun:
        self._check()
        run = wrk.drive(self._url, self._body, self._headers, connections, seconds, self._folder)
        self._check()
        return run

    def end(self) -> None:
        end_group(self._process)


class HandleServer:
    """Driven by a Python process of the peer's own, which checks the answers."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self._process = LineProcess(argv, folder / "driver.log", env)
        try:
            self._process.answer(START_S)
        except Ended as error:
            self.end()
            raise NotServing(str(error)) from None
        except BaseException:
            self.end()
            raise

    def rate(self, in_flight: int, seconds: float) -> float:
        return self._figure(in_flight, seconds)

    def alone(self, seconds: float) -> float:
        return self._figure(0, seconds)

    def _figure(self, in_flight: int, seconds: float) -> float:
        asked = {"seconds": seconds, "in_flight": in_flight}
        return float(self._process.ask(asked, seconds + ANSWER_S)["figure"])

    def end(self) -> None:
        self._process.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
