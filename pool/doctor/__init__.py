"""What `pool doctor` finds out about a machine: whether what the pool promises holds on it.

In come an environment, settings, and what the kernel, NVML and TensorFlow say. Out go findings, one line each: what
was checked, the verdict, what was seen, what to do. It never imports TensorFlow: a process of its own tries it, as a
worker would, and is killed. A check that breaks down, or a driver that hangs, never ends the others.
"""

from pool.doctor.examination import examine
from pool.doctor.finding import Finding, Verdict
from pool.doctor.machine import Machine
from pool.doctor.report import report

__all__ = ["Finding", "Machine", "Verdict", "examine", "report"]
