"""What a SUBMIT may say.

Whatever is refused here never comes to the core, so no number that it makes of these can be one that cannot travel.
"""

from pool.wire.calls import Names
from pool.wire.codec import BadFrame
from pool.wire.jobs import Submit

__all__ = ["MOST_NUMBER", "MOST_OUTPUTS", "check_names", "check_numbers"]

MOST_NUMBER = (1 << 63) - 1  # of a job: what msgpack, JSON's readers and every other language can hold
MOST_OUTPUTS = 2048  # the client's own bound, 32 KiB of names, is met first by names of the usual length
NAME_CHARS = 1000  # as the client has it


def check_numbers(submit: Submit) -> None:
    """Raises `BadFrame` for what no client of this release says. The core checks timeout and priority."""
    if submit.job > MOST_NUMBER or submit.origin > MOST_NUMBER:
        raise BadFrame(f"job {submit.job}, origin {submit.origin}: numbers are from 0 to {MOST_NUMBER}")
    if submit.weight > 1 and (submit.rows is None or submit.rows < submit.weight):
        raise BadFrame(f"{submit.weight} jobs in one message with {submit.rows or 'no'} rows: each has one at least")


def check_names(names: Names) -> None:
    """Raises `BadFrame` for what no client of this release says. The core looks the names up."""
    outputs = names.outputs
    for name in (names.model, names.signature, names.device, names.version):
        if isinstance(name, str) and len(name) > NAME_CHARS:
            raise BadFrame(f"a name of {len(name)} characters, at most {NAME_CHARS} are taken")
    if outputs:
        if len(outputs) > MOST_OUTPUTS:
            raise BadFrame(f"{len(outputs)} outputs, at most {MOST_OUTPUTS} are taken")
        if len(set(outputs)) < len(outputs):
            raise BadFrame(f"{len(outputs) - len(set(outputs))} of its outputs are named twice")
        if max(map(len, outputs)) > NAME_CHARS:
            raise BadFrame(f"an output's name of {max(map(len, outputs))} characters, at most {NAME_CHARS} are taken")
