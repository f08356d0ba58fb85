"""A pool and its door under attack, beside an honest client that checks all the time what they promise."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from pool import Client
from support import liar
from support.doors import free_address, infer, listens
from support.machine import Figures
from support.pools import RunningPool, row, until

CONFIG = """
[pool]
devices = ["cpu", "cpu"]
[queue]
max_attempts = 100
[restart]
intensity = 1000
[[model]]
name = "double"
path = "stub:double"
batching = "on"
[[model]]
name = "wide"
path = "stub:double?width=20000"
[[model]]
name = "text"
path = "stub:echo?dtype=string"
[[model]]
name = "echo"
path = "stub:echo"
[[model]]
name = "slow"
path = "stub:double?sleep=0.02"
[door]
listen = "{http}"
grpc = "{grpc}"
max_body = "8MiB"
"""
LONGEST_S = 4.0  # that an honest job may take, on a busy machine


class Siege:
    """What an attack is given. Whatever raises in one is noticed."""

    def __init__(self, pool: RunningPool, client: Client, http: str, grpc: str, seed: int) -> None:
        self.pool, self.status, self._client, self.http, self.grpc = pool, client.status, client, http, grpc
        self.chance = random.Random(seed)
        self.kept = ExitStack()  # what an attack leaves open until the end
        self.counts: Counter[str] = Counter()
        self.lies = 0
        self.wrong: list[str] = []
        self.slowest: Counter[str] = Counter()  # by way, in ms
        self._is_over = threading.Event()
        until(lambda: listens(http), "the door is up")
        self.door = self.status()["door"]["pid"]
        assert infer(http).json()["outputs"][0]["data"] == [42.0], "the premise: all is well before"
        self._honest = threading.Thread(target=self._ask)

    def figures(self) -> dict[str, Figures]:
        return {"pool": Figures.of(self.pool.pid), "door": Figures.of(self.door)}

    def attack(self, attacks: Mapping[str, Callable[["Siege"], None]], seconds: float) -> dict[str, list[Figures]]:
        """In a random mix. The figures before, after a first part of the time, and at the end."""
        self._honest.start()
        began, figures = time.monotonic(), [self.figures()]
        with self.kept:
            while (spent := time.monotonic() - began) < seconds or not self.counts:
                if len(figures) == 1 and spent > seconds / 4:
                    figures.append(self.figures())
                name = self.chance.choice([*attacks])
                attacks[name](self)
                self.counts[name] += 1
                self.look()
        until(lambda: self.status()["clients"] <= 3 and not self.status()["queue"]["jobs"], "only the honest are left")
        until(lambda: self.deaths(self.status()) == 2 * self.lies, "the last liar's end")
        self.end()
        self.look()
        figures.append(self.figures())
        return {name: [each[name] for each in figures] for name in figures[0]}

    def look(self) -> None:
        assert self.pool.process.poll() is None, f"the pool has ended: {self.pool.log.read_text()[-2000:]}"
        assert not self.wrong, self.wrong[:3]
        late = {way: ms for way, ms in self.slowest.items() if ms > LONGEST_S * 1000}
        assert not late, f"honest jobs took so many ms: {late}"
        status = self.status()
        assert status["door"]["pid"] == self.door, "the door has ended"
        assert self.deaths(status) <= 2 * self.lies, f"others died than liars and those before: {status['deaths']}"
        assert "Traceback" not in self.pool.log.read_text(), "nothing raises where nobody expects it"

    @staticmethod
    def deaths(status: Any) -> int:
        return sum(sum(slot["deaths"].values()) for slot in status["slots"])

    def end(self) -> None:
        self._is_over.set()
        self._honest.join(60)
        assert not self._honest.is_alive(), "an honest job hangs"

    def _ask(self) -> None:
        began = time.monotonic()
        try:
            for way, came, right in self._jobs():
                self.slowest[way] = max(int((time.monotonic() - began) * 1000), self.slowest[way])
                self.counts[f"honest {way}"] += 1
                if not np.array_equal(came, right):
                    self.wrong.append(f"{way}: {came!r:.80} for {right!r:.80}")
                began = time.monotonic()
        except Exception as error:
            self.wrong.append(repr(error))

    def _jobs(self) -> Iterator[tuple[str, Any, Any]]:
        """After each answer: which way it came, the answer, and what is right."""
        wide, value = np.ones((1, 20_000), np.float32), 0
        with httpx.Client(base_url=f"http://{self.http}", timeout=60) as http:
            while not self._is_over.wait(0.002):
                value += 1
                yield "run", self._client.run("double", row(value))["y"].item(), 2 * value
                yield "wide", self._client.run("wide", {"x": wide * value})["y"], 2 * value * wide
                futures = self._client.submit_many("double", [row(value + n) for n in range(20)])
                yield "submit", [each.result()["y"].item() for each in futures], [2 * (value + n) for n in range(20)]
                text = str(value).encode()
                yield "text", self._client.run("text", {"x": np.array([text], object)})["y"], [text]
                tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [value]}
                answer = http.post("/v2/models/double/infer", json={"inputs": [tensor]}).json()
                yield "http", answer["outputs"][0]["data"] if "outputs" in answer else answer, [2 * value]


@contextmanager
def siege(folder: Path, seed: int, product: str = "") -> Iterator[Siege]:
    """`product`: the folder of another one, to be attacked instead."""
    http, grpc = free_address(), free_address()
    pool = RunningPool(folder, CONFIG.format(http=http, grpc=grpc), liar.environ(folder, product))
    try:
        pool.wait_for("ready:")
        with closing(Client(pool.endpoint, reconnect_timeout=1.0)) as client:
            made = Siege(pool, client, http, grpc, seed)
            yield made
            pool.kill()
            made.end()
    finally:
        pool.kill()
