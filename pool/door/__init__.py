"""The door: HTTP and gRPC come in, a pool's answers go out. A process of its own, and an ordinary client of the pool.

    HTTP ─ uvicorn ─► http ─► app: hosts, tokens, bodies ─► inference, serving, metrics, page ─┐
                                                                                              ├─► door ─► AsyncClient
    gRPC ─ grpc.aio ─► rpc: tokens, messages ─────────────► inference_grpc, serving_grpc ──────┘

`inference` is the Open Inference Protocol, `serving` TensorFlow Serving's. It never imports TensorFlow, it holds no job
that the pool does not know, and it may end at any time without anybody noticing but those whose requests it had.
"""
