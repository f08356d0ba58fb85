"""Each promise is proven by tests that run by default, whatever subject their files belong to."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
PROMISES = {
    1: "every submit() ends in bounded time, whatever dies, the pool included",
    2: "each job is answered exactly once, with what the model alone would have answered",
    3: "a bad job never hurts another",
    4: "no orphan, and the device's memory is free before the next worker touches it",
    5: "no message can end or stall the pool or a worker",
    6: "every byte that a client makes the pool hold is on that client's account",
    7: "what runs where is provable",
}


def proofs() -> set[int]:
    """The numbers that tests are marked with."""
    files = TESTS.rglob("test_*.py")
    return {int(number) for path in files for number in re.findall(r"mark\.promise\((\d+)\)", path.read_text())}


def test_each_promise_is_proven() -> None:
    assert proofs() == set(PROMISES)


def test_a_proof_runs_by_default_whatever_else_its_file_is_marked_with() -> None:
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "-m 'promise or not (" in settings["addopts"]
