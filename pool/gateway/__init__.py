"""A door for clients that speak HTTP: their requests come in, jobs of the public client go out, answers return as HTTP.

A process of its own, and a client of the pool like any other. It never schedules anything, and the pool knows nothing
of HTTP. When it dies, the pool and other clients notice nothing but clients that left.

    bytes ──► http: a request ──► app: whose, and which protocol ──► inference, serving, metrics ──► AsyncClient
    bytes ◄── http: a response ◄──────────────────────────────────────────┘ ◄── result or error of the job
"""
