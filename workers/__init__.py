"""A worker: the process of one slot, with its own Session on its own device.

The link brings settings, models and descriptors of shared memory; each lane's ZeroMQ socket brings batches. Out go
answers, and on the link what the worker is doing. A worker never outlives its pool, never touches a device that it was
not given, and never answers a job twice.

`process` starts and ends it, `calls` holds what jobs with equal specs share, `lane` runs batches, `arenas` maps the
clients' memory, `backend` says what is asked of `tf` and `stub`, which run the models.
"""
