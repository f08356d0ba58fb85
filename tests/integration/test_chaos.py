"""Workers, doors and pools are killed, frozen and stopped, models and GPUs change, under clients that come and go.

CHAOS_SEED, CHAOS_SECONDS.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pool import Client, errors
from support.doors import free_address, infer
from support.machine import Disk, Figures, cards
from support.pools import RunningPool, StartPool

SECONDS = float(os.environ.get("CHAOS_SECONDS", "240"))
CONFIG = """
[pool]
devices = "auto"
drain_timeout = "2s"
watch = "200ms"
[queue]
max_attempts = 6
[health]
hung_after = "3s"
import_timeout = "10s"
[restart]
intensity = 1000
[[model]]
name = "double"
path = "stub:double?sleep=0.002"
batching = "on"
[[model]]
name = "plain"
path = "stub:double"
[[model]]
name = "wide"
path = "stub:double?width=20000"
batching = "on"
[[model]]
name = "versions"
path = "stub:{folder}/versions"
replicas = "all"
batching = "on"
[[model]]
name = "count"
path = "stub:count?log={folder}/counted"
[door]
listen = "{address}"
"""
MORE = """
[[model]]
name = "more{number}"
path = "stub:double"
"""
WIDTH = {"wide": 20_000}
BLOWS = ("worker", "worker", "worker", "frozen worker", "door", "door", "frozen door", "pool", "stop", "frozen pool")
CHANGES = (
    "a good version",
    "a bad version",
    "the same version again",
    "a lost GPU",
    "a found GPU",
    "reload",
    "restart",
    "drain",
    "undrain",
)


class Chaos:
    def __init__(self, start_pool: StartPool, told: Callable[..., None], folder: Path, seed: int) -> None:
        self.address, self.start_pool, self.told = free_address(), start_pool, told
        self.config = CONFIG.format(folder=folder, address=self.address)
        self.disk, self.version = Disk(folder / "versions"), 0
        self.write("double?times=1")
        told(*cards(3))
        self.pool: RunningPool = start_pool(self.config)
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.figures: list[Figures] = []  # of each pool at its end
        self.written: set[float] = set()
        self.values = iter(range(1, 1 << 24))
        self.lock = threading.Lock()

    def strike(self) -> None:
        """One blow, and the next pool where it ended this one."""
        what = self.random.choice((*BLOWS, *CHANGES, "a good version", "reload"))
        self.counts[what] += 1
        workers, doors = self.children(is_door=False), self.children(is_door=True)
        match what:
            case "door" if doors:
                os.kill(doors[0], signal.SIGKILL)
            case "frozen door" if doors:
                os.kill(doors[0], signal.SIGSTOP)
                time.sleep(self.random.random())
                os.kill(doors[0], signal.SIGCONT)
            case "worker" | "frozen worker" if workers:
                os.kill(self.random.choice(workers), signal.SIGKILL if what == "worker" else signal.SIGSTOP)
            case "frozen pool":
                os.kill(self.pool.pid, signal.SIGSTOP)
                time.sleep(self.random.random())
                os.kill(self.pool.pid, signal.SIGCONT)
            case "pool" | "stop":
                with suppress(OSError):
                    self.figures.append(Figures.of(self.pool.pid))
                self.pool.kill() if what == "pool" else self.pool.stop()
                self.pool.log.unlink()
                self.pool = self.start_pool(self.config, wait=False, folder=self.pool.folder)
            case "a good version":
                self.write(f"double?times={self.version + 1}")
            case "a bad version":
                self.write(self.random.choice(("double?load=fail", "double?load=kill", "no such stub")))
            case "the same version again":
                for file in self.disk.folder.glob("*/model.stub"):
                    file.write_text(file.read_text() + " ")
            case "a lost GPU":
                self.told(*cards(3, 1))
            case "a found GPU":
                self.told(*cards(3))
            case "reload":
                path = self.pool.folder / "config.toml"
                path.write_text(self.config + MORE.format(number=self.random.randrange(3)))
                self.change(lambda client: client.reload(timeout=20))
            case "restart":
                self.change(lambda client: client.restart(timeout=20))
            case "drain" | "undrain":
                self.change(lambda client: getattr(client, what)(0, timeout=20))

    def children(self, is_door: bool) -> list[int]:
        found = []
        for pid in self.pool.workers():
            with suppress(OSError):
                if (b"\0door\0" in Path(f"/proc/{pid}/cmdline").read_bytes()) == is_door:
                    found.append(pid)
        return found

    def write(self, text: str) -> None:
        self.version += 1
        self.disk.write(self.version, text)

    def change(self, ask: Callable[[Client], object]) -> None:
        """In a thread, since the next blow may be one to the pool."""

        def run() -> None:
            try:
                with Client(self.pool.endpoint) as client:
                    ask(client)
                self.counts["changes done"] += 1
            except errors.PoolError as error:
                self.counts[f"changes {type(error).__name__}"] += 1

        threading.Thread(target=run, daemon=True).start()

    def live(self, seed: int, until_: float) -> None:
        """A client after another, each with jobs of all kinds."""
        draw = random.Random(seed)
        while time.monotonic() < until_:
            try:
                client = Client(self.pool.endpoint)
            except errors.PoolUnreachable:  # a new client does not wait for a pool
                time.sleep(0.05)
                continue
            with client:
                for _ in range(draw.randint(1, 20)):
                    self.jobs(client, draw)

    def live_over_http(self, until_: float) -> None:
        """What a door does not answer that was killed, or whose pool was, it says; then it is sent again."""
        value = 1
        while time.monotonic() < until_:
            try:
                answer = infer(self.address, value)
            except httpx.TransportError:
                answer = httpx.Response(503)
            if answer.status_code == 503:
                self.counts["http sent again"] += 1
                time.sleep(0.02)
            elif answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [2 * value]:
                self.counts["http answered"] += 1
                value += 1
            else:
                self.wrong.append(f"http {value}: {answer.status_code} {answer.text:.200}")

    def jobs(self, client: Client, draw: random.Random) -> None:
        model = draw.choice(("double", "plain", "wide", "count", "versions", "versions"))
        with self.lock:
            values = [float(next(self.values)) for _ in range(draw.choice((1, 5, 50)))]
        rows = [{"x": np.full((1, WIDTH.get(model, 1)), value, np.float32)} for value in values]
        if draw.random() < 0.3:
            self.check(model, values[0], lambda: client.run(model, rows[0]))
            return
        futures = client.submit_many(model, rows)
        if draw.random() < 0.1:
            for future in futures[1:]:
                future.cancel()
            futures, values = futures[:1], values[:1]
        for value, future in zip(values, futures, strict=True):
            self.check(model, value, lambda future=future: future.result(70))  # type: ignore[misc]

    def check(self, model: str, value: float, call: Any) -> None:
        try:
            result = call()
        except Exception as error:
            self.counts[type(error).__name__] += 1
            is_lost = model == "count" and isinstance(error, errors.WorkerLost) and not error.retryable
            if not is_lost and not isinstance(error, errors.Overloaded):
                self.wrong.append(f"{model} {value}: {error!r}")
            return
        self.counts[f"{model} answered"] += 1
        if model == "count":
            self.written.add(value)
        elif not (result["y"] == (int(result.version.partition("+")[0]) if model == "versions" else 2) * value).all():
            self.wrong.append(f"{model} {result.version} {value}: {result['y']}")


@pytest.mark.chaos
@pytest.mark.timeout(SECONDS + 200)
def test_nothing_is_lost_doubled_or_wrong(start_pool: StartPool, told: Callable[..., None], tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 1_000_000)))
    print(f"CHAOS_SEED={seed} CHAOS_SECONDS={SECONDS:g}")
    chaos = Chaos(start_pool, told, tmp_path, seed)
    ends, before = time.monotonic() + SECONDS, Figures.of(os.getpid())
    threads = [threading.Thread(target=chaos.live, args=[seed + number, ends]) for number in range(4)]
    threads.append(threading.Thread(target=chaos.live_over_http, args=[ends]))
    for thread in threads:
        thread.start()
    while time.monotonic() < ends:
        time.sleep(chaos.random.uniform(0.2, 2.0))
        chaos.strike()
    for thread in threads:
        thread.join(100)
    chaos.figures.append(Figures.of(chaos.pool.pid))
    most, after = Figures(*map(max, zip(*chaos.figures, strict=True))), Figures.of(os.getpid())
    print(dict(chaos.counts), f"pools at most {most}, this process from {before} to {after}")
    assert not any(thread.is_alive() for thread in threads), "a job hangs"
    assert not chaos.wrong, chaos.wrong[:10]
    runs = Counter(float(line.split()[1]) for line in (tmp_path / "counted").read_text().splitlines())
    assert set(runs.values()) == {1}, "a stateful job ran twice"
    assert chaos.written <= set(runs), "an answer without a run"
    assert most.mib < 200
    assert most.descriptors < 300
    assert after.descriptors < before.descriptors + 50
    assert after.threads < before.threads + 25, "those that wait for changes"
    met = ["double answered", "count answered", "versions answered", "http answered", "door", "pool", "worker"]
    met += ["changes done", "a good version"]
    assert min(chaos.counts[name] for name in met) > SECONDS / 80, chaos.counts
