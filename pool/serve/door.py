"""The door's process, for `[door]` of the configuration. Its end costs the pool nothing, and another one follows."""

import logging
import os
import sys
from contextlib import suppress
from math import inf
from selectors import EVENT_READ, EpollSelector
from subprocess import PIPE, STDOUT, Popen

from pool.config.sections import Door as Settings
from pool.serve.worker import exit_text

FIRST_PAUSE_S, LONGEST_PAUSE_S, PROVEN_S = 0.1, 30.0, 60.0
STOP_S = 12.0  # for the requests that it has; then it is killed
EXIT_LOOK_S = 0.01
READ_BYTES = 64 << 10

log = logging.getLogger("pool.serve")


class Door:
    """REQUIRES the main thread, for it ends with the thread that started it."""

    def __init__(self, endpoint: str, sources: EpollSelector) -> None:
        """`sources`: what the loop reads, each with what it calls."""
        self._endpoint, self._sources = endpoint, sources
        self._settings = Settings()
        self._popen: Popen[bytes] | None = None
        self._output = -1
        self._pause_s, self._began, self._is_told = FIRST_PAUSE_S, 0.0, False
        self.due = inf  # when `look` is to be called

    @property
    def addresses(self) -> list[str]:
        scheme = "https" if self._settings.certificate else "http"
        named = ((scheme, self._settings.listen), ("grpc", self._settings.grpc))
        return [f"{kind}://{address}" for kind, address in named if address is not None]

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen is not None else None

    def want(self, settings: Settings, now: float) -> None:
        """From now on the door is as these say. One that is another finishes the requests that it has, and ends."""
        if settings != self._settings:
            self._settings, self._pause_s = settings, FIRST_PAUSE_S
            if self._popen is None:
                self.due = now
            elif not self._is_told:
                self._popen.terminate()
                self._is_told, self.due = True, now + STOP_S

    def look(self, now: float) -> None:
        """Starts the process, reaps it, or kills it if it has not ended in time. For `due`."""
        self.due = inf
        if self._popen is None:
            if self.addresses:
                self._start(now)
        elif self._output >= 0 or self._popen.poll() is None:
            self._popen.kill()
            self.due = now + EXIT_LOOK_S
        else:
            self._ended(self._popen.returncode, now)

    def _start(self, now: float) -> None:
        argv = [sys.executable, "-P", "-m", "pool", "door", "--endpoint", self._endpoint, "--parent", str(os.getpid())]
        try:
            self._popen = Popen(argv, stdin=PIPE, stdout=PIPE, stderr=STDOUT, process_group=0)
        except OSError as error:
            log.error("the door could not be started: %s", error)
            self.due, self._pause_s = now + self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
            return
        with suppress(BrokenPipeError), self._popen.stdin as settings:  # type: ignore[union-attr]
            settings.write(self._settings.model_dump_json().encode())
        self._output = self._popen.stdout.fileno()  # type: ignore[union-attr]
        self._began, self._is_told = now, False
        self._sources.register(self._output, EVENT_READ, self._read)

    def _read(self) -> None:
        """What it says goes to the pool's log. At the end of that it has ended, or is about to."""
        data = os.read(self._output, READ_BYTES)
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            log.info("door: %s", line[:1000])
        if not data:
            self._sources.unregister(self._output)
            self._output, self.due = -1, 0.0

    def _ended(self, status: int, now: float) -> None:
        self._popen = None
        if now - self._began > PROVEN_S or self._is_told:
            self._pause_s = FIRST_PAUSE_S
        if self.addresses:
            log.log(logging.INFO if self._is_told else logging.ERROR, "the door has ended: %s", exit_text(status))
            self.due = now + (0.0 if self._is_told else self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def close(self) -> None:
        """It ends at once."""
        if self._popen is not None:
            self._popen.kill()
