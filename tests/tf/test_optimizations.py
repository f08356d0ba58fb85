"""Optimizations are kept where they give the same and are quicker, and dropped in all other cases."""

# ruff: noqa: ARG001, ARG002, ARG005  # what stands in for others takes what they take; `quicker` is asked for its effect

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.optimizations import GRAPPLER, OptimizationSettings
from pool.wire.records import Tensor
from pool.wire.signatures import Refused
from pool.wire.worker_messages import LayerRule, ModelSettings
from support.commands import run_command
from support.pool_process import pool_process, stub_config
from tf.processor import HAS_BFLOAT16
from workers.backend import ProcessUnusable, SessionCall
from workers.tf import optimizations
from workers.tf import tuned as tuned_module
from workers.tf.agreement import disagreement, largest_difference
from workers.tf.library import RewriterConfig
from workers.tf.optimizations import choose, optimized
from workers.tf.session import config_proto
from workers.tf.trial_runs import TrialRun
from workers.tf.tuned import TunedModel
from workers.trial_marks import ENOUGH, EndedBefore, TrialMarks

pytestmark = [pytest.mark.tensorflow, pytest.mark.models]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quicker(monkeypatch):
    """Every candidate is measured as quicker, so that what is kept is what is right."""
    monkeypatch.setattr(optimizations, "_verdict", lambda ratios: (True, "takes 0.50 of the time"))


@pytest.fixture(scope="module")
def with_file(models, tmp_path_factory):
    """A variable, a table that a file fills, and a string variable with its path, as TensorFlow 2 saves them."""
    words = tmp_path_factory.mktemp("words") / "words.txt"
    words.write_text("cat\ndog\n")

    class WithFile(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(tf.random.stateless_normal([16, 16], seed=(1, 2)))
            self.file = tf.saved_model.Asset(str(words))
            kinds = tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
            self.table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(self.file, *kinds), -1)

        @tf.function(input_signature=[tf.TensorSpec([None, 16], name="x")])
        def dense(self, x):
            return {"y": tf.nn.gelu(tf.matmul(tf.nn.gelu(tf.matmul(x, self.weights)), self.weights))}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def number(self, word):
            return {"number": self.table.lookup(word)}

    module = WithFile()
    folder = models / "with_file"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.dense, "number": module.number})
    return folder


def tuned(backend, path, *, sizes=(1, 8), **wanted):
    settings = ModelSettings("m", str(path), True, batch_sizes=sizes, optimizations=OptimizationSettings(**wanted))
    model = backend.load(settings)
    assert isinstance(model, TunedModel)
    model.warm_up()
    return model, {each.kind: (each.kept, each.why) for each in model.info.optimizations}


def ops(model):
    """What TensorFlow made of the first signature."""
    session = getattr(model, "_model", model)._session
    bound = getattr(model, "_model", model)._plans["serving_default"].bound
    ran = tf.compat.v1.RunMetadata()
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    (tensor,) = bound.feeds.values()
    session.run(list(bound.fetches.values()), {tensor: feeds()["x"]}, options=options, run_metadata=ran)
    return {node.op for partition in ran.partition_graphs for node in partition.node}


def feeds(rows=3):
    return {"x": np.random.default_rng(0).standard_normal((rows, 16)).astype(np.float32)}


def test_a_frozen_model_has_no_variables_and_its_tables(backend, with_file, quicker):
    plain = backend.load(ModelSettings("m", str(with_file), True))
    model, decided = tuned(backend, with_file, freeze=True)
    assert decided == {"freeze": (True, "takes 0.50 of the time")}
    assert "ReadVariableOp" in ops(plain)
    assert "ReadVariableOp" not in ops(model)
    assert model.run("number", {"word": np.array([b"dog", b"cow"], object)}, ("number",))["number"].tolist() == [1, -1]
    right = plain.run("serving_default", feeds(), ("y",))
    assert disagreement(model.run("serving_default", feeds(), ("y",)), right, 1e-5) is None
    assert model.info.signatures == plain.info.signatures
    call = SessionCall({}, frozenset(), ("weights/Read/ReadVariableOp:0",), False, 0)
    with pytest.raises(Refused, match=r"\(the model is served frozen \(`freeze` in its \[\[model\]\]\)\)"):
        model.session_run(call)
    plain.close()
    model.close()


