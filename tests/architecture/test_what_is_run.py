"""What runs by default proves each promise; what it leaves out is run by `.ci/run`, but for what takes hours."""

import os
import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
SETTINGS = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
README = (TESTS.parent / "README.md").read_text()
WHEN_ASKED_FOR = {"endurance", "chaos", "fuzz", "attacker"}


def subjects(expression: str) -> set[str]:
    return set(expression.split(" or "))


def left_out() -> set[str]:
    found = re.search(r"-m 'promise or not \((.*)\)'", SETTINGS["addopts"])
    assert found, "a proof runs by default, whatever else its file is marked with"
    return subjects(found[1])


def test_each_promise_is_proven() -> None:
    """`pytest.mark.promise` has the number that the README gives it."""
    promises = README.split("## What it guarantees\n")[1].split("\n## ")[0]
    promised = {int(number) for number in re.findall(r"^(\d+)\. ", promises, re.MULTILINE)}
    assert promised
    files = TESTS.rglob("test_*.py")
    proven = {int(number) for path in files for number in re.findall(r"mark\.promise\((\d+)\)", path.read_text())}
    assert proven == promised


def test_what_the_default_leaves_out_is_run_elsewhere() -> None:
    (in_ci,) = re.findall(r"pytest -m '(.*)'", (TESTS.parent / ".ci" / "run").read_text())
    assert subjects(in_ci) == left_out() - WHEN_ASKED_FOR
    declared = {line.partition("(")[0].partition(":")[0] for line in SETTINGS["markers"]}
    assert declared == left_out() | {"tensorflow", "gpu", "promise"}


def test_each_process_of_a_run_has_a_runtime_folder_of_its_own() -> None:
    folder = Path(os.environ["XDG_RUNTIME_DIR"])
    assert folder.name.startswith(f"pt-run-{os.getpid()}-")
    assert folder.is_dir()
