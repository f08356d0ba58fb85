"""`python -m pool.devices.teller [UUID=BUS …]`: asks NVML for the pool, so that the pool never waits for it.

A call into a driver that has lost its GPU can hang for minutes, in a state in which not even SIGKILL ends the process:
that must not be the pool's. Each slot's questions are asked in a thread of their own, so that a GPU that hangs holds up
no other. Lines of JSON: `[number, slot, [uuid, …]]` comes in, `[number, {uuid: Occupancy}]` goes out, one for each.
The end of its input ends it.
"""

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from queue import SimpleQueue
from types import ModuleType
from typing import NoReturn

from pool.devices.occupancy import Occupancy, occupancy_of, untold
from pool.devices.xid import Xids

__all__ = ["Session", "main"]

Questions = SimpleQueue[tuple[int, list[str]]]


LATELY_S = 60.0  # an error that a worker dies of is not older
LOST_S = 86400.0  # that a GPU is lost may be noticed long after


class Session:
    """NVML, opened when it is first asked, and anew when it told nothing (the driver may have been replaced)."""

    def __init__(self, load: Callable[[], ModuleType], buses: Mapping[str, str]) -> None:
        """`buses`: where the GPU of each uuid is, as far as that is known."""
        self._load = load
        self._xids = Xids(buses)
        self._nvml: ModuleType | None = None

    def ask(self, uuids: Sequence[str]) -> dict[str, Occupancy]:
        """One answer for each uuid, whatever goes wrong."""
        try:
            if self._nvml is None:
                nvml = self._load()
                nvml.nvmlInit()
                self._nvml = nvml
            found = {uuid: self._look(self._nvml, uuid) for uuid in uuids}
        except Exception as error:  # NVML's own is not known before it is loaded, and a question left open is worse
            return dict.fromkeys(uuids, untold(f"{error}"))
        if not any(one.told for one in found.values()):
            self.close()
        return found

    def _look(self, nvml: ModuleType, uuid: str) -> Occupancy:
        self._xids.watch(nvml, uuid)
        occupancy = occupancy_of(nvml, uuid)
        return replace(occupancy, xid=self._xids.words(uuid, LOST_S if occupancy.lost else LATELY_S))

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            self._xids.close(nvml)
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def _serve(questions: Questions, say: Callable[[int, Mapping[str, Occupancy]], None], buses: Mapping[str, str]) -> None:
    session = Session(lambda: importlib.import_module("pynvml"), buses)
    while True:
        number, uuids = questions.get()
        say(number, session.ask(uuids))


def main() -> NoReturn:
    # Whatever a library prints must not end up among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    one_at_a_time = threading.Lock()
    slots: dict[int, Questions] = {}
    buses = dict(each.split("=", 1) for each in sys.argv[1:])

    def say(number: int, found: Mapping[str, Occupancy]) -> None:
        line = json.dumps([number, {uuid: asdict(occupancy) for uuid, occupancy in found.items()}])
        with one_at_a_time, os.fdopen(os.dup(answers), "wb") as out:
            out.write(line.encode() + b"\n")

    for line in sys.stdin.buffer:
        number, slot, uuids = json.loads(line)
        if slot not in slots:
            slots[slot] = SimpleQueue()
            threading.Thread(target=_serve, args=(slots[slot], say, buses), daemon=True).start()
        slots[slot].put((number, uuids))
    os._exit(0)  # without waiting for a thread that may never come back from the driver


if __name__ == "__main__":
    main()
