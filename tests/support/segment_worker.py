"""A worker's runner in this process, with one segment of shared memory, and a model whose feeds are remembered."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.lent import LENT_BYTES, AnswerSpace, Lent
from pool.wire.packing import unpack_answer
from pool.wire.segment import Grant, attach, create, send_grant
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import Array
from pool.wire.worker_messages import Run
from support.encoded import encode_tensor
from support.outcomes import PartDone, outcomes_of
from workers.memory import BatchMemory
from workers.runner import Finished, Runner
from workers.shared_memory import SharedMemory

MIB = 1 << 20
SEGMENT = 16 * MIB
WIDTH = LENT_BYTES // 4  # floats of a row that is just large enough
NUMBER = 7


class Model:
    """One signature of one input, of any dtype; its feeds are remembered."""

    def __init__(self, function: Callable[[Array], Array], dtype: str = "float32") -> None:
        spec = TensorSpec(dtype, None)
        self.info = ModelInfo("m", "stub:m", {"s": Signature({"x": spec}, {"y": spec})}, False)
        self.fed: list[Array] = []
        self.bears = True
        self._function = function

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        assert (signature, list(inputs), list(outputs)) == ("s", ["x"], ["y"])
        return self.bears

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert signature == "s"
        self.fed.append(feeds["x"])
        return {name: self._function(feeds["x"]) for name in outputs}

    def warm_up(self) -> None:
        pass


class Worker:
    """A runner with a segment handed to it as the pool does; `memory` is the client's view of that."""

    def __init__(self) -> None:
        fd = create(SEGMENT)
        self.mapping = attach(fd, SEGMENT)
        self.memory = memoryview(self.mapping)
        self.shared_memory = SharedMemory()
        self.lane = BatchMemory()
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        send_grant(self.ours, Grant(NUMBER, SEGMENT), fd)
        os.close(fd)
        assert self.shared_memory.receive(self.theirs)
        self.mapped = np.frombuffer(self.shared_memory.memory(NUMBER, 0, SEGMENT), np.uint8)

    def put(self, offset: int, array: Array) -> Lent:
        _, octets = encode_tensor("x", array)
        self.memory[offset : offset + len(octets)] = octets
        return Lent(0, NUMBER, offset, len(octets))

    def array(self, offset: int, count: int) -> Array:
        return np.frombuffer(self.memory, np.float32, count, offset)

    def run(
        self,
        model: Model,
        rows: Sequence[int],
        lent: Sequence[Lent],
        rooms: Sequence[AnswerSpace] = (),
        dtype: str = "float32",
        pad_to: int = 0,
    ) -> Finished:
        """A batch of parts that lie in the segment, each `rows` of WIDTH; they are taken one after the other."""
        placed = tuple(Lent(index, each.segment, each.offset, each.size_bytes) for index, each in enumerate(lent))
        table = pack(Table((TensorHeader("x", dtype, (ROWS, WIDTH), False),)))
        message = Run(1, "m", None, None, tuple(rows), pad_to or sum(rows), True, placed, tuple(rooms))
        models: dict[str, Any] = {"m": model}  # it has what a run asks of it, and no more
        return Runner(models, self.shared_memory).run(message, [table, *[b""] * len(rows)], self.lane)

    def answers(self, finished: Finished) -> list[Array]:
        frames = iter(finished.payload)
        found = []
        for outcome in outcomes_of(finished):
            assert isinstance(outcome, PartDone), outcome
            own = [next(frames) for _ in range(outcome.frames)]
            found.append(unpack_answer(own, lambda offset, size: self.memory[offset : offset + size])["y"])
        return found