def test_a_table_of_tensorflow_1_is_filled_again(backend, tf1_table, quicker):
    model, decided = tuned(backend, tf1_table, freeze=True)
    assert decided["freeze"][0]
    assert model.run("serving_default", {"words": np.array([b"dog", b"emu"], object)}, ("number",))[
        "number"
    ].tolist() == [12, 9]
    model.close()


def test_a_checkpoint_whose_tensors_are_configured_is_frozen(backend, models, quicker):
    folder = models / "checkpoint"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
        weights = tf.compat.v1.get_variable("weights", [16, 4], use_resource=False)
        tf.nn.relu(tf.matmul(x, weights), name="y")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(folder / "model"))
    keys = {"inputs": ("x",), "outputs": ("y",)}
    wanted = OptimizationSettings(freeze=True)
    model = backend.load(ModelSettings("m", str(folder / "model.meta"), True, optimizations=wanted, **keys))
    before = model.info
    right = model.run("serving_default", feeds(), ("y",))
    model.warm_up()
    assert "VariableV2" not in ops(model)
    assert model.info.signatures == before.signatures
    assert [each.kept for each in model.info.optimizations] == [True]
    assert disagreement(model.run("serving_default", feeds(), ("y",)), right, 1e-5) is None
    model.close()


@pytest.mark.models
def test_xla_compiles_on_the_cpu(backend, with_file, quicker):
    model, decided = tuned(backend, with_file, xla=True)
    assert decided["xla"][0]
    plain = backend.load(ModelSettings("m", str(with_file), True))
    assert {"_XlaCompile", "_XlaRun"} <= ops(model)
    assert "_XlaRun" not in ops(plain)
    for rows in (1, 3, 8):
        right = plain.run("serving_default", feeds(rows), ("y",))
        assert disagreement(model.run("serving_default", feeds(rows), ("y",)), right, 1e-3) is None
    plain.close()
    model.close()


def test_the_switch_of_the_session_compiles_on_the_cpu_too(backend, with_file, tensorflow_settings):
    session = replace(tensorflow_settings, jit=True)
    model = backend.load(ModelSettings("m", str(with_file), True, tensorflow=session))
    assert "_XlaRun" in ops(model)
    model.close()


@pytest.mark.models
def test_all_together_and_the_losers_are_closed(backend, with_file, quicker, monkeypatch):
    from workers.tf.model import TensorFlowModel

    closed = []
    close = TensorFlowModel.close
    monkeypatch.setattr(TensorFlowModel, "close", lambda self: (closed.append(self), close(self)))
    wanted = {"freeze": True, "xla": True, "mixed_precision": True, "grappler": {"remapping": "off"}}
    model, decided = tuned(backend, with_file, **wanted)
    assert list(decided) == ["freeze", "grappler", "xla", "mixed_precision"]
    assert all(kept for kept, _ in decided.values())
    assert len(closed) == 4
    model.close()
    assert len(set(map(id, closed))) == 5


@pytest.mark.skipif(not HAS_BFLOAT16, reason="TensorFlow computes as before on this processor, so nothing is wrong")
def test_what_is_wrong_is_dropped_with_a_warning(backend, with_file, quicker, caplog):
    model, decided = tuned(backend, with_file, freeze=True, mixed_precision=True, tolerance=1e-6)
    kept, why = decided["mixed_precision"]
    assert not kept
    assert why.startswith("signature 'serving_default' with 1 rows: output 'y' differs by ")
    assert f"model m: mixed_precision is dropped: {why}" in caplog.text
    right = backend.load(ModelSettings("m", str(with_file), True)).run("serving_default", feeds(), ("y",))
    assert disagreement(model.run("serving_default", feeds(), ("y",)), right, 1e-5) is None
    model.close()


