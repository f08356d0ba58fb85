"""Many jobs of one call, of which several travel in one message: a chunk.

In come the inputs of `map`, `submit_many` and `scatter`, and jobs that happen to leave together; and what the pool
answers to a chunk. Out go chunks, each a job like any other to those who send it, and an answer for each member.
Where the pool gives a chunk back, its members go out again, as smaller chunks or singly. This room never sends, and
never decides whether jobs of a call may travel in chunks: the pool says so.
"""
