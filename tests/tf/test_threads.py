"""Warming up finds out in whose threads a signature runs, and its runs keep to that."""

import logging
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.worker_messages import ModelSettings
from workers.backend import ProcessUnusable
from workers.tf import model as models_of_tensorflow
from workers.tf.trial import Verdict, timed, try_out

pytestmark = [pytest.mark.tensorflow, pytest.mark.models]

FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
OUTPUTS = ("doubled", "sum")


@pytest.fixture(scope="module")
def folder(models):
    class Doubling(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def double(self, x):
            return {"doubled": x * 2, "sum": tf.reduce_sum(x)}

    module = Doubling()
    tf.saved_model.save(module, str(models / "doubling"), signatures={"serving_default": module.double})
    return models / "doubling"


@pytest.fixture
def model(backend, folder):
    return backend.load(ModelSettings("doubling", str(folder), True))


@pytest.fixture
def trials(monkeypatch):
    """What each trial found, to be told; and how often each way was run in it. No time passes."""
    runs = []
    monkeypatch.setattr(models_of_tensorflow, "time", SimpleNamespace(monotonic=lambda: 100.0))

    def told(outcome):
        def try_out(lane, make_pool, budget_s):
            assert budget_s == 5
            pool = make_pool()
            runs.append((lane(), pool()))
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(models_of_tensorflow, "try_out", try_out)
        return runs

    return told


@pytest.mark.parametrize("own_threads", [False, True])
def test_the_verdict_is_kept_and_said(model, trials, caplog, own_threads):
    runs = trials(Verdict(own_threads, "it was tried"))
    before = model.run("serving_default", FEEDS, OUTPUTS)
    with caplog.at_level(logging.DEBUG, "workers.tf"):
        model.warm_up()
    assert len(runs) == 1
    for one, other in zip(*runs[0], strict=True):
        np.testing.assert_array_equal(one, other)
    whose = "TensorFlow's threads" if own_threads else "the lane's thread"
    assert f"model doubling: signature 'serving_default' runs in {whose}: it was tried" in caplog.messages
    for outputs in (OUTPUTS, OUTPUTS[::-1], ("sum",)):
        answer = model.run("serving_default", FEEDS, outputs)
        assert tuple(answer) == outputs
        for name in outputs:
            np.testing.assert_array_equal(answer[name], before[name])
    plan = model._plans["serving_default"]
    assert plan.own_threads is own_threads
    kept = [model._callables.prepared(plan.tensors, plan.all_fetches, own) is not None for own in (False, True)]
    assert kept == [not own_threads, own_threads], "one is enough"


def test_a_trial_that_fails_changes_nothing(model, trials):
    trials(tf.errors.ResourceExhaustedError(None, None, "no memory for two"))
    model.warm_up()
    assert not model._plans["serving_default"].own_threads
    assert model.run("serving_default", FEEDS, ("sum",))["sum"] == 15


def test_a_trial_that_breaks_the_process_says_so(model, trials):
    trials(tf.errors.InternalError(None, None, "CUDA_ERROR_ILLEGAL_ADDRESS"))
    with pytest.raises(ProcessUnusable):
        model.warm_up()


def test_what_changes_the_models_state_is_not_tried(backend, counter, trials):
    runs = trials(Verdict(True, "it was tried"))
    model = backend.load(ModelSettings("counter", str(counter), True))
    model.warm_up()
    assert len(runs) == 1, "peek alone"
    assert not model._plans["serving_default"].own_threads
    assert model._plans["peek"].own_threads
    assert model.run("peek", {"plus": np.array(0, np.int64)}, ["count"])["count"] == 0


def test_a_small_graph_stays_in_the_lanes_thread(model, monkeypatch):
    """By the quickest of many runs: any of them may be held up by other processes."""

    def quickest(way, runs, threads):
        return min(timed(way, runs, threads) for _ in range(100))

    monkeypatch.setattr(models_of_tensorflow, "try_out", partial(try_out, measure=quickest))
    model.warm_up()
    assert not model._plans["serving_default"].own_threads
