"""What TensorFlow makes of this machine's processor."""

from pathlib import Path

__all__ = ["HAS_BFLOAT16"]

# As `IsBF16SupportedByOneDNNOnThisCPU` asks. Elsewhere TensorFlow leaves a graph in float32.
HAS_BFLOAT16 = bool({"avx512f", "avx_ne_convert"} & set(Path("/proc/cpuinfo").read_text().split()))
