"""The Open Inference Protocol v2 with Triton's binary tensors, as `tritonclient.http` speaks it.

    request ──► plan: what its JSON header asks for ──► arrays over the body ──► a job
    response ◄── head, and the outputs' bytes as they lie ◄── its result ◄─────────┘

In come requests below /v2, out go responses. It never schedules, and it never opens a file that a request names.
"""

from pool.gateway.inference.protocol import Inference

__all__ = ["Inference"]
