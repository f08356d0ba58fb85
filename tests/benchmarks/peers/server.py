"""A peer while it serves one model: started, checked, driven, ended."""

import http.client
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.cases import WrongAnswer
from benchmarks.line_process import Ended, LineProcess, end_group, environment, last_line
from benchmarks.peers import wrk
from benchmarks.turns import Turns

__all__ = ["HandleServer", "HttpServer", "NotServing", "Server", "free_port"]

START_S = 180.0
ANSWER_S = 60.0
CHECKED_AT_ONCE = 8


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
    """Driven by wrk, with all rows in turn.

    Every answer must be a 200, and those that wrk keeps answers to rows that took turns. Which row each was to
    wrk does not know; so between turns all rows are asked for at once, and each must have its own answer.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        url: str,
        headers: Mapping[str, str],
        turns: Turns,
        folder: Path,
        before: bytes = b"",
    ) -> None:
        """Returns once it has given the right answers. `before`: what stands before each row in a body.

        Raises `NotServing`, `WrongAnswer`.
        """
        self._url, self._headers, self._turns, self._folder = url, headers, turns, folder
        text = turns.case.dtype == "string"
        self._raw = [before + (row[0] if text else row.tobytes()) for row in turns.rows]
        self._bodies = folder / "bodies"
        if not self._bodies.exists():  # of the setting before
            wrk.write_bodies(self._bodies, self._raw)
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
            self.check()
        except BaseException:
            self.end()
            raise

    def _await(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._check_row(0)
            except (OSError, http.client.HTTPException) as error:
                if self._process.poll() is not None:
                    raise NotServing(f"ended with {self._process.returncode}: {last_line(self._log)}") from None
                if time.monotonic() > deadline:
                    raise NotServing(f"not within {START_S:g} s ({error}): {last_line(self._log)}") from None
                time.sleep(0.2)
            else:
                return

    def _check_row(self, number: int) -> None:
        request = urllib.request.Request(self._url, self._raw[number], dict(self._headers))
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            raw = reply.read()
            skip = int(reply.headers.get("Inference-Header-Content-Length", 0))  # Triton's own, before the tensor
        expected = self._turns.expected[number]
        if len(raw) - skip != expected.nbytes:
            raise WrongAnswer(f"{len(raw) - skip} bytes, expected {expected.nbytes}")
        self._turns.case.check(np.frombuffer(raw[skip:], expected.dtype).reshape(expected.shape), expected)

    def check(self) -> None:
        """All rows, many at once. Raises `WrongAnswer`, `NotServing`."""
        with ThreadPoolExecutor(CHECKED_AT_ONCE) as threads:
            try:
                list(threads.map(self._check_row, range(len(self._raw))))
            except (OSError, http.client.HTTPException) as error:
                raise NotServing(str(error)) from None

    def rate(self, in_flight: int, seconds: float) -> float:
        return self._drive(in_flight, seconds).rate

    def alone(self, seconds: float) -> float:
        return self._drive(1, seconds).p50

    def _drive(self, connections: int, seconds: float) -> wrk.WrkRun:
        run = wrk.drive(self._url, self._bodies, self._headers, connections, seconds, self._folder)
        self._turns.case.check_unordered(run.answers, self._turns.expected)
        self.check()
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
