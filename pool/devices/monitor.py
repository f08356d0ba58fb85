"""What NVML says of the GPUs, told by a process that may hang with the driver while the pool goes on."""

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

NVML_S = 60.0  # without the persistence daemon, a driver first wakes each GPU
READ_S = 2.0
LOST_S = 5.0  # a reset takes less
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MOST_BYTES, MOST_PIDS = 1 << 20, 10_000  # of a line, of `seen_pids`
ARGV = [sys.executable, "-P", "-m", "pool.devices.nvml"]

log = logging.getLogger("pool.devices")

Gpu = Mapping[str, Any]  # as `pool.devices.nvml` describes it


@dataclass(frozen=True)
class Level:
    """Of a GPU or MIG instance, at the instant `heard_at`. None is what NVML does not tell."""

    used_bytes: int | None
    total_bytes: int | None
    utilization: int | None = None  # percent of the last second in which a kernel ran
    temperature: int | None = None  # °C
    pids: Mapping[int, int | None] = field(default_factory=dict)  # with their bytes
    lost_since: float | None = None  # NVML has said ever since that it is gone
    heard_at: float = 0.0


class Monitor:
    """REQUIRES the main thread, for the process ends with the thread that started it. `start` starts it."""

    def __init__(self) -> None:
        self.gpus: dict[str, Level] = {}  # by uuid; empty while nothing is known
        self.heard_at = 0.0
        self.seen_pids: dict[int, None] = {}  # that NVML has listed on some GPU, the newest last
        self._listed: tuple[list[Gpu], str] | None = None
        self._uuids: list[str] = []  # that are watched, listed again or not
        self._environ: dict[str, str] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._output, self._rest = -1, b""
        self._due, self._pause_s = inf, FIRST_PAUSE_S

    def start(self, environ: Mapping[str, str]) -> tuple[list[Gpu], str]:
        """All GPUs in PCI order, and what went wrong. Takes a minute at most, and raises nothing."""
        self._environ, ends = dict(environ), time.monotonic() + NVML_S
        try:
            self._spawn(time.monotonic())
            while self._listed is None:
                left_s = ends - time.monotonic()
                if left_s <= 0 or not select.select([self._output], [], [], left_s)[0]:
                    raise EOFError(f"did not answer within {NVML_S:g} s: the driver hangs, as `nvidia-smi` may show")
                self._hear(time.monotonic())
        except Exception as error:  # whatever it says must not end the pool
            self._listed = [], f"NVML {error}"
        if not self._listed[0]:
            self.close()
        return self._listed

    def read(self, now: float) -> None:
        """What was said since. Never blocks; starts the process again after a pause if it has ended or is silent."""
        try:
            if self._child is not None:
                self._hear(now)
                if now - self.heard_at > NVML_S:
                    raise EOFError(f"has said nothing for {NVML_S:g} s")
            elif now >= self._due:
                self._spawn(now)
        except Exception as error:
            log.warning("NVML %s; it is asked again in %g s", error, self._pause_s)
            self.close()
            self._due, self._pause_s = now + self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)

    def lost(self, now: float) -> set[str]:
        """The GPUs of which NVML has said for LOST_S that they are gone."""
        since = ((uuid, level.lost_since) for uuid, level in self.gpus.items())
        return {uuid for uuid, instant in since if instant is not None and now - instant >= LOST_S}

    def close(self) -> None:
        """Ends the process. What it said of the GPUs is forgotten, for it may be true no more."""
        self.gpus, self._rest, self._due = {}, b"", inf
        if (child := self._child) is not None:
            self._child = None
            child.kill()
            child.stdout.close()  # type: ignore[union-attr]
            threading.Thread(target=child.wait, daemon=True).start()  # the driver may hold its end up for ever

    def _spawn(self, now: float) -> None:
        self.heard_at, argv = now, [*ARGV, str(READ_S), *self._uuids]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        self._child = subprocess.Popen(argv, env=self._environ, process_group=0, **streams)
        self._output = self._child.stdout.fileno()  # type: ignore[union-attr]
        os.set_blocking(self._output, False)

    def _hear(self, now: float) -> None:
        data = b""
        with suppress(BlockingIOError):
            if not (data := os.read(self._output, MOST_BYTES)):
                raise EOFError("cannot be asked: the process that asks has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise ValueError("cannot be asked: a line without an end")
        for line in lines:
            match json.loads(line):
                case [list(gpus), str(trouble)]:
                    every = [each for gpu in gpus for each in (gpu, *(gpu["instances"] or ()))]
                    self.gpus = {gpu["uuid"]: Level(gpu["used_bytes"], gpu["memory_bytes"] or None) for gpu in every}
                    self._listed, self._uuids = self._listed or (gpus, trouble), self._uuids or [*self.gpus]
                case dict(said):
                    self.gpus |= {uuid: self._level(uuid, now, **facts) for uuid, facts in said.items()}
                    self._pause_s = FIRST_PAUSE_S
                case _:
                    raise ValueError(f"cannot be asked: {line!r:.80}")
            self.heard_at = now

    def _level(self, uuid: str, now: float, processes: Mapping[str, int | None], lost: bool, **numbers: Any) -> Level:
        pids = {int(pid): used for pid, used in processes.items()}
        if uuid not in self._uuids or {type(each) for each in (*numbers.values(), *pids.values())} - {int, type(None)}:
            raise ValueError(f"says of {uuid} what no driver says")
        self.seen_pids |= dict.fromkeys(pids)
        for pid in [*self.seen_pids][:-MOST_PIDS]:
            del self.seen_pids[pid]
        since = known.lost_since if (known := self.gpus.get(uuid)) else None
        return Level(**numbers, pids=pids, lost_since=(since or now) if lost else None, heard_at=now)
