"""Property test, walks, simulation, golden runs and the benchmark of decisions speak to the core through one file."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DRIVER = TESTS / "simulation" / "core.py"
OF_UNITS = TESTS / "simulation" / "driver.py"  # the hand of the core's unit tests, which are in the core's own words
VALUES = {
    "policy",
    "versions",
    "fleet.SlotState",
    "trial.confinement",
    "queue.independence",
}  # what is configured, states of a slot, two bounds
INSIDE = {"_machine", "backlog", "fleet"}


def held() -> list[Path]:
    files = [*(TESTS / "simulation").rglob("*.py"), *(TESTS / "golden").rglob("*.py")]
    files += (TESTS / "walks").rglob("*.py")
    files += [TESTS / "property" / "test_core_machine.py", TESTS / "benchmarks" / "decisions.py"]
    return [path for path in files if path not in (DRIVER, OF_UNITS)]


def offences(source: str) -> list[str]:
    """What it imports of the core beside values, and where it looks into the core."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr in INSIDE:
            found.append(f"line {line}: .{node.attr}")
        for name in names:
            of_core = name == "pool.core" or name.startswith("pool.core.")
            if of_core and not any(f"{name}.".startswith(f"pool.core.{value}.") for value in VALUES):
                found.append(f"line {line}: {name}")
    return found


@pytest.mark.parametrize("path", held(), ids=lambda path: str(path.relative_to(TESTS)))
def test_it_knows_the_core_by_its_driver_alone(path: Path) -> None:
    assert not offences(path.read_text()), "speak to `simulation.core.Core`, in `simulation.words`"


def test_the_files_that_it_is_about_are_there() -> None:
    names = {path.name for path in held()}
    assert {"body.py", "ledger.py", "world.py", "books.py", "test_core_machine.py", "decisions.py"} <= names
    assert offences(DRIVER.read_text()), "nobody speaks to the core any more"


@pytest.mark.parametrize(
    "line",
    [
        "import pool.core.machine",
        "from pool.core import events as told",
        "from pool.core import actions",
        "from pool.core.machine import Machine",
        "from pool.core.jobs import Job",
        "world.core._machine.timers",
        "machine.backlog.jobs",
    ],
)
def test_it_sees_what_passes_the_driver_by(line: str) -> None:
    assert offences(line)


@pytest.mark.parametrize(
    "line", ["from pool.core.policy import Policy", "from pool.core.fleet import SlotState", "core.held()"]
)
def test_it_leaves_the_rest_alone(line: str) -> None:
    assert not offences(line)
