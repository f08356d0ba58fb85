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

__all__ = ["Rehearsal", "first_recorded", "recorded", "rehearsals"]

logger = logging.getLogger("workers.tf")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`rows`: of the batch that is tried; None where the signature has no rows."""

    feeds: Mapping[str, Array]
    rows: int | None


def recorded(model: str, file: Path | None, signatures: Mapping[str, Signature]) -> Iterator[Sample]:
    """The requests in the file that fit the signatures, one at a time, for they may be large. Never raises.

    At the end it says in one line how many do not fit, and why.
    """
    if file is None or not file.exists():
        return
    good, bad = 0, []
    for found in read_samples(file, signatures):
        if isinstance(found, BadSample):
            bad.append(found)
        else:
            good += 1
            yield found
    if bad:
        text = "model %s: %d of %d recorded requests in %s are not used to warm it up, the first because %s"
        logger.warning(text, model, len(bad), good + len(bad), file, bad[0])


def first_recorded(file: Path | None, signatures: Mapping[str, Signature]) -> dict[str, Sample]:
    """The first request that fits, of each signature that has one. Never raises, and says nothing."""
    found: dict[str, Sample] = {}
    for each in read_samples(file, signatures) if file is not None and file.exists() else ():
        if isinstance(each, Sample):
            found.setdefault(each.signature, each)
    return found


def rehearsals(signature: Signature, batch_sizes: Sequence[int], sample: Sample | None) -> Iterator[Rehearsal]:
    """The smallest batch first; the rows of the sample repeated or cut, or zeros without one.

    One alone where an axis 0 of the inputs is of fixed size; none where an input is of unknown rank and there is no
    sample.
    """
    specs = signature.inputs
    shapes = [spec.shape for spec in specs.values()]
    sized = bool(shapes) and all(shape is not None and shape[:1] == (-1,) for shape in shapes)
    for rows in batch_sizes if sized else (None,):
        if sample is not None and (rows is None or all(len(array) for array in sample.feeds.values())):
            yield Rehearsal({name: _with_rows(array, rows) for name, array in sample.feeds.items()}, rows)
        elif None not in shapes:
            yield Rehearsal({name: blank(spec, rows or 1) for name, spec in specs.items()}, rows)


def _with_rows(array: Array, rows: int | None) -> Array:
    return array if rows is None else np.take(array, np.arange(rows) % len(array), axis=0)
