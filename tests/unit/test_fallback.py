"""What makes way when the pool starts, and what is served instead."""

import pytest

from pool.core.actions import SlotChanged
from pool.core.slots import SlotState
from pool.plan.fallback import unloadable

SAID = "exit status 74 MODEL_CANNOT_LOAD: model m@3: /models/m/3 is no SavedModel"


@pytest.mark.parametrize(
    ("state", "reason", "name"),
    [
        (SlotState.FATAL, SAID, "m@3"),
        (SlotState.FATAL, "exit status 74 MODEL_CANNOT_LOAD: model m, handler h:H: it cannot be made", None),
        (SlotState.FATAL, "exit status 74 MODEL_CANNOT_LOAD: op_libraries of [session]: a.so is no file", None),
        (SlotState.FATAL, "6 deaths in a row, the last: SIGSEGV", None),
        (SlotState.FATAL, "", None),
        (SlotState.BACKOFF, SAID, None),
    ],
)
def test_only_a_worker_that_names_a_model_blames_one(state: SlotState, reason: str, name: str | None) -> None:
    assert unloadable(SlotChanged(0, 1, state, reason)) == name
