"""How the pool asks a worker for the stacks of its threads: what both sides must agree on."""

import signal

__all__ = ["STACKS_SIGNAL"]

# TensorFlow, XLA and CUDA leave it alone; a JVM in the same process (HDFS) takes SIGUSR2 and SIGQUIT.
STACKS_SIGNAL = signal.SIGUSR1
