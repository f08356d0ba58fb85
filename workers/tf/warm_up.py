"""What a model is run on before it is READY: each signature at each batch size, on zeros or on recorded requests."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pool.wire.signatures import Signature
from pool.wire.tensors import Array
from workers.tf.feeds import blank
from workers.tf.samples import BadSample, Sample, read_samples

__all__ = ["Rehearsal", "recorded", "rehearsals"]

logger = logging.getLogger("workers.tf")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`rows`: of the batch that is tried; None for a signature without rows, and for a recorded request as it is."""

    feeds: Mapping[str, Array]
    outputs: tuple[str, ...]
    rows: int | None


def recorded(model: str, file: Path | None, signatures: Mapping[str, Signature]) -> list[Sample]:
    """The requests in the file that fit the signatures; says in one line how many do not, and why. Never raises."""
    if file is None or not file.exists():
        return []
    read = list(read_samples(file, signatures))
    bad = [each for each in read if isinstance(each, BadSample)]
    if bad:
        text = "model %s: %d of %d recorded requests in %s are not used to warm it up, the first because %s"
        logger.warning(text, model, len(bad), len(read), file, bad[0])
    return [each for each in read if isinstance(each, Sample)]


def rehearsals(signature: Signature, batch_sizes: Sequence[int], samples: Sequence[Sample]) -> Iterator[Rehearsal]:
    """The first has the fewest rows and all outputs. None where an input is of unknown rank and nothing was recorded.

    Where axis 0 of all inputs is of unknown size, at each batch size, the first request repeated or cut; and each
    request as it was recorded.
    """
    specs = signature.inputs
    outputs = tuple(signature.outputs)
    sized = bool(specs) and all(spec.shape is not None and spec.shape[:1] == (-1,) for spec in specs.values())
    known = all(spec.shape is not None for spec in specs.values())
    for rows in batch_sizes if sized else (None,):
        if samples and (rows is None or all(len(array) for array in samples[0].feeds.values())):
            found = samples[0].feeds
            yield Rehearsal({name: _with_rows(array, rows) for name, array in found.items()}, outputs, rows)
        elif known:
            yield Rehearsal({name: blank(spec, rows or 1) for name, spec in specs.items()}, outputs, rows)
    for sample in samples if sized else samples[1:]:
        yield Rehearsal(sample.feeds, sample.outputs, None)


def _with_rows(array: Array, rows: int | None) -> Array:
    return array if rows is None else np.take(array, np.arange(rows) % len(array), axis=0)
