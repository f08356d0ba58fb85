"""An attacker that speaks the protocol, beside an honest client: each of its jobs ends rightly and in time.

`pytest -m attacker` attacks for ten minutes with a seed that is printed, and then pools with a check taken out, each of
which it must notice. $ATTACKER_SEED sets the seed and $ATTACKER_S the length; a failure names its scene, and
$ATTACKER_SCENE plays that one alone.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from attacker import honest
from attacker.attack import SCENES, Attack, play
from attacker.books import Books
from attacker.mutants import MUTANTS, PACKAGE
from attacker.target import CONFIG, ENVIRON, MODELS, Stage, Target
from faults.evidence import kept
from pool import errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

SEED = "20261122"
ROUND_S = 6.0
QUIET_S = 3.0
LONGER_S = 200.0  # a busy machine plays fewer scenes
LOOK_S = 0.1
NOTICED_S = 180.0
END_S = 60.0


def configuration() -> str:
    return stub_config('listen = ["tcp://127.0.0.1:*"]\nlanes = 2', models=MODELS, rest=CONFIG)


def stage_of(pool: PoolProcess, status: Any) -> Stage:
    listening = re.search(r"listening at (tcp://\S+) too", pool.text())
    assert listening is not None
    target = Target(pool.endpoint, listening[1], f"{pool.endpoint}.workers", f"{pool.socket}.memory")
    return Stage(target, zmq.Context.instance(), status)


class Honest:
    """The honest client's process, and what it reports."""

    def __init__(self, process: "subprocess.Popen[bytes]", report: Path) -> None:
        self.process = process
        self._report = report

    def jobs(self) -> list[dict[str, Any]]:
        """All that have ended."""
        return [json.loads(line) for line in self._report.read_text().split("\n")[:-1]]

    def check(self) -> None:
        """None of its jobs so far has ended wrongly, or late."""
        assert self.process.poll() is None, f"the honest client ended with {self.process.returncode}"
        for job in self.jobs():
            assert job["wrong"] is None, job
            assert job["took_s"] <= honest.TIMEOUT_S, job

    def finish(self) -> list[dict[str, Any]]:
        self.check()
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(END_S) == 0
        return self.jobs()


@contextmanager
def honest_client(pool: PoolProcess, folder: Path, seed: str) -> Iterator[Honest]:
    report = folder / "honest.jsonl"
    argv = [sys.executable, "-P", honest.__file__, pool.endpoint, str(report), seed]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE)
    try:
        eventually(lambda: report.exists() and report.read_text().count("\n") > 20, END_S)
        yield Honest(process, report)
    finally:
        process.kill()
        process.wait(10)
        assert process.stdin is not None
        process.stdin.close()


def p99_ms(jobs: list[dict[str, Any]], rounds: list[tuple[float, float]]) -> float:
    """Of the jobs that began and ended in one of these."""
    took = [
        job["took_s"]
        for job in jobs
        if any(began <= job["began"] and job["began"] + job["took_s"] <= ended for began, ended in rounds)
    ]
    assert took, "no job was sent in all of these rounds"
    return float(np.percentile(took, 99)) * 1000


def attack(pool: PoolProcess, folder: Path, seed: str, seconds: float) -> None:
    """Rounds with an attack and rounds without, in turn, for so long, and until each scene was played."""
    names = {scene.__name__ for scene in SCENES}
    rounds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    with kept(pool, folder, f"attacker, seed {seed}"), pool.client() as client:
        books = Books(pool, client)
        attackers = Attack(seed, stage := stage_of(pool, client.status))
        with honest_client(pool, folder, seed) as other:
            ends = time.monotonic() + seconds
            while (began := time.monotonic()) < ends or (began < ends + LONGER_S and attackers.played.keys() != names):
                with attackers.round():
                    while time.monotonic() < began + ROUND_S:
                        books.look()
                        other.check()
                        attackers.check()
                        time.sleep(LOOK_S)
                rounds[True].append((began, time.monotonic()))
                books.after()
                began = time.monotonic()
                while time.monotonic() < began + QUIET_S:
                    other.check()
                    time.sleep(LOOK_S)
                rounds[False].append((began, time.monotonic()))
            jobs = other.finish()
        books.close()
    kinds = Counter(job["kind"] for job in jobs)
    print(  # noqa: T201  # `pytest -s` shows it
        f"\nattacker, seed {seed}: {attackers.sent} messages in {attackers.played.total()} scenes,"
        f" {dict(attackers.played)}; {len(jobs)} jobs of an honest client, {dict(kinds)},"
        f" p99 {p99_ms(jobs, rounds[True]):.1f} ms beside {p99_ms(jobs, rounds[False]):.1f} ms without an attack;"
        f" most held {[f'{what} {size >> 20} MiB' for what, size in books.most_bytes.items()]},"
        f" after each round {[size >> 20 for size in books.after_bytes]} MiB"
    )
    assert stage.lent, "nobody was lent anything"
    assert len(kinds) == 5, kinds
    assert attackers.played.keys() == names


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_an_attacker_harms_nobody(tmp_path: Path) -> None:
    with pool_process(configuration(), ENVIRON) as pool:
        attack(pool, tmp_path, SEED, 54.0)


@pytest.mark.attacker
@pytest.mark.timeout(1500)
def test_an_attacker_harms_nobody_for_minutes(tmp_path: Path) -> None:
    seed = os.environ.get("ATTACKER_SEED") or secrets.token_hex(4)
    with pool_process(configuration(), ENVIRON) as pool:
        if number := os.environ.get("ATTACKER_SCENE"):
            with kept(pool, tmp_path, f"scene {number} of seed {seed}"), pool.client() as client:
                print(play(seed, number, stage_of(pool, client.status)))  # noqa: T201
            return
        attack(pool, tmp_path, seed, float(os.environ.get("ATTACKER_S", "600")))


@pytest.mark.parametrize("check", MUTANTS)
def test_each_check_stands_where_it_is_said_to(check: str) -> None:
    mutant = MUTANTS[check]
    source = (PACKAGE / mutant.file).read_text()
    compile(mutant.applied_to(source), mutant.file, "exec")


@pytest.mark.attacker
@pytest.mark.parametrize("check", MUTANTS)
@pytest.mark.timeout(400)
def test_it_notices_a_check_that_is_missing(check: str, tmp_path: Path) -> None:
    pool = PoolProcess(configuration(), {**ENVIRON, **MUTANTS[check].planted(tmp_path)})
    began = time.monotonic()
    try:
        pool.start().await_ready()
        with pytest.raises((AssertionError, errors.PoolError)) as noticed:
            attack(pool, tmp_path, SEED, NOTICED_S)
    finally:
        pool.kill()
    first = str(noticed.value).partition("\n")[0]
    print(f"\n{check}: noticed after {time.monotonic() - began:.0f} s: {first:.300}")  # noqa: T201
