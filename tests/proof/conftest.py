"""One import of TensorFlow for all tests. What it warns of is not theirs."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import proof.making  # noqa: F401
