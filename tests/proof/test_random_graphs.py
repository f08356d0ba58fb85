"""What is proven must agree with what runs: a job alone, and the same rows among others of other magnitudes.

`PROOF_GRAPHS` and `PROOF_SEED` choose how many programs, and which.
"""

import os
import random
from functools import partial

import numpy as np
import pytest

from proof.programs import OPS, PLAIN, Program, plain
from workers.tf.graph import scopes
from workers.tf.row_rules import RULES
from workers.tf.rows import prove

pytestmark = pytest.mark.tensorflow
SEED = int(os.environ.get("PROOF_SEED", "1")) * 1_000_000
COUNT = int(os.environ.get("PROOF_GRAPHS", "600"))
OF_SESSIONS = {"HashTable", "MutableHashTable", "MutableHashTableV2", "LookupTableFind", "Variable", "VariableV2"}
ALIASES = {"PlaceholderWithDefault", "Snapshot", "StopGradient"}
UNMET = OF_SESSIONS | ALIASES | {"ParseExample", "ParseExampleV2"}


def made(seed, steps, functions=OPS):
    r, numbers = random.Random(seed), np.random.default_rng(seed)
    ranks, inner = (1, 2, r.choice([0, 3])), [r.choice([1, 2, 3]) for _ in range(3)]
    rows = (r.choice([1, 1, 2]), 1.0), (r.choice([1, 2, 3]), -40.0)
    jobs = [[numbers.integers(-3, 4, (count, *inner[:rank])) * scale for rank in ranks] for count, scale in rows]
    program = Program(r, jobs)
    for _ in range(steps):
        program.step(functions)
    return program


def agrees(alone, together):
    if not together.ndim or any(part.shape[1:] != together.shape[1:] or part.ndim != together.ndim for part in alone):
        return False
    if sum(map(len, alone)) != len(together):
        return False
    return np.allclose(np.concatenate(alone), together, rtol=1e-5, atol=1e-6, equal_nan=True)


def judged(program, seed):
    """For each result why it is not proven, and whether it is independent."""
    sizes = [variable[0].shape[1:] for variable in program.values[:3]]
    shapes = [(-1, *(inner if seed % 2 else [-1] * len(inner))) for inner in sizes]
    shapes = dict(zip(program.feeds, shapes, strict=True))
    fetches = {str(at): variable[-1].name for at, variable in enumerate(program.values)}
    found = prove(program.graph.as_graph_def(), {feed: feed for feed in program.feeds}, shapes, fetches)
    for at, variable in enumerate(program.values[3:], 3):
        *alone, together = [value.numpy() for value in variable[:-1]]
        good = agrees(alone, together)
        assert good or found[str(at)], f"seed {seed}: {variable[-1].op}"
        yield found[str(at)], good


@pytest.mark.parametrize("op", PLAIN)
def test_an_element_wise_op_is_one(op):
    proven = 0
    for seed in range(200):
        proven += sum(not why for why, _ in judged(made(seed, 1, [partial(plain, op=op)]), seed))
        if proven > 3:
            return
    raise AssertionError("it is not among the programs")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("first", "count", "steps"), [(SEED, COUNT, 6), pytest.param(SEED + COUNT, 10_000, 12, marks=pytest.mark.long)]
)
def test_what_is_proven_is_independent(first, count, steps):
    proven = independent = dependent = 0
    met = set(UNMET)
    for seed in range(first, first + count):
        program = made(seed, steps)
        met.update(node.op for _, nodes in scopes(program.graph.as_graph_def()) for node in nodes)
        for why, good in judged(program, seed):
            proven += not why
            independent += good
            dependent += not good
    print(f"{proven} results proven, {independent} independent, {dependent} dependent")
    assert proven > 0.5 * independent
    assert dependent > 0.5 * independent
    assert RULES.keys() <= met or count < 10_000
