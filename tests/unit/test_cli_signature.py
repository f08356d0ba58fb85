"""Which signature a command line means, and how long it waits for it."""

import pytest

from pool.cli import signature as module
from pool.cli.signature import chosen_signature, inputs_of
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.errors import DeadlineExceeded
from pool.wire.records import Model, SignatureInfo, Status, Tensor
from pool.wire.signatures import ModelInfo, Signature
from pool.wire.worker_messages import Phase
from simulation.driver import Driver
from support import told_pool

X = {"x": Tensor("int64", ())}
SIGNATURE = SignatureInfo({"x": Tensor("int64", ())}, {}, batchable=False, rows="", amiss=None)
INFO = ModelInfo("m", "stub:m", {"only": Signature(X, {})}, stateful=False)


class LoadingPool:
    """Has loaded the model `m` in slot 0 once it was asked `asks` times; until then that slot goes through `states`."""

    def __init__(self, asks: int, states: str = "LOADING") -> None:
        self._left = asks
        self._states = states.split()
        self._driver = Driver(["m"], ["other"])
        self._driver.start()
        self._driver.up(1)

    @property
    def pools(self) -> "tuple[LoadingPool, ...]":
        return (self,)

    endpoint = "ipc:///a"

    def models(self) -> tuple[Model, ...]:
        self._left -= 1
        if self._left < 0:
            self._become("READY")
        return told_pool.models(self._driver)

    def status(self) -> Status:
        self._become(self._states.pop(0) if len(self._states) > 1 else self._states[0])
        found = told_pool.status(self._driver)
        assert found.slots[1].state == "READY", "another slot's state is not asked for"
        return found

    def _become(self, state: str) -> None:
        if (driver := self._driver).state(0).name == state:
            return
        if driver.state(0) is SlotState.BACKOFF:
            driver.pass_time(0.2)
        if state != "STARTING" and driver.state(0) is SlotState.STARTING:
            driver.hello(0)
        match state:
            case "LOADING":
                driver.beat(0, Phase.IMPORTING)
                driver.now += 3.0
            case "BACKOFF":
                driver.die(0)
            case "FATAL":
                driver.die(0, "exit status 74 MODEL_CANNOT_LOAD", restartable=False)
            case "READY":
                driver.feed(told.WorkerReady(0, driver.incarnation(0), 1, (INFO,)))
        assert driver.state(0).name == state


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)


@pytest.mark.parametrize(
    ("names", "asked", "chosen"),
    [
        (["serving_default", "other"], None, "serving_default"),
        (["serving_default", "other"], "other", "other"),
        (["other"], None, "other"),
        (["other"], "serving_default", None),
        (["a", "b"], None, None),
        ([], None, None),
    ],
)
def test_the_signature_that_the_worker_will_choose(names: list[str], asked: str | None, chosen: str | None) -> None:
    found = chosen_signature(dict.fromkeys(names, SIGNATURE), asked)
    assert found == (None if chosen is None else (chosen, X))


def test_a_model_that_is_being_loaded_is_waited_for() -> None:
    assert inputs_of(LoadingPool(3, "STARTING LOADING BACKOFF"), "m", None, 20.0) == ("only", X)  # type: ignore[arg-type]


def test_a_model_that_will_not_be_loaded_is_left_to_the_pool() -> None:
    assert inputs_of(LoadingPool(99, "LOADING FATAL"), "m", None, 20.0) is None  # type: ignore[arg-type]


def test_an_unknown_model_is_left_to_the_pool() -> None:
    assert inputs_of(LoadingPool(0), "n", None, 20.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0.05, float("nan")])
def test_the_wait_has_an_end(timeout: float) -> None:
    with pytest.raises(DeadlineExceeded, match=r"slot 0: LOADING importing for 3 s"):
        inputs_of(LoadingPool(10**9), "m", None, timeout)  # type: ignore[arg-type]
