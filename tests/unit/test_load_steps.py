"""Which model is to blame for a worker that does not come up: what it wrote into its link, and how it ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.processes.deaths import death_of
from pool.wire.exits import Exit
from pool.wire.load_steps import LoadStep

MODEL, HANDLER = LoadStep("m@3", of_files=True), LoadStep("m", of_files=False)


@given(st.text(min_size=1), st.booleans())
def test_a_step_is_told_whole_and_is_never_an_end_of_file(model: str, of_files: bool) -> None:
    step = LoadStep(model, of_files) if model.isprintable() else LoadStep()
    assert step.pack() != b""
    assert LoadStep.unpack(step.pack()) == step


@given(st.binary(max_size=64))
def test_whatever_a_worker_writes_is_a_step_or_none(packet: bytes) -> None:
    assert isinstance(LoadStep.unpack(packet).model, str)


@pytest.mark.parametrize(
    ("returncode", "by_us", "step", "blamed", "unloadable"),
    [
        (Exit.MODEL_CANNOT_LOAD, False, MODEL, "m@3", True),
        (Exit.MODEL_CANNOT_LOAD, False, HANDLER, "m", False),
        (Exit.MODEL_CANNOT_LOAD, False, LoadStep(), None, False),  # a library that [tensorflow] names, say
        (-9, True, MODEL, "m@3", False),  # it took too long
        (-9, False, MODEL, None, False),  # the machine's memory, which is no model's
        (-11, True, MODEL, None, False),
        (Exit.LOAD_FAILED, False, MODEL, None, False),
        (Exit.STOPPED, False, MODEL, None, False),
    ],
)
def test_a_model_is_blamed_for_what_is_its_own(
    returncode: int, by_us: bool, step: LoadStep, blamed: str | None, unloadable: bool
) -> None:
    death = death_of(returncode, ("model other: a line of the log names nobody",), by_us, step)
    assert (death.blamed, death.unloadable) == (blamed, unloadable)


@pytest.mark.parametrize(
    ("returncode", "by_us", "step", "loading"),
    [
        (-11, False, MODEL, "m@3"),
        (-9, False, MODEL, "m@3"),
        (-9, True, HANDLER, "m"),
        (3, False, MODEL, "m@3"),  # what a library ends a process with
        (Exit.CRASHED, False, MODEL, "m@3"),
        (Exit.LOAD_FAILED, False, MODEL, "m@3"),
        (Exit.STOPPED, False, MODEL, None),
        (Exit.OTHER_RELEASE, False, MODEL, None),
        (Exit.PROCESS_UNUSABLE, False, MODEL, None),
        (-11, False, LoadStep(), None),  # between two models
    ],
)
def test_a_worker_that_ends_while_it_loads_is_known_to_have_been_at_that_model(
    returncode: int, by_us: bool, step: LoadStep, loading: str | None
) -> None:
    assert death_of(returncode, (), by_us, step).loading == loading


def test_a_load_that_failed_for_now_says_why() -> None:
    death = death_of(Exit.LOAD_FAILED, ("loading m", "model m: out of memory"), step=MODEL)
    assert death.text == "exit status 75 LOAD_FAILED: model m: out of memory"
    assert (death.restartable, death.loading) == (True, "m@3")
