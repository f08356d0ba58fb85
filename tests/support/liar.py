"""In the place of `workers`: a worker that tells a lie, once for each file in the folder `lies`; then honest ones."""

import os
import runpy
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import zmq

from pool.wire.bodies import BATCH, HEAD, Kind, bodies, failure, plain
from pool.wire.link import Link
from pool.wire.signatures import Signature, TensorInfo

LIES = (
    "a short DONE",
    "no DONE",
    "an unknown batch",
    "too few answers",
    "too many answers",
    "another job's answer",
    "an answer of no kind",
    "an unknown error",
    "half an answer",
    # A worker that ends without a job makes the pauses longer.
    "link junk",
    "a descriptor",
    "beats without end",
    "ready without a model",
    "a model that nobody asked for",
    "a signature that is none",
)


def environ(folder: Path, product: str) -> dict[str, str]:
    """For a pool whose workers tell the lies of `folder`. `product`: where another one is; "": nowhere."""
    package = folder / "workers"
    package.mkdir()
    (folder / "lies").mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(Path(__file__).read_text())
    return {"PYTHONPATH": ":".join([str(folder), product, *sys.path]), "PYTHONSAFEPATH": "1"}


def main() -> None:
    folder = Path(__file__).parents[1]
    sys.path.remove(str(folder))
    for lie in sorted((folder / "lies").iterdir()):
        with suppress(FileNotFoundError):  # another worker tells it
            lie.unlink()
            tell(lie.name.partition("-")[2])
    sys.modules.pop("workers", None)
    runpy.run_module("workers", run_name="__main__", alter_sys=True)


def tell(lie: str) -> None:
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    welcome, _ = link.receive() or ({}, -1)
    facts = {"model": "double", "is_stateful": False, "left_out": {}, "notes": []}
    if lie == "link junk":
        link.socket.send(b"\xc1")
    elif lie == "a descriptor":
        link.send({"beat": True}, os.memfd_create("lie"))
    elif lie == "beats without end":
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            link.send({"beat": True})
        link.send({"end": True})
    elif lie == "ready without a model":
        link.send({"phase": "load", "model": "double"})
        link.send({"ready": True})
    elif lie == "a model that nobody asked for":
        link.send(facts | {"model": "other"})
    elif lie == "a signature that is none":
        link.send({"signature": ["double", "s", {"inputs": 7}]})
    else:
        info = TensorInfo("float32", (-1, 1))
        link.send({"phase": "load", "model": "double"})
        link.send({"signature": ["double", "serving_default", Signature({"x": info}, {"y": info}).record()]})
        link.send(facts)
        link.send({"ready": True})
        answer(lie, welcome)
    while link.receive():
        pass
    os._exit(0)


def answer(lie: str, welcome: dict[str, object]) -> None:
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.connect(str(welcome["address"]))
    dealer.send(plain(Kind.JOIN, data=bytes(welcome["token"])))  # type: ignore[arg-type]
    _, _, _, count, number = BATCH.unpack_from(frame := dealer.recv())
    jobs = [*bodies(frame, BATCH.size)]
    while len(jobs) < count:
        jobs += bodies(dealer.recv())
    done = BATCH.pack(Kind.DONE, 0, 0, count, number)
    right = b"".join(failure(job.job, "ModelFailed", "no") for job in jobs)
    said = {
        "a short DONE": b"\x05",
        "no DONE": HEAD.pack(Kind.JOB, 0, 0, 0, 0, 0, 1, 1.0, 0.0),
        "an unknown batch": BATCH.pack(Kind.DONE, 0, 0, count, number + 7) + right,
        "too few answers": done,
        "too many answers": done + right + right,
        "another job's answer": done + b"".join(failure(job.job + 1, "ModelFailed", "no") for job in jobs),
        "an answer of no kind": done + HEAD.pack(Kind.RELEASED, 0, 0, 0, 0, 0, jobs[0].job, 0.0, 0.0),
        "an unknown error": done + b"".join(failure(job.job, "Nonsense", "no") for job in jobs),
        "half an answer": done + right[:-1],
    }
    dealer.send(said[lie])


if __name__ == "__main__":
    main()
