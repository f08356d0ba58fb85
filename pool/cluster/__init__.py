"""Pools on the machines of a Ray cluster: one on each, which Ray places and keeps alive.

In come the keys of `[cluster]` and what Ray says of its nodes. Out go actors: a keeper for the cluster, and for each
machine one that is its pool, which it starts as a process. It never carries a job: clients speak to the pools. It alone
imports Ray, and is itself imported only in processes that Ray may end: actors, commands, and the one for discovery.
"""

from pool.cluster.choice import Wanted
from pool.cluster.cluster import Cluster
from pool.cluster.keeper import Kept, Placing

__all__ = ["Cluster", "Kept", "Placing", "Wanted"]
