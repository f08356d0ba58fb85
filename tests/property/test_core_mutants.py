"""The programs and walks notice each promise that a mutant of the core breaks, without any other test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from walks.mutants import MUTANTS, Mutant
from walks.scenes import SCENES

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ELSEWHERE = [*(f"program {seed}" for seed in range(140)), *(f"sharing {seed}" for seed in range(4))]
ELSEWHERE += [f"walk {seed}" for seed in range(40)]
ELSEWHERE += [f"scene {number}" for number in range(len(SCENES))]
LONGEST_S = 300.0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_fits_once_and_compiles(mutant: Mutant) -> None:
    source = (ROOT / "pool" / "core" / mutant.file).read_text()
    changed = mutant.applied_to(source)
    assert changed != source
    compile(changed, mutant.file, "exec")


def test_there_are_enough_of_them_and_each_is_another() -> None:
    assert len(MUTANTS) >= 15
    assert len({mutant.name for mutant in MUTANTS}) == len(
        {(mutant.file, mutant.new, mutant.old) for mutant in MUTANTS}
    )
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def hunted(folder: Path, walks: list[str]) -> dict[str, object] | None:
    """The first of the walks that fails with the package in the folder; the tests are this project's."""
    done = subprocess.run(
        [sys.executable, "-m", "walks.hunt", *walks],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{TESTS}", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=True,
    )
    where, found = done.stdout.splitlines()
    assert Path(where).is_relative_to(folder), f"{where} was run"
    failure: dict[str, object] | None = json.loads(found)
    return failure


@pytest.mark.mutants
@pytest.mark.timeout(2 * LONGEST_S)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_walks_notice(mutant: Mutant, tmp_path: Path) -> None:
    """The core's own books are not looked at, and an exception of the mutant itself is no proof."""
    shutil.copytree(ROOT / "pool", tmp_path / "pool")
    path = tmp_path / "pool" / "core" / mutant.file
    path.write_text(mutant.applied_to(path.read_text()))
    failure = hunted(tmp_path, [mutant.killer]) if mutant.killer else None
    failure = failure or hunted(tmp_path, ELSEWHERE)
    assert failure is not None, f"nobody notices that it is broken that {mutant.promise}"
    print(f"| {mutant.name} | {mutant.promise} | {failure['walk']} | {failure['where']}: {failure['what']} |")  # noqa: T201
    assert failure["promised"], f"it fell over by itself: {failure}"


@pytest.mark.mutants
@pytest.mark.timeout(LONGEST_S)
def test_the_walks_that_notice_find_nothing_without_a_mutant(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "pool", tmp_path / "pool")
    assert hunted(tmp_path, sorted({mutant.killer for mutant in MUTANTS if mutant.killer})) is None