def test_what_keeps_state_or_cannot_be_repeated_is_not_tried(backend, counter, models, caplog):
    model, decided = tuned(backend, counter, freeze=True)
    assert decided == {"freeze": (False, "it keeps state, which a trial would change")}
    assert "model m: no optimization is tried: it keeps state" in caplog.text
    model.close()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        noise = x + tf.random.normal([])
        tf.compat.v1.saved_model.simple_save(session, str(models / "noise"), {"x": x}, {"noise": noise})
    model, decided = tuned(backend, models / "noise", xla=True)
    assert not decided["xla"][0]
    assert "two plain runs of signature 'serving_default' give different results" in decided["xla"][1]
    model.close()


def test_made_up_indices_that_are_refused_become_smaller_ones(backend, failing, quicker):
    model, decided = tuned(backend, failing, grappler={"remapping": "off"})
    assert decided["grappler"][0]
    model.close()


def test_placement_rules_keep_the_remapper_off(backend, with_file):
    rules = (LayerRule("StatefulPartitionedCall.*", "/cpu:0"),)
    for grappler, kinds in (({"remapping": "on"}, []), ({"remapping": "on", "loop_optimization": "off"}, ["grappler"])):
        wanted = OptimizationSettings(grappler=grappler)
        model = backend.load(ModelSettings("m", str(with_file), True, layer_devices=rules, optimizations=wanted))
        assert [each.kind for each in model.info.optimizations] == kinds
        model.close()


def test_a_model_that_refuses_what_it_took_is_served_plainly(backend, with_file, monkeypatch, caplog):
    def refuses(*_):
        raise Refused("not\nagain")

    monkeypatch.setattr(tuned_module, "trial_runs", refuses)
    model, decided = tuned(backend, with_file, xla=True)
    assert decided == {"xla": (False, "not again")}
    assert model.run("serving_default", feeds(), ("y",))["y"].shape == (3, 16)
    assert "model m: no optimization is tried: not again" in caplog.text
    model.close()


def test_a_model_without_variables_is_not_frozen_and_without_warm_up_nothing_is_tried(backend, failing):
    model, decided = tuned(backend, failing, freeze=True)
    assert not decided["freeze"][0]
    assert "it has no variables to freeze" in decided["freeze"][1]
    model.close()
    model = backend.load(ModelSettings("m", str(failing), False, optimizations=OptimizationSettings(xla=True)))
    assert [each.kept for each in model.info.optimizations] == [False]
    model.close()


# --- the choice, with made models


class Made:
    def __init__(self, plain, answer=1.0, fails=None):
        self.info = plain.info if plain else None
        self.answer, self.fails, self.closed = answer, fails, False

    def warm_up(self):
        if self.fails:
            raise self.fails

    def run(self, signature, feeds, outputs):
        return {"y": np.array([self.answer])}

    def close(self):
        self.closed = True


@pytest.fixture
def plain(load, two_signatures):
    made = Made(None)
    made.info = load(two_signatures).info
    return made


TRIAL = TrialRun("serving_default", 1, {}, {"y": np.array([1.0])})


def chosen(plain, made, seconds, trials=(TRIAL,), **wanted):
    """`seconds`: of a run of each model; a way is told by the model in its closure."""

    def measure(way, runs, threads):
        model = way.__closure__[0].cell_contents
        return seconds[model]

    return choose(
        plain, OptimizationSettings(**wanted), lambda kinds: made[kinds], trials, TrialMarks(None, ""), measure
    )


