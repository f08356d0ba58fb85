"""What `pool doctor` starts in a worker's place: `python -m workers.tf.probe ORDER`.

order ─► waits for the memory of its GPUs, as a worker does ─► imports the library, computes ─► answer ─► is killed
"""

import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from pool.devices.nvml import Nvml
from pool.wire.codec import pack, unpack
from pool.wire.device_memory import DeviceHeld
from pool.wire.probe import ProbeAnswer, ProbeOrder
from workers import environment
from workers.device_memory import DeviceMemory, seen

__all__ = ["Look", "main"]

Look = Callable[[ProbeOrder], tuple[ProbeAnswer, object]]
"""Tries the library; the second is kept to the end, as what it took must be."""

LONGEST_FAILURE = 400  # characters: TensorFlow's own words may be pages


def main(look: Look) -> NoReturn:
    # Whatever a library prints must not end up beside the answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    order = unpack(ProbeOrder, bytes.fromhex(sys.argv[1]))
    environment.die_with_parent(order.parent)
    faulthandler.enable()
    faulthandler.dump_traceback_later(order.stacks_after_s)
    answer, _kept = _tried(order, look)
    faulthandler.cancel_dump_traceback_later()
    os.write(answers, pack(answer).hex().encode() + b"\n")
    while True:  # with what it holds, until it is killed
        signal.pause()


def _tried(order: ProbeOrder, look: Look) -> tuple[ProbeAnswer, object]:
    held: list[DeviceHeld] = []
    waited_s = None
    try:
        if order.wait is not None:
            began = time.monotonic()
            DeviceMemory(order.wait, lambda _: None, held.append).await_free()
            waited_s = time.monotonic() - began
        answer, kept = look(order)
    except Exception as error:  # whatever it is, it is the answer
        said = f"{type(error).__name__}: {error}".splitlines()[0][:LONGEST_FAILURE]
        return ProbeAnswer(said, waited_s=waited_s), None
    now = seen(held[0], Nvml().ask(tuple(held[0].levels))) if held else None
    return replace(answer, waited_s=waited_s, held=now), kept
