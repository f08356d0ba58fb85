"""Inputs and questions come in, arrays and typed errors go out. It runs no model and starts nothing but `start`'s pool.

`client` has the blocking client, `aio` the one for asyncio, `embedded` a pool that lives inside a program. They drive
`channel`: one ZeroMQ socket's jobs and their results; `driver` has those for which a future waits. `inputs` makes
arrays of what callers give, `arena` holds the large ones, `blocks` cuts large inputs and joins their answers.
"""
