"""The sketch of the kernel: jobs, the death of a worker, clients that go."""

import json
import os
import signal
from pathlib import Path

import numpy as np

import workers.demo
from pool.client.client import Client

SEVEN = Path(workers.demo.__file__).with_name("seven.json")


def test_the_demo_reads_a_seven(client: Client) -> None:
    pixels = np.array([json.loads(SEVEN.read_text())[0]], np.float32)
    assert client.run("digits", {"pixels": pixels})["label"].tolist() == [7]


def test_no_job_is_lost_with_its_worker(pool: tuple[str, int], client: Client) -> None:
    pixels = np.array([json.loads(SEVEN.read_text())[0]], np.float32)
    client.run("digits", {"pixels": pixels})
    (worker,) = [int(pid) for pid in Path(f"/proc/{pool[1]}/task/{pool[1]}/children").read_text().split()]
    futures = [client.submit("digits", {"pixels": pixels}) for _ in range(1000)]
    os.kill(worker, signal.SIGKILL)
    assert [future.result(60)["label"].tolist() for future in futures] == [[7]] * 1000


def test_a_client_that_leaves_costs_nobody_anything(pool: tuple[str, int], client: Client) -> None:
    pixels = np.zeros((1, 64), np.float32)
    other = Client(pool[0])
    futures = [other.submit("digits", {"pixels": pixels}) for _ in range(100)]
    futures[0].result(60)
    other._connection.link.close()
    assert client.run("digits", {"pixels": pixels})["label"].shape == (1,)
