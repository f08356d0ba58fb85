"""A backend without TensorFlow: models that double, echo, wait, fail, hang or crash as they are told.

In come and out go what TensorFlow's backend would take and give. It is for tests and benchmarks, ships with the code,
and never pretends to be a model that a user has.
"""
