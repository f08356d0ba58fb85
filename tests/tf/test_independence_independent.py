"""Signatures whose rows are independent are all proven so, and then joined; their answers are right all the time."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client
from pool.core.queue.independence import ENOUGH, ENOUGH_UNTRIED
from pool.wire.records import SignatureInfo
from support.pool_process import PoolProcess, pool_process, stub_config
from tf import row_models
from tf.held_lanes import HeldLanes

pytestmark = [pytest.mark.tensorflow, pytest.mark.models, pytest.mark.timeout(400)]

COMPARED_S = 60.0  # until another job has run both ways
MOST_ROWS = 40  # of a job; more than run together
BURST = 24  # jobs of a signature that wait at once
BUSY_S = 0.02  # longer than it takes to send a few, as a rule
TOLERANCES = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 1e-4, "float64": 1e-9}
UNTRIED = "parsed"  # made-up strings are no protocol buffers

Feeds = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folders(models: Path) -> dict[str, Path]:
    return row_models.independent(models / "independent")


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> HeldLanes:
    return HeldLanes(tmp_path_factory.mktemp("lanes"))


@pytest.fixture(scope="module")
def pool(folders: dict[str, Path], lanes: HeldLanes) -> Iterator[PoolProcess]:
    entries = [
        f'[[model]]\nname = "{name}"\npath = "{path}"\nallowed_batch_sizes = [4, 16]\n'
        for name, path in folders.items()
    ]
    entries += ['[[model]]\nname = "busy"\npath = "stub:faults"\n', lanes.config]
    with pool_process(stub_config(devices='["cpu"]', models="".join(entries), extra_pool="lanes = 1")) as running:
        yield running


@pytest.fixture(scope="module")
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


class Zoo:
    """Sends jobs, and sees that each is answered as by the model alone."""

    def __init__(
        self, client: Client, lanes: HeldLanes, folders: dict[str, Path], in_process: Callable[..., Any]
    ) -> None:
        self._client = client
        self._lanes = lanes
        self._folders = folders
        self._in_process = in_process
        self._numbers = np.random.default_rng(7)
        told = {each.name: each.signatures for each in client.models()}
        self.signatures = [(model, name) for model in ("apart", "keras") for name in told[model] if name != "serve"]

    def told(self, model: str, name: str) -> SignatureInfo:
        (told,) = [each for each in self._client.models() if each.name == model]
        return told.signatures[name]

    def send(self, model: str, name: str, jobs: int, most_rows: int = 3) -> list[Any]:
        """They come while the only lane is busy; gives their futures, once each has the right answer."""
        self._client.submit("busy", BUSY_S, signature="sleep")
        return self._answered(model, name, self._feeds(model, name, jobs, most_rows), contextlib.nullcontext())

    def send_at_once(self, model: str, name: str, jobs: int) -> list[Any]:
        """The same, but that all wait before the first runs, on any machine."""
        fed = self._feeds(model, name, jobs, 3)
        return self._answered(model, name, fed, self._lanes.held(self._client, jobs))

    def _feeds(self, model: str, name: str, jobs: int, most_rows: int) -> list[Feeds]:
        kind = "keras" if model == "keras" else name
        numbers = self._numbers
        return [row_models.feeds_of(kind, int(numbers.integers(1, most_rows + 1)), numbers) for _ in range(jobs)]

    def _answered(
        self, model: str, name: str, fed: list[Feeds], meanwhile: contextlib.AbstractContextManager[None]
    ) -> list[Any]:
        with meanwhile:
            futures = [self._client.submit(model, feeds, signature=name, timeout=60) for feeds in fed]
        for feeds, future in zip(fed, futures, strict=True):
            answer, wanted = future.result(60), self._in_process(self._folders[model], name, feeds)
            assert answer.keys() == wanted.keys()
            for key in wanted:
                self._assert_same(answer[key], wanted[key], f"{name}: {key}")
        return futures

    def _assert_same(self, one: np.ndarray, other: np.ndarray, what: str) -> None:
        assert (one.dtype, one.shape) == (other.dtype, other.shape), what
        if (tolerance := TOLERANCES.get(one.dtype.name)) is None:
            assert (one == other).all(), what
        else:
            np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), tolerance, tolerance, err_msg=what)


@pytest.fixture(scope="module")
def zoo(client: Client, lanes: HeldLanes, folders: dict[str, Path], in_process: Callable[..., Any]) -> Zoo:
    return Zoo(client, lanes, folders, in_process)


def test_all_are_proven_and_joined_and_right_all_the_time(zoo: Zoo) -> None:
    assert len(zoo.signatures) > 15
    left = list(zoo.signatures)
    before: list[str] = []
    while left:
        said = [zoo.told(model, name).rows for model, name in left]  # with how many jobs agreed
        if said != before:
            before, ends = said, time.monotonic() + COMPARED_S
        assert time.monotonic() < ends, [(name, rows) for (_, name), rows in zip(left, said, strict=True)]
        for model, name in left:
            futures = zoo.send(model, name, 4)
            assert zoo.told(model, name).batchable or not are_shared(futures), name
        left = [(model, name) for model, name in left if not zoo.told(model, name).batchable]
    for model, name in zoo.signatures:
        futures = zoo.send_at_once(model, name, BURST)
        assert are_shared(futures), (name, zoo.told(model, name).rows, [f.timeline for f in futures])
        zoo.send(model, name, 1, MOST_ROWS)  # some of which are cut
        jobs = int(re.findall(r"independent in (\d+) jobs that ran both ways", zoo.told(model, name).rows)[0])
        assert jobs >= (ENOUGH_UNTRIED if name == UNTRIED else ENOUGH), name
        assert jobs < ENOUGH_UNTRIED or name == UNTRIED, f"{name}: made-up values did not agree"


def test_what_no_made_up_value_fits_says_so(zoo: Zoo, pool: PoolProcess) -> None:
    """And nothing else does: all the others were tried."""
    said = "no trial of the rows of signature {}: InvalidArgumentError"
    pool.await_log(said.format(UNTRIED))
    assert [name for _, name in zoo.signatures if said.format(name) in pool.text()] == [UNTRIED]


def are_shared(futures: list[Any]) -> bool:
    """Whether some ran together; jobs that came in one message and ran as one have one timeline, of its last batch."""
    jobs = {future.timeline.job for future in futures}
    return len(jobs) < len(futures) or any(each.timeline.batch_rows > each.timeline.rows for each in futures)
