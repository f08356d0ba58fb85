"""Which signature a command line means, and how long it waits for it."""

from typing import Any

import pytest

from pool.cli import signature as module
from pool.cli.signature import chosen_signature, inputs_of
from pool.errors import DeadlineExceeded
from pool.wire.signatures import TensorSpec

INPUTS = {"x": {"dtype": "int64", "shape": []}}
SIGNATURE = {"inputs": INPUTS, "outputs": {}}
SPECS = {"x": TensorSpec("int64", ())}


class LoadingPool:
    """Has loaded the model `m` after being asked `asks` times; its slot goes through `states`."""

    def __init__(self, asks: int, states: str = "LOADING") -> None:
        self._left = asks
        self._states = states.split()

    def models(self) -> list[dict[str, Any]]:
        self._left -= 1
        return [{"name": "m", "slots": [0], "signatures": {} if self._left >= 0 else {"only": SIGNATURE}}]

    def status(self) -> dict[str, Any]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {"slots": [{"slot": 0, "state": state, "doing": "importing for 3 s"}, {"slot": 1, "state": "READY"}]}


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
    assert found == (None if chosen is None else (chosen, SPECS))


def test_a_model_that_is_being_loaded_is_waited_for() -> None:
    assert inputs_of(LoadingPool(3, "STARTING LOADING BACKOFF"), "m", None, 20.0) == ("only", SPECS)  # type: ignore[arg-type]


def test_a_model_that_will_not_be_loaded_is_left_to_the_pool() -> None:
    assert inputs_of(LoadingPool(99, "LOADING FATAL"), "m", None, 20.0) is None  # type: ignore[arg-type]


def test_an_unknown_model_is_left_to_the_pool() -> None:
    assert inputs_of(LoadingPool(0), "n", None, 20.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0.05, float("nan")])
def test_the_wait_has_an_end(timeout: float) -> None:
    with pytest.raises(DeadlineExceeded, match=r"slot 0: LOADING importing for 3 s"):
        inputs_of(LoadingPool(10**9), "m", None, timeout)  # type: ignore[arg-type]
