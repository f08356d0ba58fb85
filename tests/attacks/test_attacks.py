"""An attacker that knows the wire sends the worst of everything: nothing ends, stalls, grows or answers wrongly.

ATTACK_SEED, ATTACK_SECONDS.
"""

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from attacks.attacks import ATTACKS
from attacks.mutants import MUTANTS
from attacks.siege import siege
from support.machine import ROOT
from support.mutants import Mutant, killer

pytestmark = pytest.mark.chaos
SECONDS = float(os.environ.get("ATTACK_SECONDS", "30"))


@pytest.mark.timeout(SECONDS + 200)
def test_no_attack_ends_stalls_grows_or_answers_wrongly(tmp_path: Path) -> None:
    seed = int(os.environ.get("ATTACK_SEED", str(time.time_ns() % 1_000_000)))
    print(f"ATTACK_SEED={seed} ATTACK_SECONDS={SECONDS:g}")
    with siege(tmp_path, seed) as made:
        figures = made.attack(ATTACKS, SECONDS)
    print(dict(made.counts), dict(made.slowest), figures, sep="\n")
    for name, (_, warm, after) in figures.items():
        assert after.descriptors <= warm.descriptors + 10, name
        assert after.threads <= warm.threads + 5, name
        assert after.mib <= warm.mib + 200, name
    assert made.counts.keys() >= ATTACKS.keys() or SECONDS < 60, "the premise: all of them were tried"


@pytest.mark.timeout(200)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an attack that fails leaves sockets
@pytest.mark.parametrize(("name", "mutant"), MUTANTS, ids=lambda each: getattr(each, "promise", ""))
def test_an_attack_notices_a_check_that_is_gone(tmp_path: Path, name: str, mutant: Mutant) -> None:
    for package in ("pool", "workers"):
        shutil.copytree(ROOT / package, tmp_path / "product" / package, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "product" / mutant.file
    assert file.read_text().count(mutant.old) == 1, "the premise: the patch fits"
    file.write_text(file.read_text().replace(mutant.old, mutant.new))
    with siege(tmp_path, 1, f"{tmp_path}/product") as made:
        assert killer([partial(made.attack, {name: ATTACKS[name]}, 8.0)])
