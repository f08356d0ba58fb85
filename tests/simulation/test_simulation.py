"""The scheduler with 1,000 slots, 200 models and 10,000 clients (`-m long`), and with a few. It prints its figures."""

from functools import partial

import pytest

from core.mutants import core
from simulation.mutants import MUTANTS
from simulation.simulation import FULL, ONE, SHARES, SHORT, Size, cost_us, full_us, light_us, overloaded
from support.mutants import Mutant, killer

pytestmark = pytest.mark.timeout(600)
MOST_TIMES, MOST_US = 4.0, 150.0  # of one slot's cost: its data stay in the cache. 30 µs on a quiet machine
SIZES = [pytest.param(SHORT, 3.0, id="few"), pytest.param(FULL, 6.0, id="all", marks=pytest.mark.long)]


def check(name: str, small_us: float, big_us: float) -> None:
    print(f"{name:36} {small_us:6.1f} {big_us:6.1f} µs a job")
    assert big_us <= min(MOST_TIMES * small_us, MOST_US), name


@pytest.mark.long
def test_a_job_costs_the_same_at_any_size() -> None:
    plain = core()
    light, busy = light_us(plain, ONE, "all"), full_us(plain, ONE, "all")
    for kind in ("all", "fives", "shared"):
        check(f"light, {kind}", light, light_us(plain, FULL, kind))
        check(f"busy, {kind}", busy, full_us(plain, FULL, kind))
    check("light, one model everywhere", light, light_us(plain, FULL, "shared", models=1))
    for shapes, cancelled in ((1, 0.0), (20, 0.0), (1, 0.5)):
        one, all_ = [cost_us(overloaded(plain, size, shapes, cancelled)) for size in (ONE, FULL)]
        check(f"overload, {shapes} shapes, {cancelled:.0%} cancelled", one, all_)


@pytest.mark.parametrize(("size", "seconds"), SIZES)
@pytest.mark.parametrize("program", SHARES, ids=lambda program: program.__name__)
def test_shares(program: partial[float], size: Size, seconds: float) -> None:
    print(f"{program(core(), size, seconds):.3f}")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_a_broken_promise_is_noticed(mutant: Mutant) -> None:
    patched = core(mutant)
    assert "AssertionError" in killer([partial(program, patched, SHORT, 3.0) for program in SHARES])
