"""The pool's end of the process that asks NVML (`pool.devices.teller`): never waits for it, and survives its death."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pool.devices.occupancy import Occupancy, read_occupancy, untold

__all__ = ["Answer", "Lookout", "teller_argv"]

CHUNK_BYTES = 65536
END_S = 0.5  # it exits in milliseconds; longer only where the driver has it


@dataclass(frozen=True, slots=True)
class Answer:
    """To the question of that number: an `Occupancy` for each uuid that it named."""

    number: int
    found: Mapping[str, Occupancy]


def teller_argv(buses: Mapping[str, str] = MappingProxyType({})) -> Sequence[str]:
    """`buses`: where the GPU of each uuid is, for what the kernel's log says of it."""
    # `-W ignore`: what NVML's module has to say about its own name is of no use in the pool's log.
    return (
        sys.executable,
        "-P",
        "-W",
        "ignore",
        "-m",
        "pool.devices.teller",
        *(f"{uuid}={bus}" for uuid, bus in buses.items()),
    )


class Lookout:
    """Questions go in, answers come out later. The process is started by a question, and ended by `rest`."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        opened: Callable[[int], None],
        closes: Callable[[int], None],
    ) -> None:
        """How to start the process; of the pool's descriptors it inherits stderr alone.

        `opened` is told of a descriptor that is readable when there is something for `answers`, `closes` of its end.
        """
        self._argv = argv
        self._env = env
        self._opened = opened
        self._closes = closes
        self._teller: subprocess.Popen[bytes] | None = None
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._asked: dict[int, tuple[str, ...]] = {}
        self._partial = b""
        self._unheard: list[Answer] = []

    def ask(self, number: int, slot: int, uuids: Sequence[str]) -> None:
        """Never blocks and never raises. The answer is there within a second, unless the driver hangs."""
        self._asked[number] = tuple(uuids)
        try:
            if self._teller is None:
                self._teller = self._start()
            assert self._teller.stdin is not None
            # Less than a pipe takes at once, so it is written whole or not at all.
            os.write(self._teller.stdin.fileno(), json.dumps([number, slot, list(uuids)]).encode() + b"\n")
        except OSError as error:
            self._fail(f"the process that asks NVML cannot be asked: {error}")

    @property
    def is_up(self) -> bool:
        """Whether the process is there, for `rest` to end."""
        return self._teller is not None

    @property
    def restless(self) -> bool:
        """Whether `answers` is to be called soon, although no descriptor says so."""
        return bool(self._unheard or self._leaving)

    def answers(self) -> list[Answer]:
        """What has come since the last call."""
        if self._teller is not None:
            self._read(self._teller)
        self._leaving = [teller for teller in self._leaving if teller.poll() is None]
        heard, self._unheard = self._unheard, []
        return heard

    def rest(self) -> None:
        """Lets the process go; questions that are open are forgotten."""
        self._asked.clear()
        teller, self._teller, self._partial = self._teller, None, b""
        if teller is None:
            return
        assert teller.stdin is not None
        assert teller.stdout is not None
        teller.stdin.close()
        self._closes(teller.stdout.fileno())
        teller.stdout.close()
        self._leaving.append(teller)

    def close(self) -> None:
        """The process is gone when this returns; only one that the driver does not let go is left behind."""
        self.rest()
        for teller in self._leaving:
            with contextlib.suppress(subprocess.TimeoutExpired):
                teller.wait(END_S)
                continue
            teller.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                teller.wait(END_S)
        self._leaving.clear()

    def _start(self) -> "subprocess.Popen[bytes]":
        teller = subprocess.Popen(
            self._argv,
            env=dict(self._env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,  # a terminal's Ctrl-C is the pool's to handle
        )
        assert teller.stdin is not None
        assert teller.stdout is not None
        os.set_blocking(teller.stdin.fileno(), False)
        os.set_blocking(teller.stdout.fileno(), False)
        self._opened(teller.stdout.fileno())
        return teller

    def _read(self, teller: "subprocess.Popen[bytes]") -> None:
        assert teller.stdout is not None
        try:
            chunk = os.read(teller.stdout.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._fail("the process that asks NVML ended")
            return
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        try:
            for line in lines:
                number, found = json.loads(line)
                answer = Answer(number, {uuid: read_occupancy(found[uuid]) for uuid in self._asked.get(number, ())})
                if self._asked.pop(number, None) is not None:
                    self._unheard.append(answer)
        except (ValueError, TypeError, KeyError):
            self._fail(f"the process that asks NVML said what cannot be understood: {chunk[:80]!r}")

    def _fail(self, why: str) -> None:
        """Every open question is answered: with the reason that there is no answer. The next one starts anew."""
        for number, uuids in self._asked.items():
            self._unheard.append(Answer(number, dict.fromkeys(uuids, untold(why))))
        self.rest()
