"""A client of several pools: which of them gets a job, and which one next if that pool does not answer it.

In come jobs, and what the pools tell of themselves. Out goes each job to an ordinary connection to one pool. It never
sends or reads a message itself, and never decides how a job ends that its pool has answered. A client of one pool does
not come here.
"""

from pool.client.spread.spread import Spread

__all__ = ["Spread"]
