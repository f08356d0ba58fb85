"""The README says what is so: its commands are those that CI runs, its tables those of the code."""

import re
from pathlib import Path

import pytest

from pool import errors
from pool.core.fleet import SLOT_STEPS, WORKER_STEPS, Role, SlotState, WorkerState
from pool.wire.client_messages import CLIENT_MESSAGES
from pool.wire.exits import Exit
from pool.wire.frames import VERSION
from pool.wire.worker_messages import WORKER_MESSAGES

MESSAGES = {**CLIENT_MESSAGES, **WORKER_MESSAGES}

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()


def ci_command(name: str) -> str:
    found = re.search(rf"^# readme: {name}\n(.*)\n# end$", CI, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["start", "test"])
def test_the_commands_are_the_ones_that_ci_runs(name: str) -> None:
    assert f"\n    {ci_command(name)}\n" in README


def test_every_slot_state_and_step_is_drawn() -> None:
    for state in SlotState:
        assert f"| {state.name} | {state.value} |" in README
    for state, steps in SLOT_STEPS.items():
        following = ", ".join(sorted(step.name for step in steps))
        assert f"{state.name:<9}→ {following}" in README


def test_every_worker_state_step_and_role_is_drawn() -> None:
    for member in (*WorkerState, *Role):
        assert f"| {member.name} | {member.value} |" in README
    for state, steps in WORKER_STEPS.items():
        following = ", ".join(sorted(step.name for step in steps))
        assert f"{state.name:<12}→ {following}".rstrip() in README


def test_every_message_has_its_number() -> None:
    assert f"version {VERSION}" in README
    for number, message in MESSAGES.items():
        assert f"| {number} | {message.__name__} |" in README


def test_every_error_is_explained() -> None:
    for name in errors.__all__:
        assert name == "from_fault" or f"`{name}`" in README, name


def test_every_exit_status_is_listed() -> None:
    for status in Exit:
        assert f"| {status.value} | {status.name} |" in README


def test_no_file_stands_beside_the_fixed_top_level() -> None:
    allowed = {"pyproject.toml", "pool", "workers", "tests", "config.toml", "README.md", "LICENSE"}
    built = {"build", "tf_worker_pool.egg-info"}
    found = {entry.name for entry in ROOT.iterdir() if not entry.name.startswith(".")}
    assert found - built <= allowed
