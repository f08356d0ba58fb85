"""Subnormal numbers count as zero in a run in the caller's thread, as they do in TensorFlow's own threads.

TensorFlow says so in each thread that it makes (`port::ScopedFlushDenormal`, in the environment of its thread pools),
and in no thread that calls it. So answers would depend on whose threads a trial of their speed has chosen.
"""

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

__all__ = ["flushing"]

_Run: TypeAlias = Callable[..., list[Any]]

# Where `fenv_t` of glibc's `bits/fenv.h` has the register, and its bits: FTZ and DAZ of MXCSR, FZ of FPCR.
_REGISTERS = {"x86_64": (28, 0x8040), "aarch64": (0, 1 << 24)}
_ENVIRONMENT_BYTES = 32


def flushing(run: _Run) -> _Run:
    """The same run, during which its thread takes subnormal numbers for zero. On other processors, `run` itself."""
    environments = _environments()
    if environments is None:
        return run
    put, plain, flushes = environments

    def flushed(*values: Any) -> list[Any]:
        put(flushes)
        try:
            return run(*values)
        finally:
            put(plain)

    return flushed


@cache
def _environments() -> tuple[Callable[[Any], object], Any, Any] | None:
    """What puts a floating-point environment in force for its thread; the usual one, and one that flushes."""
    register = _REGISTERS.get(platform.machine())
    if register is None:
        return None
    library = ctypes.PyDLL("libm.so.6")  # unlike CDLL it keeps the interpreter's lock, which takes longer than this
    put = library.fesetenv
    put.restype = None
    plain, flushes = (ctypes.create_string_buffer(_ENVIRONMENT_BYTES) for _ in range(2))
    library.fegetenv(plain)
    flushes.raw = plain.raw
    offset, bits = register
    ctypes.c_uint32.from_buffer(flushes, offset).value |= bits
    return put, plain, flushes
