"""TensorFlow Serving's REST API: requests below `/v1` come in, jobs of the public client go out, JSON returns.

    path ──► what is asked ──► body: JSON ──► arrays of the signature's dtypes ──► job ──► arrays ──► JSON
                                    └─ examples: one `tf.Example` each ─┘

It reads and writes what TensorFlow Serving does, and knows nothing of sockets. It never imports TensorFlow.
"""

from pool.gateway.serving.serving import Serving

__all__ = ["Serving"]
