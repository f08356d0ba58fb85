"""A client that never reads its answers: dropped, told so, and it costs the pool no more than the bounds say."""

import os
import time
from pathlib import Path

import numpy as np
import zmq

from pool.client.payload import encode_call
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, encode
from support.asked import Asked, framed
from support.pool_process import pool_process, stub_config

MIB = 1 << 20
CREDIT = 8 * MIB
SPLIT_MODEL = """
[[model]]
name = "rows"
path = "stub:rows"
batching = true
devices = "all"
max_batch = 16384
"""


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_answers_in_pieces_that_nobody_reads_fill_no_memory() -> None:
    """Each job of 1 MiB is run in 16 pieces; the client is sent many times the credit."""
    rows, payload = encode_call("rows", {"x": np.zeros(MIB // 4, np.float32)})
    config = stub_config(models=SPLIT_MODEL, rest=f"[queue]\nmax_bytes = {CREDIT}\nclient_max_bytes = {CREDIT}\n")
    with (
        pool_process(config) as pool,
        pool.client() as polite,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as dealer,
    ):
        dealer.linger = 0
        dealer.rcvhwm = 1
        dealer.connect(pool.endpoint)
        dealer.send_multipart(encode(wire.Open("never reads"), NO_INSTANCE))
        instance = dealer.recv_multipart()[0][6:14]
        unread = 0
        before = most = rss_bytes(pool.pid)
        deadline = time.monotonic() + 60.0
        job = 0
        while "the pool dropped this client because it does not read its answers" not in pool.text():
            assert time.monotonic() < deadline, pool.text()
            job += 1
            asked = Asked(job, "rows", "double", ("y",), rows, 30.0, 0, None, 0, False)
            dealer.send_multipart(framed(asked, instance, payload))
            told = polite.status()  # in turn with the pool, so that most jobs find room
            most = max(most, rss_bytes(pool.pid))
            unread = max(unread, told.unread_bytes)
        # What waits to run, and what is not read, libzmq's part with it; and as much again for what the allocator
        # keeps. It was 164 MiB while libzmq's part was counted in messages.
        assert most - before < 4 * CREDIT
        assert unread > CREDIT // 2, "and the status tells of it"
        assert polite.run("rows", np.ones(2, np.float32), signature="double")["y"].tolist() == [2.0, 2.0]
