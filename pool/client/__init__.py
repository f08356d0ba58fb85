"""The library in the caller's process: inputs go out as jobs, answers come back.

In come names and arrays, from any number of threads or from an event loop. Out go futures, each of which ends: in a
result, in an error of `pool.errors`, or with its deadline. It never imports TensorFlow, and never starts a process but
for `pool.start`. Its door is `pool` itself, which names what users may rely on.
"""
