"""Makes the SavedModels of `test_serving_tensorflow`, in a process of its own: `python saved_models.py FOLDER`.

FOLDER/half_plus_two/00000123                 like TensorFlow Serving's, with signatures of each of its methods
FOLDER/saved_model_half_plus_three/00000123   the same
FOLDER/native                                 of TensorFlow 2, which calls each signature's method predict
FOLDER/two                                    two inputs, of whose outputs one is a scalar
"""

import sys
from pathlib import Path
from typing import Any

from workers.tf.library import tf

PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))


def make(folder: Path) -> None:
    half_plus(folder / "half_plus_two" / "00000123", 2.0)
    half_plus(folder / "saved_model_half_plus_three" / "00000123", 3.0)
    native(folder / "native")
    two(folder / "two")


def half_plus(folder: Path, plus: float) -> None:
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


def native(folder: Path) -> None:
    module = tf.Module()
    of_examples = [tf.TensorSpec([None], tf.string, name="inputs")]

    def x(examples: Any) -> Any:
        return tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]

    @tf.function(input_signature=of_examples)
    def classify(inputs: Any) -> dict[str, Any]:
        labels = tf.tile(tf.constant([["low", "high"]]), [tf.size(inputs), 1])
        return {"classes": labels, "scores": tf.stack([-x(inputs), x(inputs)], axis=1)}

    @tf.function(input_signature=of_examples)
    def regress(inputs: Any) -> dict[str, Any]:
        return {"outputs": x(inputs) * 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def images(image_bytes: Any) -> dict[str, Any]:
        return {"same_bytes": tf.identity(image_bytes), "text": tf.strings.as_string(tf.strings.length(image_bytes))}

    module.functions = [classify, regress, images]
    signatures = {"classify": classify, "regress": regress, "images": images}
    tf.saved_model.save(module, str(folder), signatures=signatures)


def two(folder: Path) -> None:
    module = tf.Module()
    rows = tf.TensorSpec([None, 3], tf.float32)

    @tf.function(input_signature=[rows, rows])
    def both(a: Any, b: Any) -> dict[str, Any]:
        return {"total": a + b, "sum": tf.reduce_sum(a + b)}

    tf.saved_model.save(module, str(folder), signatures={"serving_default": both})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
