"""The load generator behind `pool bench`.

A client, jobs and loads come in; reports go out, each as text for a person, values for JSON and records for CSV.
It never reads a command line, never prints but for a moving line on stderr, and never imports TensorFlow. It asks the
pool through the public client alone.
"""

from pool.bench.comparison import Comparison, compare
from pool.bench.curve import drawer
from pool.bench.fleet import Fleet
from pool.bench.inputs import BadInputs, Making, made_jobs, read_input_data, shapes_of
from pool.bench.job import BenchJob
from pool.bench.load import Load, Warmup
from pool.bench.point import INTERRUPTED, NotMeasured
from pool.bench.report import LoadReport, write_csv
from pool.bench.sweep import measure

__all__ = [
    "INTERRUPTED",
    "BadInputs",
    "BenchJob",
    "Comparison",
    "Fleet",
    "Load",
    "LoadReport",
    "Making",
    "NotMeasured",
    "Warmup",
    "compare",
    "drawer",
    "made_jobs",
    "measure",
    "read_input_data",
    "shapes_of",
    "write_csv",
]
