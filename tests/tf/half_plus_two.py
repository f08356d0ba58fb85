"""A model like TensorFlow Serving's half_plus_two and half_plus_three, with signatures of each of its methods."""

from pathlib import Path
from typing import Any

from workers.tf.library import tf

PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))


def save(folder: Path, plus: float) -> Path:
    """y = x / 2 + `plus`, of a number in a row or of the feature "x" of an example; y3 is the same of x2, plus 3."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        a, b, c = (
            v1.get_variable(name, initializer=value, use_resource=False)
            for name, value in (("a", 0.5), ("b", plus), ("c", 3.0))
        )
        examples = v1.placeholder(tf.string, name="tf_example")
        features = {
            "x": tf.io.FixedLenFeature([1], tf.float32),
            "x2": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0]),
        }
        parsed = tf.io.parse_example(tf.reshape(examples, [-1]), features)
        x, x2 = tf.identity(parsed["x"], name="x"), tf.identity(parsed["x2"], name="x2")
        y, y3 = tf.add(a * x, b, name="y"), tf.add(a * x2, c, name="y3")

        def definition(takes: dict[str, Any], gives: dict[str, Any], method: str) -> Any:
            info = v1.saved_model.utils.build_tensor_info
            inputs, outputs = ({name: info(tensor) for name, tensor in each.items()} for each in (takes, gives))
            return v1.saved_model.signature_def_utils.build_signature_def(inputs, outputs, method)

        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": definition({"x": x}, {"y": y}, PREDICT),
                "regress_x_to_y": definition({"inputs": examples}, {"outputs": y}, REGRESS),
                "regress_x2_to_y3": definition({"inputs": x2}, {"outputs": y3}, REGRESS),
                "classify_x_to_y": definition({"inputs": examples}, {"scores": y}, CLASSIFY),
                REGRESS: definition({"inputs": examples}, {"outputs": y}, REGRESS),
            },
        )
        builder.save()
    return folder
