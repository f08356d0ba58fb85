"""Jobs of models whose rows depend on each other run one by one, and whole, without a word from the user."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import errors
from pool.wire.records import SignatureInfo
from support.pool_process import PoolProcess, pool_process, stub_config
from tf import row_models
from tf.held_lanes import HeldLanes

pytestmark = pytest.mark.tensorflow

CLIENTS = 4
JOBS = 6  # of each client and signature
ROUNDS = 5
MOST_ROWS = 40  # more than run together, so that some would be cut

Feeds = dict[str, np.ndarray]

# All that a warm-up tries is tried, however long it takes: when its time is up, the gates may still be shut.
HOOK = """
import sys
if "workers" in sys.orig_argv:
    from workers.independence import warm_up
    warm_up._TRIALS_S = 1e6
"""


class Asked:
    """A job, and what came of it."""

    def __init__(self, model: str, signature: str, feeds: Feeds) -> None:
        self.model, self.signature, self.feeds = model, signature, feeds
        self.rows = len(next(iter(feeds.values())))
        self.future: Any = None

    @property
    def joined(self) -> bool:
        """Whether rows of others ran with its own, or it was cut."""
        if self.future.exception(60) is not None:
            return False
        timeline = self.future.timeline  # which has no rows where the inputs have several numbers of them
        return bool(timeline.batch_rows != timeline.rows)

    def is_right(self, wanted: dict[str, np.ndarray]) -> bool:
        try:
            answer = self.future.result(60)
        except errors.PoolError:
            return False
        return answer.keys() == wanted.keys() and all(_same(answer[name], wanted[name]) for name in wanted)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind == "f":
        return np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    return bool((one == other).all())


Right = Callable[[Asked], dict[str, np.ndarray]]

MOST_ROUNDS = 8


@pytest.fixture(scope="module")
def folders(models: Path) -> dict[str, Path]:
    return row_models.dependent(models / "dependent")


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> HeldLanes:
    return HeldLanes(tmp_path_factory.mktemp("lanes"), slots=(0, 0))


@pytest.fixture(scope="module")
def pool(folders: dict[str, Path], lanes: HeldLanes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    hook = tmp_path_factory.mktemp("hook")
    (hook / "sitecustomize.py").write_text(HOOK)
    entries = [f'[[model]]\nname = "{name}"\npath = "{path}"\n' for name, path in folders.items()]
    for name, path in folders.items():
        entries += [f'[[model]]\nname = "{name}_vouched"\npath = "{path}"\nbatching = "always"\nwarmup = false\n']
        entries += [f'[[model]]\nname = "{name}_untried"\npath = "{path}"\nwarmup = false\n']
    config = stub_config("lanes = 2", devices='["cpu"]', models="".join(entries) + lanes.config)
    with pool_process(config, {"PYTHONPATH": str(hook)}) as running:
        yield running


@pytest.fixture(scope="module")
def signatures(pool: PoolProcess) -> list[tuple[str, str]]:
    with pool.client() as client:
        told = {each.name: each.signatures for each in client.models()}
    found = [(model, name) for model in ("together", "v1") for name in told[model]]
    assert len(found) > 30
    return found


def traffic(pool: PoolProcess, lanes: HeldLanes, signatures: list[tuple[str, str]], suffix: str = "") -> list[Asked]:
    """Jobs of all signatures, of several clients at once. None runs before all wait."""
    jobs: list[list[Asked]] = []
    for number in range(CLIENTS):
        numbers = np.random.default_rng(number)
        of_client = [
            Asked(model + suffix, name, row_models.feeds_of(name, int(numbers.integers(1, MOST_ROWS + 1)), numbers))
            for _ in range(JOBS)
            for model, name in signatures
        ]
        jobs.append(of_client)
    together = threading.Barrier(CLIENTS)

    def send(of_client: list[Asked]) -> None:
        with pool.client() as client:
            together.wait(30)
            for job in of_client:
                job.future = client.submit(job.model, job.feeds, signature=job.signature, timeout=60)
            for job in of_client:
                job.future.exception(60)

    threads = [threading.Thread(target=send, args=(of_client,)) for of_client in jobs]
    with pool.client() as client, lanes.held(client, jobs=sum(map(len, jobs))):
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(90)
    return [job for of_client in jobs for job in of_client]


@pytest.fixture(scope="module")
def right(folders: dict[str, Path], in_process: Callable[..., Any]) -> Right:
    def alone(job: Asked) -> dict[str, np.ndarray]:
        if job.signature == "ragged_answer":  # whose tensors have no names of their own in a `Session`
            words = [text.split() for text in job.feeds["text"]]
            splits = np.cumsum([0, *map(len, words)])
            return {
                "y.flat_values": row_models.texts([word for each in words for word in each]),
                "y.row_splits_0": splits,
            }
        answer: dict[str, np.ndarray] = in_process(folders[job.model.partition("_")[0]], job.signature, job.feeds)
        return answer

    return alone


def rows_told(pool: PoolProcess, signatures: list[tuple[str, str]], suffix: str = "") -> dict[str, SignatureInfo]:
    """What `pool models` says of each signature."""
    with pool.client() as client:
        told = {each.name: each.signatures for each in client.models()}
    return {name: told[model + suffix][name] for model, name in signatures}


def assert_right(jobs: list[Asked], right: Right) -> None:
    """None was joined or cut, and each answer is what the model alone gives."""
    for job in jobs:
        assert job.future.exception(0) is None, (job.signature, job.future.exception(0))
        assert not job.joined, job.signature
    wrong = [job for job in jobs if job.signature not in row_models.CHANCE and not job.is_right(right(job))]
    assert not wrong, [(job.signature, job.rows) for job in wrong]


def test_no_answer_is_wrong_and_none_is_ever_proven(
    pool: PoolProcess, lanes: HeldLanes, signatures: list[tuple[str, str]], right: Right
) -> None:
    assert_right(traffic(pool, lanes, signatures), right)
    for name, told in rows_told(pool, signatures).items():
        assert not told.batchable, name
        why = "ragged or sparse" if name in row_models.SHAPELESS else "depend on each other: when it warmed up"
        assert why in told.rows, (name, told.rows)


def test_real_jobs_show_it_where_nothing_was_tried(
    pool: PoolProcess, lanes: HeldLanes, signatures: list[tuple[str, str]], right: Right
) -> None:
    found: set[str] = set()
    for _ in range(ROUNDS):
        assert_right(traffic(pool, lanes, signatures, "_untried"), right)
        told = rows_told(pool, signatures, "_untried")
        assert not [name for name in told if told[name].batchable]
        found = {name for name in told if "depend on each other" in told[name].rows}
        if len(found) == len(told) - len(row_models.SHAPELESS):
            break
    assert found == {name for _, name in signatures} - row_models.SHAPELESS


def test_the_same_jobs_are_answered_wrongly_where_a_user_vouches(
    pool: PoolProcess, lanes: HeldLanes, signatures: list[tuple[str, str]], right: Right
) -> None:
    """So many of them wait at once that all would be joined, had nothing been found out.

    Whether one is answered wrongly is a matter of its company: what has had no such yet is sent again.
    """
    wanted = {name for _, name in signatures} - row_models.SHAPELESS
    wrong: set[str] = set()
    joined: set[str] = set()
    for _ in range(MOST_ROUNDS):
        jobs = traffic(pool, lanes, [each for each in signatures if each[1] not in wrong], "_vouched")
        wrong |= {job.signature for job in jobs if job.signature in row_models.CHANCE or not job.is_right(right(job))}
        joined |= {job.signature for job in jobs if job.joined}
        if wrong >= wanted:
            break
    assert wrong == wanted
    assert joined >= wrong - {"products", "padded"}, "whose rows of two jobs may not even fit together"


@pytest.mark.parametrize("of_one_array", [True, False])
@pytest.mark.parametrize("name", ["centred", "count", "numbered", "products"])
def test_jobs_that_leave_in_one_message_are_as_alone_as_others(
    pool: PoolProcess, right: Right, name: str, of_one_array: bool
) -> None:
    x = np.random.default_rng(5).standard_normal((64, 2, 4)).astype(np.float32)
    wanted = [right(Asked("together", name, {"x": each})) for each in x]
    with pool.client() as client:
        given = x if of_one_array else list(x)
        answers = list(client.map("together", given, signature=name))
        answers += [future.result(60) for future in client.submit_many("together", given, signature=name)]
    for answer, each in zip(answers, wanted * 2, strict=True):
        np.testing.assert_allclose(answer["y"], each["y"], rtol=1e-4, atol=1e-5)
