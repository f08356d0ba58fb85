"""`python -m workers.inprocess PARENT`: a model without a pool, for `pool bench compare`.

msgpack comes in and goes out, through the socket that is its input: first what to load, answered by the ways in which
it can be run; then turns, answered by what was measured. The calls of a turn follow each other in one thread. The
parent's death ends it.
"""

import itertools
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgpack
import numpy as np

from pool.wire.codec import packed
from pool.wire.exits import Exit
from pool.wire.packing import unpack_answer
from pool.wire.signatures import Refused, Signature
from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import ModelSettings, TensorFlowSettings
from workers import environment
from workers.backend import CannotLoad, Model, Unfit
from workers.casts import cast
from workers.kinds import kind_of
from workers.leaving import leave

__all__ = ["main"]

# What `ConfigProto()` is, if nobody sets anything.
DEFAULTS = TensorFlowSettings(
    allow_growth=False,
    per_process_gpu_memory_fraction=0.0,
    allow_soft_placement=False,
    log_device_placement=False,
    intra_op_parallelism_threads=0,
    inter_op_parallelism_threads=0,
    device_count={},
    jit=False,
)

Feeds = Mapping[str, Array]
Way = Callable[[Feeds], object]

_ERRORS = (Unfit, Refused, environment.WrongEnvironment, OSError)


def main() -> NoReturn:
    pipe = socket.socket(fileno=0)
    try:
        environment.die_with_parent(int(sys.argv[1]))
        _serve(pipe)
    except _ERRORS as error:
        _say(pipe, {"failed": f"in its separate process: {error}"})
    leave(Exit.STOPPED)


def _serve(pipe: socket.socket) -> None:
    # Unbuffered: a buffered one waits for more than an order.
    orders = msgpack.Unpacker(pipe.makefile("rb", buffering=0), max_buffer_size=0)
    first = next(orders, None)
    if first is None:
        return
    model = kind_of(first["path"])(DEFAULTS, first["gpus"]).load(ModelSettings(first["model"], first["path"], True))
    signature = model.info.signatures.get(first["signature"])
    if signature is None:
        raise CannotLoad(f"model {first['model']}: {first['path']} has no signature {first['signature']!r:.80}")
    ways = _ways(model, first["signature"], tuple(signature.outputs))
    jobs = [_feeds(job, signature) for job in first["jobs"]]
    for way in ways.values():
        way(jobs[0])
    _say(pipe, {"ways": list(ways)})
    for order in orders:
        feeds = [_joined(jobs, start, order["jobs_a_call"]) for start in range(len(jobs))]
        _say(pipe, _turn(ways[order["way"]], feeds, order["seconds"], order["warmup_s"]))


def _turn(way: Way, feeds: Sequence[Feeds], seconds: float, warmup_s: float) -> dict[str, Any]:
    turns = itertools.cycle(feeds)
    latencies_s: list[float] = []
    now = time.perf_counter()
    start, end = now + warmup_s, now + warmup_s + seconds
    while now < end or not latencies_s:
        began = now
        way(next(turns))
        now = time.perf_counter()
        if began >= start:
            latencies_s.append(now - began)
        elif now >= start:  # what measures begins with the next call
            start, end = now, now + seconds
    return {"seconds": now - start, "latencies_s": latencies_s}


def _ways(model: Model, signature: str, outputs: Sequence[str]) -> dict[str, Way]:
    ways: dict[str, Way] = {}
    plainly = getattr(model, "run_plainly", None)  # the stub has no Session
    if plainly is not None:
        ways["session"] = lambda feeds: plainly(signature, feeds, outputs)
    ways["callable"] = lambda feeds: model.run(signature, feeds, outputs)
    return ways


def _feeds(job: Sequence[bytes], signature: Signature) -> Feeds:
    """Of a job as it travels, in the inputs' dtypes, each in memory of its own. Raises `Refused`."""
    feeds = {}
    for given, array in unpack_answer(job).items():
        name = given or next(iter(signature.inputs))
        if name not in signature.inputs:
            there = ", ".join(signature.inputs)
            raise Refused(f"the graph has no input {name!r:.80}; it takes {there} (handlers do not run in-process)")
        made = cast(array, DTYPES[signature.inputs[name].dtype], weak=False)
        if made is None:
            raise Refused(f"input {name!r} cannot be cast to {signature.inputs[name]} without loss")
        feeds[name] = made.copy()
    return feeds


def _joined(jobs: Sequence[Feeds], start: int, count: int) -> Feeds:
    if count == 1:
        return jobs[start]
    part = [jobs[(start + number) % len(jobs)] for number in range(count)]
    return {name: np.concatenate([feeds[name] for feeds in part]) for name in part[0]}


def _say(pipe: socket.socket, what: object) -> None:
    pipe.sendall(packed(what))


if __name__ == "__main__":
    main()
