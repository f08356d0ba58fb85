"""Random programs against the pool's changes; and the plan with a promise broken, which they must notice."""

import os
import random
from collections import Counter

import pytest
from plan.mutants import MUTANTS, code, programs
from plan.walk import walk

from support.mutants import Mutant, killer

WALKS = int(os.environ.get("WALKS", "40"))
SEEN = {"done": 200, "failed": 20, "broken": 16, "lost": 4, "in place": 4, "falls": 100}  # in forty walks, at least


def test_walks_keep_every_promise() -> None:
    begin = int(os.environ.get("WALKS_SEED", "0")) or random.randrange(1 << 30)
    print(f"WALKS_SEED={begin}")
    seen = Counter[str]()
    for seed in range(begin, begin + WALKS):
        seen += walk(code(), seed)
    few = {name: count for name, count in SEEN.items() if seen[name] < count * WALKS / 40 / 2}
    assert not few, f"the premise: all of it was met; {seen}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_a_broken_promise_is_noticed(mutant: Mutant) -> None:
    assert killer(programs(mutant))
