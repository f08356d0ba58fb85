"""`python -m pool.devices.listener [UUID=BUS …]`: asks the driver for the pool, which never waits for it.

It says a line of JSON each: `["error", uuid, number, instant]` when the driver tells of an error on one of these GPUs,
and `["reading", uuid, used_bytes, total_bytes, utilization, temperature_c]` every two seconds. Each GPU has a thread,
so that one that hangs silences no other. The end of its input ends it.
"""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import astuple
from types import ModuleType
from typing import NoReturn

from pool.devices.nvml import NoNvml, open_nvml, reading_of
from pool.devices.xid import Xids

__all__ = ["main"]

LOOK_S = 0.5
READ_S = 2.0


def _listen(uuid: str, bus: str, answers: int, one_at_a_time: threading.Lock) -> None:
    def say(kind: str, *what: object) -> None:
        with one_at_a_time:
            os.write(answers, json.dumps([kind, uuid, *what]).encode() + b"\n")

    xids, said = Xids(uuid, bus), None
    read_at = -READ_S
    nvml: ModuleType | None = None  # the kernel's log may be read nonetheless
    with suppress(NoNvml):
        nvml = open_nvml()
    while True:
        if nvml is not None:
            xids.watch(nvml)
        last = xids.last()
        if last is not None and last != said:
            said = last
            at, number = last
            say("error", number, at)
        if nvml is not None and time.monotonic() >= read_at + READ_S:
            say("reading", *astuple(reading_of(nvml, uuid)))
            read_at = time.monotonic()
        time.sleep(LOOK_S)


def main() -> NoReturn:
    # Whatever a library prints must not end up among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    one_at_a_time = threading.Lock()
    for each in sys.argv[1:]:
        uuid, _, bus = each.partition("=")
        threading.Thread(target=_listen, args=(uuid, bus, answers, one_at_a_time), daemon=True).start()
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)  # without waiting for a thread that may never come back from the driver


if __name__ == "__main__":
    main()
