"""TensorFlow as a worker's backend: files become models, arrays become arrays.

Settings and feeds come in; arrays, or errors in the words of `workers.backend`, go out. It imports TensorFlow.

`model` loads a model of any format, prepares and runs it. `rows` proves that rows are independent, where `row_values`
is what tensors hold, and `row_rules` what ops make of it. `devices` puts nodes on devices. `graph` judges what a run
may do, `errors` what TensorFlow raises.
"""
