"""A process that answers a line of JSON with a line of JSON, and is ended with all that it has started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["Ended", "LineProcess", "end_group", "environment", "last_line", "python_module"]

END_S = 10.0


class Ended(Exception):
    """It died, or did not answer in time; with its last line."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with the folder in which the package `benchmarks` is."""
    tests = str(Path(__file__).resolve().parents[1])
    environ = {**os.environ, **(extra or {})}
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, (tests, environ.get("PYTHONPATH"))))}


def last_line(log: Path) -> str:
    """Of a log, what is most likely why."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "error:" in line]
    return (told or lines or ["it printed nothing"])[-1][-300:]


class LineProcess:
    """In a process group of its own. What it prints that is no JSON is ignored; its standard error goes to `log`."""

    def __init__(self, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment(env),
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, question: object, timeout_s: float) -> Any:
        """Raises `Ended`."""
        self.send(question)
        return self.answer(timeout_s)

    def send(self, question: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Ended(last_line(self._log)) from None

    def answer(self, timeout_s: float) -> Any:
        """The next line of JSON. Raises `Ended`."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise Ended(f"no answer within {timeout_s:g} s; last: {last_line(self._log)}") from None
            if line is None:
                raise Ended(f"it ended with {self.process.wait(END_S)}: {last_line(self._log)}")
            with contextlib.suppress(ValueError):
                return json.loads(line)

    def end(self) -> None:
        """Its group too: asked first, killed after a while."""
        end_group(self.process)
        self._reader.join(END_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent any more
                    pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def end_group(process: "subprocess.Popen[Any]") -> None:
    """Asks the group of a process to end, and kills what is left of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def python_module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]