def test_only_what_is_quicker_is_kept_and_the_next_is_built_upon_it(plain, caplog):
    caplog.set_level(logging.INFO)
    frozen, compiled, mixed = Made(plain), Made(plain, 1.0005), Made(plain, 1.01)
    made = {("freeze",): frozen, ("freeze", "xla"): compiled, ("freeze", "mixed_precision"): mixed}
    seconds = {plain: 1e-3, frozen: 0.9e-3, compiled: 0.88e-3, mixed: 0.45e-3}
    model, decided = chosen(plain, made, seconds, freeze=True, xla=True, mixed_precision=True)
    assert model is mixed
    assert [(each.kept, each.why) for each in decided] == [
        (True, "takes 0.90 of the time"),
        (False, "takes 0.98 of the time"),
        (True, "takes 0.50 of the time"),
    ]
    assert [each.closed for each in (plain, frozen, compiled, mixed)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        ({"answer": 1.01}, "signature 'serving_default' with 1 rows: output 'y' differs by 1.0e-02, more than 0.001"),
        ({"fails": RuntimeError("no such\nthing")}, "no such"),
    ],
)
def test_one_that_is_wrong_or_fails_is_dropped(plain, candidate, told, caplog):
    made = Made(plain, **candidate)
    model, (decided,) = chosen(plain, {("xla",): made}, {plain: 1e-3, made: 1e-6}, xla=True)
    assert model is plain
    assert (decided.kept, decided.why) == (False, told)
    assert made.closed
    assert not plain.closed
    assert f"xla is dropped: {told}" in caplog.text


def test_one_that_cannot_be_built_is_dropped(plain):
    model, (decided,) = chosen(plain, {}, {plain: 1e-3}, xla=True)
    assert model is plain
    assert not decided.kept


def test_one_signature_must_not_pay_for_another(plain):
    made = Made(plain)
    other = replace(TRIAL, rows=8)
    turns = iter([1e-2, 1e-2, *[1e-2, 0.5e-2] * 15, 1e-3, 1e-3, *[1e-3, 2e-3] * 15])
    settings = OptimizationSettings(xla=True)
    model, (decided,) = choose(
        plain, settings, lambda _: made, [TRIAL, other], TrialMarks(None, ""), lambda *_: next(turns)
    )
    assert model is plain
    assert decided.why.startswith("takes 0.64 of the time, but signature 'serving_default' with 8 rows takes 2.00")


def test_what_ended_its_process_twice_is_not_tried_a_third_time(plain, tmp_path):
    def tried(fails=None):
        made = Made(plain, fails=fails)
        seconds = {plain: 1e-3, made: 1e-4}
        turns = lambda way, runs, threads: seconds[way.__closure__[0].cell_contents]  # noqa: E731
        marks = TrialMarks(tmp_path / "trials", "m")
        return choose(plain, OptimizationSettings(xla=True), lambda kinds: made, [TRIAL], marks, turns)[1][0]

    assert tried().kept
    assert not tried(ValueError("of its own")).kept
    for _ in range(2):
        with pytest.raises(ProcessUnusable):
            tried(ProcessUnusable("broken"))
    decided = tried()
    assert (decided.kept, decided.why) == (False, "2 workers died while they tried it; the next try is in a day")
    (mark,) = (tmp_path / "trials").iterdir()
    os.utime(mark, (time.time() - 90_000,) * 2)
    assert tried().kept
    assert mark.stat().st_size == 0


