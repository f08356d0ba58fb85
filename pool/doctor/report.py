"""The text of a bug report: all that was found, and what it was found with."""

import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions

from pool.doctor.finding import Finding

__all__ = ["report"]

# Variables of libraries and drivers. Others may hold secrets: `TF_TOKEN_…` is Terraform's.
_TELLING = (
    *("CUDA", "NVIDIA_", "NCCL_", "XLA_", "OMP_", "MKL_", "OPENBLAS_", "LD_LIBRARY_PATH", "POOL_ENDPOINT"),
    *(f"TF_{kind}_" for kind in ("CPP", "CUDA", "CUDNN", "ENABLE", "FORCE", "GPU", "NUM", "USE", "XLA")),
)
_PACKAGES = ("tf-worker-pool", "tensorflow", "tf-nightly", "keras", "numpy", "pyzmq", "msgpack", "pydantic", "nvidia-")


def report(findings: Iterable[Finding], environ: Mapping[str, str]) -> str:
    return "\n".join(_lines(list(findings), environ)) + "\n"


def _lines(findings: list[Finding], environ: Mapping[str, str]) -> Iterator[str]:
    yield f"pool doctor, {time.strftime('%Y-%m-%d %H:%M:%S %z')}"
    yield f"{platform.platform()}, Python {sys.version.split()[0]}"
    yield "\nFINDINGS"
    for finding in findings:
        yield f"{finding.verdict.value:<8}{finding.name}: {finding.seen}"
        if finding.advice:
            yield f"        {finding.advice}"
    yield "\nPACKAGES"
    installed = {(each.name or "").lower(): each.version for each in distributions()}
    yield from (f"{name} {installed[name]}" for name in sorted(installed) if name.startswith(_PACKAGES))
    yield "\nENVIRONMENT"
    yield from (f"{name}={environ[name]}" for name in sorted(environ) if name.startswith(_TELLING))
    for finding in findings:
        if finding.log:
            yield f"\nPRINTED: {finding.name}\n{finding.log.rstrip()}"
