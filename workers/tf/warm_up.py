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

__all__ = ["Rehearsal", "first_recorded", "recorded", "recorded_rows", "rehearsals"]

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
    good, bad = 0, []
    for found in read_samples(file, signatures):
        if isinstance(found, BadSample):
            bad.append(found)
        else:
            good += 1
            yield found
    if bad:
        text = "model %s: %d of %d recorded requests in %s cannot warm it up; the first, because %s"
        logger.warning(text, model, len(bad), good + len(bad), file, bad[0])


def first_recorded(file: Path | None, signatures: Mapping[str, Signature]) -> dict[str, Sample]:
    """The first request that fits, of each signature that has one. Never raises, and says nothing."""
    found: dict[str, Sample] = {}
    for each in read_samples(file, signatures):
        if isinstance(each, Sample):
            found.setdefault(each.signature, each)
    return found


def recorded_rows(file: Path | None, name: str, signature: Signature, rows: int) -> dict[str, Array] | None:
    """So many rows of the requests in the file that are of the first one's form, repeated if need be. Never raises."""
    found: dict[str, list[Array]] = {}
    for each in read_samples(file, {name: signature}):
        if isinstance(each, BadSample) or len({array.shape[:1] for array in each.feeds.values()}) != 1:
            continue
        if any(found[key][0].shape[1:] != array.shape[1:] for key, array in each.feeds.items() if found):
            continue
        for key, array in each.feeds.items():
            found.setdefault(key, []).append(array)
        if sum(map(len, found[next(iter(found))])) >= rows:
            break
    joined = {key: np.concatenate(arrays) for key, arrays in found.items()}
    if not joined or not all(len(array) for array in joined.values()):
        return None
    return {key: _with_rows(array, rows) for key, array in joined.items()}


def rehearsals(signature: Signature, batch_sizes: Sequence[int], sample: Sample | None) -> Iterator[Rehearsal]:
    """The smallest batch first; the rows of the sample repeated or cut, or zeros without one.

    One alone where an axis 0 of the inputs is of fixed size. Without a sample none where an input is of unknown rank,
    or a part of a ragged or sparse tensor, of which zeros are none.
    """
    specs = signature.inputs
    shapes = [spec.shape for spec in specs.values()]
    sized = bool(shapes) and all(shape is not None and shape[:1] == (-1,) for shape in shapes)
    for rows in batch_sizes if sized else (None,):
        if sample is not None and (rows is None or all(len(array) for array in sample.feeds.values())):
            yield Rehearsal({name: _with_rows(array, rows) for name, array in sample.feeds.items()}, rows)
        elif None not in shapes and not signature.composite:
            yield Rehearsal({name: blank(spec, rows or 1) for name, spec in specs.items()}, rows)


def _with_rows(array: Array, rows: int | None) -> Array:
    return array if rows is None else np.take(array, np.arange(rows) % len(array), axis=0)
