"""`python -m walks.digest "program 7" …`: two lines, by which processes agree on programs and on what comes of them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence

from simulation.records import Payload
from simulation.words import JobDone, JobFailed, Kept, Seen, Sent
from walks.programs import Program, program_of, run

__all__ = ["outcomes_of", "programs_of"]


def programs_of(programs: Sequence[Program]) -> str:
    return hashlib.sha256("\n".join(map(repr, programs)).encode()).hexdigest()[:16]


def outcomes_of(programs: Sequence[Program]) -> str:
    """All that the core did, in order."""
    digest = hashlib.sha256()
    for program in programs:
        run(program, validates=False, watch=lambda seen: digest.update(_told(seen).encode()))
    return digest.hexdigest()[:16]


def _told(seen: Seen) -> str:
    match seen:
        case Sent():
            parts = [
                (part.payload.serial, part.start, part.stop) for part in seen.parts if isinstance(part.payload, Payload)
            ]
            return repr(
                (seen.slot, seen.incarnation, seen.lane, seen.batch, seen.model, parts, seen.pad_to, seen.microbatch)
            )
        case JobDone():
            return repr((seen.client, seen.job, seen.payloads))
        case JobFailed():
            return repr((seen.client, seen.job, seen.fault, seen.text))
        case Kept():
            return "kept"
    return str(seen)


if __name__ == "__main__":
    chosen = [program_of(int(walk.split()[1]), 60) for walk in sys.argv[1:]]
    print("programs", programs_of(chosen))  # noqa: T201
    print("outcomes", outcomes_of(chosen))  # noqa: T201
