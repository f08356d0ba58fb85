"""The load generator behind `pool bench`.

A client, jobs and loads come in; reports go out, each as text for a person, values for JSON and records for CSV.
It never reads a command line, never prints but for a moving line on stderr, and never imports TensorFlow. It asks the
pool through the public client alone.
"""

from pool.bench.comparison import compare
from pool.bench.figure import drawer
from pool.bench.fleet import Run, connected, measure
from pool.bench.inputs import made_jobs, read_input_data
from pool.bench.load import BenchJob, Load
from pool.bench.point import INTERRUPTED, NotMeasured
from pool.bench.report import LoadReport, write_csv

__all__ = [
    "INTERRUPTED",
    "BenchJob",
    "Load",
    "LoadReport",
    "NotMeasured",
    "Run",
    "compare",
    "connected",
    "drawer",
    "made_jobs",
    "measure",
    "read_input_data",
    "write_csv",
]
