"""Every key of `config.toml`, declared once: its default as one would write it, its kind, and what it is."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from pool.config import quantities as of
from pool.config.quantities import DURATION, FLAG, TEXT, Kind
from pool.endpoint import ipc_path

__all__ = ["SECTIONS", "Config", "Section"]

ADDRESS = Kind(lambda value, _: str(ipc_path(TEXT.read(value, ""))) and value, 'as in "ipc:///tmp/my/pool.sock"')
THREADS = of.between(1, 1024, "threads")
FRACTION = of.between(0.01, 1)
SIZES = of.many(list, of.between(1, 65536, "rows"), "[1, 8, 32]")
TENSORS = of.many(dict, TEXT, '{ x = "input:0" }')
COUNTS = of.many(dict, of.between(0, 1024, "devices"), "{ CPU = 1 }")

Devices = list[int | str | list[int | str]] | None


def key(default: Any, kind: Kind, description: str) -> Any:
    """A default that is not of its kind is a word which may stand in its place."""
    try:
        kind.read(default, "")
    except ValueError:
        kind = kind if default is ... else kind.or_word(default)
    extra: Any = {"kind": kind}
    return Field(default, description=description, json_schema_extra=extra)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @classmethod
    def kind(cls, name: str) -> Any:
        extra: Any = cls.model_fields[name].json_schema_extra
        return extra["kind"]

    @field_validator("*", mode="plain")
    @classmethod
    def _read(cls, value: object, info: ValidationInfo) -> Any:
        return cls.kind(str(info.field_name)).checked(value, info.context or "")


class Pool(Section):
    devices: Devices = key("auto", of.DEVICES, "What has a worker each: every GPU, or two CPU workers.")
    lanes: int = key(2, of.between(1, 16, "threads"), "A worker's threads: one moves data while another computes.")
    endpoint: str | None = key("auto", ADDRESS, "Where clients connect: pool.sock in your runtime folder.")
    group: str | None = key("off", TEXT.or_word("off"), "A Unix group whose members may submit jobs, too.")
    drain_timeout: float = key("30s", DURATION, "How long running jobs may take to finish when the pool stops.")
    state: str | None = key("auto", of.PATH.or_word("auto"), "The folder that keeps the inputs of quarantined jobs.")


class Model(Section):
    name: str = key(..., TEXT, "What clients call the model.")
    path: str = key(..., of.EXISTING, "A SavedModel, a frozen graph (.pb), a checkpoint (.meta) or a Keras file.")
    devices: Devices = key("all", of.DEVICES, "Which of the pool's devices serve the model.")
    batching: str = key("auto", of.choice("auto", "on", "off"), 'Whether jobs are joined; "on": you vouch for it.')
    max_batch: int = key(32, of.between(1, 65536, "rows"), "The most rows that run as one batch.")
    batch_wait: float | None = key("off", DURATION, "How long a job may wait for company on an idle lane.")
    allowed_batch_sizes: list[int] = key([], SIZES, "Batches are padded to these sizes.")
    weight: float = key(1.0, of.between(0.001, 1000), "The model's share of a device's time, against those of others.")
    stateful: bool | None = key("auto", FLAG, "Whether it has one worker and runs one job at a time.")
    tags: list[str] | None = key("auto", of.many(list, TEXT, '["serve"]'), "The graph's, if there are several.")
    inputs: dict[str, str] = key({}, TENSORS, "The input tensors of a graph that declares no signature.")
    outputs: dict[str, str] = key({}, TENSORS, "The output tensors of a graph that declares no signature.")
    xla: bool = key(False, FLAG, "Whether XLA compiles the graph.")
    mixed_precision: bool = key(False, FLAG, "Whether 16-bit floats are used where TensorFlow holds that to be safe.")

    @field_validator("allowed_batch_sizes")
    @classmethod
    def _rise_to_max_batch(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        most = info.data.get("max_batch")
        if sizes and most and (sizes != sorted(set(sizes)) or sizes[-1] != most):
            raise ValueError(f"{sizes} does not rise to max_batch, which is {most}; write such as {[1, most]}")
        return sizes


class TensorFlow(Section):
    allow_growth: bool = key(True, FLAG, "Whether GPU memory is taken as it is needed, not all of it at the start.")
    per_process_gpu_memory_fraction: float | None = key("unlimited", FRACTION, "The most GPU memory a worker takes.")
    allow_soft_placement: bool = key(True, FLAG, "Whether operations without a GPU kernel may run on the CPU.")
    log_device_placement: bool = key(False, FLAG, "Whether workers log on which device each operation runs.")
    intra_op_parallelism_threads: int | None = key("auto", THREADS, "Threads within one operation.")
    inter_op_parallelism_threads: int | None = key("auto", THREADS, "Operations that run at the same time.")
    device_count: dict[str, int] = key({}, COUNTS, "How many devices of a kind TensorFlow uses at most.")
    op_libraries: list[str] = key([], of.many(list, of.EXISTING, '["ops.so"]'), "Files of custom operations.")


class Queue(Section):
    max_jobs: int = key(10000, of.between(1, 10**9, "jobs"), "The most jobs that wait or run at a time.")
    max_bytes: int = key("2GiB", of.SIZE, "The most bytes of jobs that the pool itself holds.")
    default_timeout: float = key("60s", DURATION, "The time-out of a job whose caller gives none.")
    max_attempts: int = key(2, of.between(1, 100, "runs"), "How often a job is run, if each run ends its worker.")


class Health(Section):
    hung_after: float | None = key("auto", DURATION, 'How long a batch may run; "auto": 60 s, or its longest time-out.')
    import_timeout: float = key("300s", DURATION, "How long a worker may take to import TensorFlow.")
    load_timeout: float = key("600s", DURATION, "How long a worker may take to load one model.")
    warmup_timeout: float = key("900s", DURATION, "How long a worker may take to run one model for the first time.")


class Restart(Section):
    intensity: int = key(5, of.between(0, 1000, "deaths"), "The deaths within the period that a slot may have.")
    period: float = key("60s", DURATION, "The time over which the deaths of a slot's workers are counted.")


class Config(BaseModel):
    """A whole file. `model_dump()` has plain values: seconds, bytes, and None for a word in place of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool: Pool = Pool()
    model: list[Model]
    tensorflow: TensorFlow = TensorFlow()
    queue: Queue = Queue()
    health: Health = Health()
    restart: Restart = Restart()


SECTIONS: dict[str, type[Section]] = {each.__name__.lower(): each for each in Section.__subclasses__()}
