"""The sizes that the pool knows without numpy are numpy's."""

from pool.wire.dtypes import ITEM_BYTES, STRING
from pool.wire.tensors import DTYPES


def test_each_dtype_has_the_size_that_numpy_gives_it() -> None:
    assert DTYPES.keys() <= {*ITEM_BYTES, STRING}
    for name, dtype in DTYPES.items():
        if name != STRING:
            assert ITEM_BYTES[name] == dtype.itemsize, name
