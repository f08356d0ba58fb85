"""Every key of `config.toml`, declared once: its type, its default as one would write it, and what it is."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from pool.config.quantities import Address, Devices, Duration, Existing, Located, Name, Size, Text, either

__all__ = ["SECTIONS", "Config", "Section"]

DEMO = {"name": "digits", "path": str(Path(__file__).parents[2] / "workers" / "demo" / "digits")}
AUTO, OFF = either("auto"), either("off")

Rows = Annotated[int, Field(ge=1, le=65536)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Fraction = Annotated[float, Field(ge=0.01, le=1.0)]
Count = Annotated[int, Field(ge=0, le=1024)]


def key(default: Any, description: str, **bounds: Any) -> Any:
    return Field(default, description=description, **bounds)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


class Pool(Section):
    devices: Annotated[Devices | None, AUTO] = key(
        "auto", 'What has a worker each, such as [0, 1], ["cpu", "cpu"] or [[0, 1], 2]; "auto": every GPU, or two CPUs.'
    )
    lanes: int = key(2, "A worker's threads: one moves data while another computes.", ge=1, le=16)
    endpoint: Annotated[Address | None, AUTO] = key(
        "auto", 'Where clients connect, such as "ipc:///path/pool.sock"; "auto": pool.sock in your runtime folder.'
    )
    group: Annotated[Text | None, OFF] = key("off", "A Unix group whose members may submit jobs, too.")
    drain_timeout: Duration = key("30s", "How long running jobs may take to finish when the pool stops.")
    state: Annotated[Located | None, AUTO] = key(
        "auto", 'A folder for the inputs of quarantined jobs; "auto": pool in your state folder.'
    )


class Model(Section):
    name: Name = key(..., "What clients call the model.")
    path: Existing = key(..., "A SavedModel, a frozen graph (.pb), a checkpoint (.meta) or a Keras file.")
    devices: Annotated[Devices | None, either("all")] = key(
        "all", 'Which of the pool\'s devices serve the model, such as [0], ["GPU-uuid"], ["cpu"] or [[0, 1]].'
    )
    batching: Literal["auto", "on", "off"] = key("auto", 'Whether jobs are joined; "on": you vouch for it.')
    max_batch: Rows = key(32, "The most rows that run as one batch.")
    batch_wait: Annotated[Duration | None, OFF] = key(
        "off", 'How long a job may wait for company on an idle lane, such as "2ms".'
    )
    allowed_batch_sizes: list[Rows] = key([], "Batches are padded to these sizes, such as [1, 8, 32].")
    weight: float = key(1.0, "The model's share of a device's time, against those of others.", ge=0.001, le=1000.0)
    stateful: Annotated[bool | None, AUTO] = key(
        "auto", 'Whether it has one worker and runs one job at a time, true or false; "auto": as its graph says.'
    )
    tags: Annotated[list[Text] | None, AUTO] = key("auto", 'The graph\'s, such as ["serve"], if there are several.')
    inputs: dict[str, Text] = key({}, 'The inputs of a graph that declares no signature, such as { x = "input:0" }.')
    outputs: dict[str, Text] = key({}, 'The outputs of a graph that declares no signature, such as { y = "output:0" }.')
    xla: bool = key(False, "Whether XLA compiles the graph.")
    mixed_precision: bool = key(False, "Whether 16-bit floats are used where TensorFlow holds that to be safe.")

    @field_validator("allowed_batch_sizes")
    @classmethod
    def _rise_to_max_batch(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        most = info.data.get("max_batch")
        if sizes and most and (sizes != sorted(set(sizes)) or sizes[-1] != most):
            raise ValueError(f"{sizes} does not rise to max_batch, which is {most}; write such as {[1, most]}")
        return sizes


class TensorFlow(Section):
    allow_growth: bool = key(True, "Whether GPU memory is taken as it is needed, not all of it at the start.")
    per_process_gpu_memory_fraction: Annotated[Fraction | None, either("unlimited")] = key(
        "unlimited", "The most of a GPU's memory that a worker takes, such as 0.5."
    )
    allow_soft_placement: bool = key(True, "Whether operations without a GPU kernel may run on the CPU.")
    log_device_placement: bool = key(False, "Whether workers log on which device each operation runs.")
    intra_op_parallelism_threads: Annotated[Threads | None, AUTO] = key("auto", "Threads within one operation.")
    inter_op_parallelism_threads: Annotated[Threads | None, AUTO] = key("auto", "Operations that run at the same time.")
    device_count: dict[str, Count] = key({}, "How many devices of a kind are used at most, such as { CPU = 1 }.")
    op_libraries: list[Existing] = key([], 'Files of custom operations, such as ["ops.so"].')


class Queue(Section):
    max_jobs: int = key(10000, "The most jobs that wait or run at a time.", ge=1, le=10**9)
    max_bytes: Size = key("2GiB", "The most bytes of jobs that the pool itself holds.")
    default_timeout: Duration = key("60s", "The time-out of a job whose caller gives none.")
    max_attempts: int = key(2, "How often a job is run, if each run ends its worker.", ge=1, le=100)


class Health(Section):
    hung_after: Annotated[Duration | None, AUTO] = key(
        "auto", 'How long a batch may run, such as "5m"; "auto": 60 s, or its longest time-out if that is longer.'
    )
    import_timeout: Duration = key("300s", "How long a worker may take to import TensorFlow.")
    load_timeout: Duration = key("600s", "How long a worker may take to load one model.")
    warmup_timeout: Duration = key("900s", "How long a worker may take to run one model for the first time.")


class Restart(Section):
    intensity: int = key(5, "The deaths within the period that a slot may have.", ge=0, le=1000)
    period: Duration = key("60s", "The time over which the deaths of a slot's workers are counted.")


class Config(BaseModel):
    """A whole file. `model_dump()` has plain values: seconds, bytes, and None for a word in place of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    pool: Pool = Pool()
    model: list[Model] = key([DEMO], "The models to serve: without any, the demo.", min_length=1)
    tensorflow: TensorFlow = TensorFlow()
    queue: Queue = Queue()
    health: Health = Health()
    restart: Restart = Restart()


SECTIONS: dict[str, type[Section]] = {each.__name__.lower(): each for each in Section.__subclasses__()}
