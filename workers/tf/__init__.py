"""TensorFlow as a worker's backend: files become models, arrays become arrays.

In come the settings of a model, and feeds that fit its signatures. Out go arrays, or errors in the words of
`workers.backend`. It never speaks with the pool, and it never falls back from a GPU to the CPU. Importing it imports
TensorFlow, which takes seconds.

`backend` loads a model of any format and gives it a Session; `model` prepares and runs it. `rows` proves by the rules
of `row_rules` that rows are independent. `files` says what lies at a path; `saved_model`, `bare_graph` and `keras` read
it; `signature_defs` binds names to tensors of the graph. `devices` puts nodes on devices, and tells where they ran.
`graph` judges what a run may do, `errors` what TensorFlow raises. `library` is the only module that imports TensorFlow.
"""

from workers.tf.backend import Backend

__all__ = ["Backend"]
