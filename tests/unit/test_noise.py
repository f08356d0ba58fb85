from pool.processes.output import is_noise

BANNER = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
ONEDNN = "I0000 00:00:1790000000.000000    1234 port.cc:153] oneDNN custom operations are on."
NO_CUDA = "E0000 00:00:1790000000.000000 1234 cuda_executor.cc:1309] INTERNAL: failed call to cuInit: no device"
FATAL = "F0000 00:00:1790000000.000000 1234 cpu_feature_guard.cc:37] The TensorFlow library needs AVX"


def test_the_banner_is_noise_everywhere() -> None:
    assert all(is_noise(line, on_gpu) for line in (BANNER, ONEDNN) for on_gpu in (True, False))


def test_a_gpu_that_cannot_be_used_is_news_to_a_gpu_worker_alone() -> None:
    assert is_noise(NO_CUDA, on_gpu=False)
    assert not is_noise(NO_CUDA, on_gpu=True)


def test_what_kills_a_worker_is_never_noise() -> None:
    assert not is_noise(FATAL, on_gpu=False)
    assert not is_noise("Restoring parameters", on_gpu=False)
