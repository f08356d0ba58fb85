"""Lines that TensorFlow prints at every start and that nobody can act on.

TF_CPP_MIN_LOG_LEVEL does not reach what TensorFlow says while its shared objects are being loaded (measured on 2.21:
two libraries, each with its own copy of absl, print the same three lines at every level). The pool reads all that its
workers print, so here is where it is dropped; `pool start --log-level debug` shows it.
"""

import re

__all__ = ["is_noise"]

_IMPORT = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|[IW]0000 .* (port|cudart_stub|cpu_feature_guard|computation_placer)\.cc:"
    r"|E0000 .* Unable to register cu(FFT|DNN|BLAS) factory"
    r"|To enable the following instructions: "
)
_NO_CUDA = re.compile(r".* failed call to cuInit: ")


def is_noise(line: str, on_gpu: bool) -> bool:
    """Whether a worker's line says nothing. Where no GPU is found, a GPU worker's lines are the diagnosis."""
    return bool(_IMPORT.match(line) or (not on_gpu and _NO_CUDA.match(line)))
