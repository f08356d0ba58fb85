"""The command line against two real pools, of which one may be away, frozen, or unable to serve."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from pool.cli.options import IMPATIENT
from support.commands import Done, in_process
from support.pool_process import PoolProcess
from support.processes import freeze
from support.several_pools import MODEL, started

pytestmark = pytest.mark.remote

HANG_S = 30.0
AWAY = "ipc:///nowhere/at/all.sock"


@pytest.fixture(scope="module")
def two() -> Iterator[list[PoolProcess]]:
    """Both have `echo`; each has one model of its own, and that of the second can't be loaded."""
    configs = [
        MODEL.format("echo", "echo", "") + MODEL.format(*own, "") for own in (("mine", "echo"), ("bad", "cannot-load"))
    ]
    with started(*configs) as pools:
        yield pools


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IMPATIENT, "connect_timeout", 1.0)


def command(*argv: str, pools: "list[str]") -> Done:
    began = time.monotonic()
    done = in_process(*argv, *(each for endpoint in pools for each in ("--endpoint", endpoint)))
    assert time.monotonic() - began < HANG_S
    return done


def addresses(pools: list[PoolProcess]) -> list[str]:
    return [pool.endpoint for pool in pools]


def lines(done: Done) -> "list[dict[str, object]]":
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("argv", "each"),
    [
        (["status"], "SERVING"),
        (["health"], "the pool serves: 1 of 1 slot READY"),
        (["explain"], ""),  # whatever ran there before
        (["placement", "echo", "--timeout", "20"], "echo in slot 0"),
        (["logs"], "ready: 1 of 1 slots serve"),
    ],
)
def test_each_is_shown_under_its_endpoint(two: list[PoolProcess], argv: list[str], each: str) -> None:
    names = addresses(two)
    done = command(*argv, pools=names)
    assert (done.status, done.err) == (0, "")
    shown = done.out.splitlines()
    titles = [shown.index(name) for name in names]
    assert titles == sorted(titles)
    assert shown[titles[1] - 1] == "", "an empty line stands between two pools"
    for begin, end in zip(titles, [*titles[1:], len(shown)], strict=True):
        assert each in "\n".join(shown[begin + 1 : end]), shown[begin:end]
    told = lines(command(*argv, "--json", pools=names))
    assert [line["endpoint"] for line in told] == names
    alone = command(*argv, "--json", pools=names[:1]).out
    if argv[0] != "logs":  # which has a line for each entry
        answer = told[0]["answer"]
        assert isinstance(answer, dict)
        assert answer.keys() == json.loads(alone).keys()
    assert [line["error"] for line in told] == [None, None]


@pytest.mark.parametrize("argv", [["status"], ["health"], ["explain"], ["placement", "echo"], ["logs"]])
def test_one_that_is_away_is_named_and_the_other_is_shown(two: list[PoolProcess], argv: list[str]) -> None:
    names = [AWAY, two[0].endpoint]
    done = command(*argv, pools=names)
    assert done.status == 0
    assert done.err.startswith(f"pool: {AWAY}: ")
    assert done.err.count("\n") == 1
    assert done.out.startswith(f"{names[1]}\n")
    away, there = lines(command(*argv, "--json", pools=names))
    assert (away["endpoint"], away["answer"]) == (AWAY, None)
    assert away["error"]
    assert there["answer"]


def test_what_all_have_together(two: list[PoolProcess]) -> None:
    names = [AWAY, *addresses(two)]
    found = json.loads(command("models", "--json", pools=names).out)
    assert {model["name"] for model in found} == {"echo", "mine", "bad"}
    assert command("wait", "--model", "mine", "--timeout", "20", pools=names).status == 0
    answer = command("submit", "mine", "--input", "x=[3]", "--json", pools=names)
    assert (answer.status, answer.err) == (0, "")
    assert json.loads(answer.out)["outputs"]["x"]["values"] == [3]
    refused = command("submit", "mine", "--input", "x=[3]", "--device", "cpu:0", pools=names)
    assert refused.status == 1
    assert "--endpoint" in refused.err


def test_health_is_that_of_one_that_can_serve(two: list[PoolProcess]) -> None:
    """And says which cannot."""
    names = addresses(two)
    done = command("health", "--model", "mine", pools=names)
    assert done.status == 0
    assert done.out == f"{names[0]}\nmine is served: 1 of 1 slot READY\n"
    assert done.err == f"pool: {names[1]}: this pool has no model 'mine'\n"
    none = command("health", "--model", "bad", pools=names)
    assert (none.status, none.out) == (1, "")
    assert all(name in none.err for name in names)
    serves = [line["answer"] for line in lines(command("health", "--model", "mine", "--json", pools=names))]
    assert [answer["serves"] for answer in serves if isinstance(answer, dict)] == [True, False]
    assert command("health", "--model", "bad", "--json", pools=names).status == 1


@pytest.mark.parametrize("clients", ["1", "2"])
def test_a_bench_measures_several_pools_as_one(two: list[PoolProcess], clients: str) -> None:
    argv = ("bench", "run", "echo", "--clients", clients, "--jobs", "200", "--warmup", "1s", "--json")
    before = [jobs_of(pool) for pool in two]
    done = command(*argv, pools=addresses(two))
    assert done.status == 0, done
    assert json.loads(done.out)["jobs"] >= 200
    assert all(after > former for after, former in zip(map(jobs_of, two), before, strict=True))


def jobs_of(pool: PoolProcess) -> int:
    with pool.client() as client:
        return sum(slot.jobs_done for slot in client.status().slots)


def test_a_frozen_one_delays_no_other_for_long(two: list[PoolProcess]) -> None:
    with frozen(two[1]):
        names = [two[1].endpoint, two[0].endpoint]
        began = time.monotonic()
        for argv in (["status"], ["health"]):
            done = command(*argv, pools=names)
            assert done.status == 0, done
            assert done.err.startswith(f"pool: {names[0]}: ")
        found = command("models", "--json", pools=names)
        assert {model["name"] for model in json.loads(found.out)} == {"echo", "mine"}
        assert command("submit", "mine", "--input", "x=[3]", pools=names).status == 0
        assert command("wait", "--model", "mine", "--timeout", "20", pools=names).status == 0
        assert time.monotonic() - began < HANG_S


@contextlib.contextmanager
def frozen(pool: PoolProcess) -> Iterator[None]:
    freeze(pool.pid)  # or it may still answer
    try:
        yield
    finally:
        os.kill(pool.pid, signal.SIGCONT)
