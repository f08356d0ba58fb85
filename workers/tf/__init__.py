"""The only code that imports TensorFlow: files become models, feeds become answers.

In come settings of a model and batches of arrays. Out go arrays, and errors in the words of `workers.backend`. It never
speaks with the pool, and never falls back from a GPU to the CPU.
"""
