"""Every setting of a session reaches the `ConfigProto`, and each model has a Graph of its own."""

import dataclasses

import pytest
import tensorflow as tf

from workers.tf.session import config_proto, open_session

pytestmark = pytest.mark.tensorflow


def test_every_setting_arrives(tensorflow_settings):
    config = config_proto(
        dataclasses.replace(
            tensorflow_settings,
            allow_growth=False,
            per_process_gpu_memory_fraction=0.25,
            allow_soft_placement=False,
            log_device_placement=True,
            intra_op_parallelism_threads=3,
            inter_op_parallelism_threads=2,
            device_count={"CPU": 1, "GPU": 1},
            jit=True,
        )
    )
    assert not config.gpu_options.allow_growth
    assert config.gpu_options.per_process_gpu_memory_fraction == 0.25
    assert not config.allow_soft_placement
    assert config.log_device_placement
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (3, 2)
    assert dict(config.device_count) == {"CPU": 1, "GPU": 1}
    assert config.graph_options.optimizer_options.global_jit_level == tf.compat.v1.OptimizerOptions.ON_1


def test_jit_is_off_unless_asked_for(tensorflow_settings):
    config = config_proto(tensorflow_settings)
    assert config.graph_options.optimizer_options.global_jit_level == tf.compat.v1.OptimizerOptions.DEFAULT


def test_sessions_share_no_graph(tensorflow_settings):
    config = config_proto(tensorflow_settings)
    with open_session(config, 0) as one, open_session(config, 0) as other:
        assert one.graph is not other.graph