def test_a_killed_worker_leaves_its_mark(tmp_path):
    program = """
import os, signal, sys
from pathlib import Path
from workers.trial_marks import TrialMarks
with TrialMarks(Path(sys.argv[1]), "m").trying("xla"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    marks = TrialMarks(tmp_path, "m")
    for _ in range(ENOUGH):
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=30, cwd=ROOT)
        assert done.returncode == -signal.SIGKILL
    with pytest.raises(EndedBefore, match="2 workers died"), marks.trying("xla"):
        pass
    with marks.trying("freeze"):
        pass


def test_marks_are_of_the_dead_only(tmp_path):
    marks = TrialMarks(tmp_path, "m")
    with marks.trying("xla"):
        for _ in range(5):
            with TrialMarks(tmp_path, "m").trying("xla"):
                pass
    (tmp_path / "file").write_text("")
    with TrialMarks(tmp_path / "file" / "none", "m").trying("xla"):
        pass


def test_agreement():
    assert largest_difference(np.array([100.0, 1.5]), np.array([100.0, 1.0])) == 0.005
    assert largest_difference(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])) == 0
    assert largest_difference(np.array([np.nan]), np.array([1.0])) == np.inf
    assert largest_difference(np.array([np.inf]), np.array([-np.inf])) == np.inf
    assert largest_difference(np.array([1e-9]), np.array([0.0])) == np.inf
    assert largest_difference(np.array([1]), np.array([2])) == np.inf
    assert largest_difference(np.array([b"a"], object), np.array([b"a"], object)) == 0
    assert disagreement({"y": np.zeros(2)}, {"y": np.zeros(3)}, 1.0) == "output 'y' has the shape [2], not [3]"


def test_every_pass_that_can_be_chosen_is_a_switch_of_this_tensorflow(tensorflow_settings):
    fields = RewriterConfig.DESCRIPTOR.fields_by_name
    assert {fields[name].enum_type.name for name in GRAPPLER} == {"Toggle"}
    passes = dict.fromkeys(GRAPPLER, "off") | {"remapping": "aggressive", "layout_optimizer": "on"}
    config = optimized(config_proto(tensorflow_settings), OptimizationSettings(grappler=passes), ("grappler",), 0)
    rewrites = config.graph_options.rewrite_options
    assert (rewrites.remapping, rewrites.layout_optimizer) == (RewriterConfig.AGGRESSIVE, RewriterConfig.ON)
    assert rewrites.constant_folding == RewriterConfig.OFF
    on_gpu = optimized(config, OptimizationSettings(mixed_precision=True), ("mixed_precision",), 1)
    assert on_gpu.graph_options.rewrite_options.auto_mixed_precision == RewriterConfig.ON


# --- behind a pool

HANDLER = """
class Halves:
    inputs = {"serving_default": {"bytes": ("uint8", [None, 16])}}

    def preprocess(self, inputs, signature):
        if signature != "serving_default":
            return inputs
        return {"x": (inputs["bytes"] / 2).astype("float32")}
"""


def test_what_was_decided_is_shown_and_a_handler_sits_around_it(with_file, tmp_path, backend):
    (tmp_path / "halves.py").write_text(HANDLER)
    keys = f'freeze = true\nhandler = "halves:Halves"\nhandler_path = "{tmp_path}"\nallowed_batch_sizes = [1, 8]\n'
    models = f'[[model]]\nname = "m"\npath = "{with_file}"\n{keys}'
    plain = backend.load(ModelSettings("m", str(with_file), True))
    given = np.random.default_rng(0).integers(0, 256, (20, 16)).astype(np.uint8)
    right = plain.run("serving_default", {"x": given.astype(np.float32) / 2}, ("y",))["y"]
    with pool_process(stub_config(devices='["cpu"]', models=models)) as pool, pool.client() as client:
        (model,) = client.models()
        (decided,) = model.optimizations
        assert (decided.slot, decided.kind, decided.kept in (True, False)) == (0, "freeze", True)
        # On a machine that was held up, "takes … far longer than before": it is right, and was timed.
        assert "takes " in decided.why
        pool.await_log("model m: freeze ")
        assert model.signatures["serving_default"].inputs == {"bytes": Tensor("uint8", (-1, 16))}
        futures = client.submit_many("m", [given[row : row + 1] for row in range(20)], signature="serving_default")
        found = np.concatenate([future.result(30)["y"] for future in futures])
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
        assert client.run("m", ["dog"], signature="number")["number"].tolist() == [1]
        shown = run_command(pool, "models").stdout
    assert "handled by halves:Halves" in shown
    assert "slot 0: freeze " in shown
    plain.close()
