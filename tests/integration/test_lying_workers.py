"""Workers that say what no worker says: it costs them their life, and the pool serves on by the next one."""

import sys
from pathlib import Path

import numpy as np
import zmq

from support.pools import StartPool, until
from support.raw import RawClient, job

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
    "ready without a model",
    "a model that nobody asked for",
    "a signature that is none",
)
CONFIG = """
[pool]
devices = ["cpu"]
lanes = 1
[queue]
max_attempts = 100
[restart]
intensity = 100
[[model]]
name = "double"
path = "stub:double"
"""
LIAR = """
import os, runpy, socket, sys
sys.path.remove({folder!r})
with open({folder!r} + "/told", "a+") as told:
    told.seek(0)
    number = len(told.readlines())
    if number == len({lies!r}):  # the last one is honest
        sys.modules.pop("workers", None)
        runpy.run_module("workers", run_name="__main__", alter_sys=True)
        os._exit(0)
    lie = {lies!r}[number]
    print(lie, file=told)

import zmq
from pool.wire.bodies import BATCH, HEAD, Kind, bodies, failure, join, pack
from pool.wire.link import Link
from pool.wire.signatures import Signature

link = Link(socket.socket(fileno=int(sys.argv[1])))
welcome = link.receive()[0]
link.receive()
record = Signature({{}}, {{}}).record()
facts = {{"model": "double", "is_stateful": False, "left_out": {{}}, "notes": []}}
if lie == "link junk":
    link.socket.send(b"\\xc1")
elif lie == "ready without a model":
    link.send({{"phase": "load", "model": "double"}})
    link.send({{"ready": True}})
elif lie == "a model that nobody asked for":
    link.send(facts | {{"model": "other"}})
elif lie == "a signature that is none":
    link.send({{"signature": ["double", "s", {{"inputs": 7}}]}})
else:
    link.send({{"phase": "load", "model": "double"}})
    link.send({{"signature": ["double", "serving_default", record]}})
    link.send(facts)
    link.send({{"ready": True}})
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.connect(welcome["address"])
    dealer.send(join(welcome["token"]))
    _, _, _, count, number = BATCH.unpack_from(frame := dealer.recv())
    (job,) = bodies(frame, BATCH.size)
    done = BATCH.pack(Kind.DONE, 0, 0, 1, number)
    answer = failure(job.job, "ModelFailed", "no")
    dealer.send({{
        "a short DONE": b"\\x05",
        "no DONE": HEAD.pack(Kind.JOB, 0, 0, 0, 0, 0, 1, 1.0, 0.0),
        "an unknown batch": BATCH.pack(Kind.DONE, 0, 0, 1, number + 7) + answer,
        "too few answers": done,
        "too many answers": done + answer + answer,
        "another job's answer": done + failure(job.job + 1, "ModelFailed", "no"),
        "an answer of no kind": done + HEAD.pack(Kind.RELEASED, 0, 0, 0, 0, 0, job.job, 0.0, 0.0),
        "an unknown error": done + failure(job.job, "Nonsense", "no"),
        "half an answer": done + answer[:-1],
    }}[lie])
link.socket.settimeout(None)
link.receive()
link.receive()
"""


def test_a_lie_costs_a_worker_its_life(start_pool: StartPool, tmp_path: Path) -> None:
    """Each worker tells another lie. One job outlives them all."""
    package = tmp_path / "workers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(LIAR.format(folder=str(tmp_path), lies=LIES))
    pool = start_pool(CONFIG, wait=False, PYTHONPATH=":".join([str(tmp_path), *(each for each in sys.path if each)]))
    pool.wait_for("starting")
    client = RawClient(pool.endpoint)
    client.socket.zmq.setsockopt(zmq.RCVTIMEO, 60_000)
    client.send(job(1, "double", seconds=50, x=np.full((1, 1), 2, np.float32)))
    assert client.ends(1)[1]["y"].tolist() == [[4.0]], (tmp_path / "told").read_text()
    client.close()
    assert (tmp_path / "told").read_text().splitlines() == [*LIES]
    until(lambda: pool.log.read_text().count("it said what no worker says") >= len(LIES), "the reasons in the log")
