"""How a load is shared by several clients, and what becomes of one that dies."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import pytest

from pool import Client
from pool.bench.child import Child, Told
from pool.bench.fleet import connected
from pool.bench.load import BenchJob, Load
from pool.bench.point import NotMeasured, Point

JOB = BenchJob("m", "s", [{"x": np.ones(2)}])
NOBODY = cast(Client, None)


class Heard(ExitStack):
    """A client that keeps its orders, and answers one job of each."""

    made: "list[Heard]"

    def __init__(self, who: str, argv: list[str], told: Told) -> None:
        super().__init__()
        self.who, self.argv, self._told = who, argv, told
        self.orders: list[Mapping[str, Any]] = []
        self.made.append(self)

    def ask(self, order: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        assert timeout_s > 0
        self.orders.append(order)
        return {"ready": True}

    def tell(self, order: Mapping[str, Any]) -> None:
        self.orders.append(order)
        if "load" in order:
            begin = order["begin"]
            self._told.put({"sent": [[begin, begin]], "answers": [[begin, begin + 0.001, "", "", [], 0]]})
        else:
            self._told.put({"sent": [], "answers": [], "ended": 0.1 * len(self.made)})


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Heard]:
    monkeypatch.setattr(Heard, "made", [], raising=False)
    monkeypatch.setattr("pool.bench.fleet.Child", Heard)
    return Heard.made


def run(load: Load) -> Point:
    with connected(NOBODY, 3, ["ipc:///a"], JOB) as submit:
        return submit(load, lambda *_: None)


def test_jobs_in_flight_are_shared(heard: list[Heard]) -> None:
    point = run(Load(in_flight=8, duration_s=0.05))
    assert [client.who for client in heard] == [f"client {number} of 3" for number in range(3)]
    assert all(client.orders[0] == {"endpoints": ["ipc:///a"], "job": JOB.packed()} for client in heard)
    shares = [client.orders[1]["load"][0] for client in heard]
    assert (sum(shares), min(shares), max(shares)) == (8, 2, 3)
    assert [client.orders[1]["first"] for client in heard] == [0, 1, 2], "each begins with another job"
    assert len({client.orders[1]["begin"] for client in heard}) == 1
    assert all(client.orders[2:] == [{"stop": True}] for client in heard)
    assert (point.jobs, point.early) == (3, "")
    assert point.cpu_share == pytest.approx(0.3)


@pytest.mark.parametrize("seed", [None, 5])
def test_arrivals_are_dealt_out(heard: list[Heard], seed: int | None) -> None:
    load = Load(rate=200.0, duration_s=0.5, timeout_s=1.0, seed=seed)
    point = run(load)
    shares = [client.orders[1]["load"][1] for client in heard]
    assert sorted(instant for share in shares for instant in share) == list(load.arrivals())
    assert min(map(len, shares)) > 20
    assert (point.due, point.sent) == (3, 3)


def test_a_client_that_fails_ends_it(heard: list[Heard], monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: Heard, order: Mapping[str, Any]) -> None:
        self._told.put({"failed": f"{self.who} died (SIGKILL)"} if "load" in order else {"ended": 0.0})

    monkeypatch.setattr(Heard, "tell", tell)
    assert run(Load(in_flight=3, duration_s=60.0)).early == "client 0 of 3 died (SIGKILL)"
    assert len(heard) == 3


def test_a_process_that_dies_says_how_and_its_last_words() -> None:
    with Child("client 0 of 2", ["no_such_module"], Told()) as child, pytest.raises(NotMeasured) as caught:
        child.ask({}, 30.0)
    assert str(caught.value).startswith("client 0 of 2 died (exit status 1): ")
    assert str(caught.value).endswith("No module named no_such_module")
