"""A process that tries TensorFlow as a worker would: started, heard within a time, killed, reaped."""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from pool.processes import death_of
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.device_memory import DeviceWait
from pool.wire.probe import ProbeAnswer, ProbeOrder
from pool.wire.worker_messages import TensorFlowSettings

__all__ = ["LONGEST_S", "Probe"]

LONGEST_S = 150.0  # an import on a busy machine takes half a minute, kernels for a new card one more
STACKS_BEFORE_S = 5.0
END_S = 2.0  # a killed process ends in milliseconds; longer only where the driver has it
MOST_BYTES = 1 << 20
TAIL_BYTES = 16384


class Probe(ExitStack):
    """The end of the block kills it, with SIGKILL, as the hardest end that a worker may have."""

    def __init__(
        self,
        module: str,
        environ: Mapping[str, str],
        *,
        gpus: int | None = None,
        wait: DeviceWait | None = None,
        hold_bytes: int = 0,
        fraction: float = 0.0,
    ) -> None:
        """`environ`: its own, whole. `fraction`: it takes this part of its GPU at once; 0: it grows. See `ProbeOrder`.

        REQUIRES the main thread: the process dies with the thread that started it.
        """
        super().__init__()
        # Without soft placement nothing that is meant for a GPU runs on the CPU.
        tensorflow = TensorFlowSettings(fraction == 0.0, fraction, False, False, 0, 0, {}, False)
        order = ProbeOrder(os.getpid(), LONGEST_S - STACKS_BEFORE_S, tensorflow, gpus, wait, hold_bytes)
        self._printed = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # this is its block
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, pack(order).hex()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env={**environ, "TF_CPP_MIN_LOG_LEVEL": "0"},  # which libraries it does not find is said there
            process_group=0,  # Ctrl-C is this process's to answer
        )
        self.callback(self._end)

    def answer(self, ends: float) -> ProbeAnswer:
        """What it says until then; an answer with a failure where it dies, hangs or says nonsense. Never raises."""
        assert self._process.stdout is not None
        pipe, line = self._process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                return ProbeAnswer(f"no answer within {LONGEST_S:g} s")
            chunk = os.read(pipe, MOST_BYTES)
            line += chunk
            if not chunk:
                return ProbeAnswer(f"its process {self._death()}")
            if len(line) > MOST_BYTES:
                return ProbeAnswer("its process says nonsense")
        try:
            return unpack(ProbeAnswer, bytes.fromhex(line.decode()))
        except (BadFrame, ValueError):
            return ProbeAnswer("its process says nonsense")

    def printed(self) -> str:
        self._printed.seek(max(0, os.fstat(self._printed.fileno()).st_size - TAIL_BYTES))
        return self._printed.read().decode(errors="replace")

    def _death(self) -> str:
        try:
            return f"died: {death_of(self._process.wait(END_S), ()).text}"
        except subprocess.TimeoutExpired:
            return "closed its output and did not end"

    def _end(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
