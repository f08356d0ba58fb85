"""Models whose rows are independent."""

import keras
import tensorflow as tf

from proof.making import spec, traced

L = keras.layers
INTS = {"dtype": "int32"}


def model(*layers):
    return lambda: keras.Sequential([L.Input(layers[0][0], **layers[0][1]), *layers[1:]])


def shape(*sizes, **options):
    return sizes, options


def encoder():
    tokens = L.Input((None,), **INTS)
    x = L.Embedding(50, 16, mask_zero=True)(tokens)
    x = x + L.MultiHeadAttention(2, 8)(x, x)
    x = L.Dense(16, "gelu")(L.LayerNormalization()(x))
    return keras.Model(tokens, L.Dense(2)(L.GlobalAveragePooling1D()(x)))


def decoder(length):
    tokens = L.Input((length,), **INTS)
    x = L.Embedding(50, 16)(tokens)
    x = L.LayerNormalization()(x)
    x = x + L.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    return keras.Model(tokens, L.Dense(50)(x + L.Dense(16)(L.Dense(32, "relu")(x))))


def tabular():
    numbers, kind = L.Input((3,), name="numbers"), L.Input((1,), dtype="int64", name="kind")
    joined = L.Concatenate()([numbers, L.Flatten()(L.Embedding(10, 4)(kind))])
    return keras.Model([numbers, kind], L.Dense(1, "sigmoid")(joined))


def vision_transformer():
    image = L.Input((16, 16, 3))
    x = L.Reshape((16, 12))(L.Conv2D(12, 4, strides=4)(image))
    x = x + L.Embedding(16, 12)(keras.ops.arange(16))
    x = x + L.MultiHeadAttention(2, 6)(L.LayerNormalization()(x), x)
    return keras.Model(image, L.Dense(5, "softmax")(L.Flatten()(x)))


def application(name, size):
    return lambda: getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=5)


APPLICATIONS = {"MobileNetV2": 64, "ResNet50": 64, "EfficientNetB0": 64, "DenseNet121": 64}
LARGE = {"MobileNetV3Small": 64, "EfficientNetV2B0": 32, "ConvNeXtTiny": 32, "NASNetMobile": 32, "VGG16": 32}
LARGE |= {"InceptionV3": 75, "Xception": 71}
ARCHITECTURES = {
    **{name: application(name, size) for name, size in {**APPLICATIONS, **LARGE}.items()},
    "MLP": model(shape(8), L.Dense(16, "relu"), L.BatchNormalization(), L.Dropout(0.5), L.Dense(3, "softmax")),
    "CNN": model(shape(28, 28, 1), L.Conv2D(4, 3), L.MaxPool2D(), L.Flatten(), L.Dense(10)),
    "transformer encoder with mask": encoder,
    "decoder of fixed length": lambda: decoder(12),
    "decoder of any length": lambda: decoder(None),
    "vision transformer": vision_transformer,
    "Conv1D": model(shape(20, 4), L.Conv1D(8, 3, padding="causal"), L.GlobalMaxPool1D(), L.Dense(1)),
    "Conv3D": model(shape(6, 6, 6, 1), L.Conv3D(2, 3), L.AveragePooling3D(2), L.Flatten(), L.Dense(1)),
    "U-net": model(
        shape(16, 16, 3),
        L.Conv2D(4, 3, padding="same", strides=2),
        L.Conv2DTranspose(4, 3, strides=2, padding="same"),
        L.UpSampling2D(),
        L.ZeroPadding2D(),
        L.Conv2D(1, 1),
    ),
    "group normalisation": model(shape(8, 8, 4), L.GroupNormalization(2), L.SeparableConv2D(3, 3)),
    "tabular with embedding": tabular,
    "StringLookup": model(
        shape(1, dtype="string"),
        L.StringLookup(vocabulary=["a", "b"]),
        L.CategoryEncoding(4, output_mode="one_hot"),
        L.Dense(1),
    ),
    "Hashing": model(shape(1, dtype="string"), L.Hashing(10), L.Embedding(10, 2), L.Flatten()),
    "Discretization": model(shape(2), L.Discretization([0.0, 1.0]), L.Embedding(3, 2), L.Flatten()),
    "Normalization, Permute": model(
        shape(6), L.Normalization(mean=0.0, variance=1.0), L.Reshape((2, 3)), L.Permute((2, 1)), L.Flatten()
    ),
    "LSTM": model(shape(5, 3), L.LSTM(4), L.Dense(1)),
    "GRU, bidirectional": model(shape(5, 3), L.Bidirectional(L.GRU(4, return_sequences=True)), L.Dense(1)),
    "LSTM over masked tokens": model(shape(None, **INTS), L.Embedding(9, 3, mask_zero=True), L.LSTM(4), L.Dense(1)),
    "ConvLSTM": model(shape(3, 8, 8, 1), L.ConvLSTM2D(2, 3)),
    "GRU, unrolled": model(shape(5, 3), L.GRU(4, unroll=True), L.Dense(1)),
}


TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1]), -1)


def of_example(records):
    return tf.io.parse_example(records, {"a": tf.io.FixedLenFeature([3], tf.float32)})["a"] * 2.0


STRING = spec(dtype=tf.string)
FUNCTIONS = {
    "image resize": (
        lambda x: tf.image.resize(tf.cast(x, tf.float32) / 255.0, [8, 8]),
        spec(None, None, 3, dtype=tf.uint8),
    ),
    "vocabulary table": (lambda x: tf.one_hot(TABLE.lookup(tf.strings.lower(x)) + 1, 3), STRING),
    "parse_example, dense": (of_example, STRING),
    "several inputs": (lambda x, y: tf.concat([x, y], 1) @ tf.ones([5, 2]), spec(2), spec(3, name="y")),
    "reshape by tf.shape": (
        lambda x: tf.reshape(tf.transpose(tf.reshape(x, [tf.shape(x)[0], 2, 3]), [0, 2, 1]), [-1, 6]),
        spec(6),
    ),
    "flat and back": (lambda x: tf.reshape(tf.reshape(x, [-1, 3]) @ tf.ones([3, 3]), [-1, 4, 3]), spec(4, 3)),
    "sub-pixel convolution": (lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 2), 4), spec(4, 4, 4)),
    "central crop": (lambda x: tf.image.central_crop(x, 0.5), spec(8, 8, 3)),
    "slice by sizes": (lambda x: tf.slice(x, [0, 1], [tf.shape(x)[0], tf.shape(x)[1] - 1]), spec(None)),
    "ensured shape": (lambda x: tf.ensure_shape(x, [None, 4]), spec(4)),
    "constant column": (lambda x: tf.concat([tf.fill([tf.shape(x)[0], 1], 1.0), x], 1), spec(2)),
}


# What stops their proof. All but the last have independent rows.
STOPPED = {
    "SpaceToBatchND": (lambda x: tf.nn.convolution(x, tf.ones([3, 3, 2, 1]), dilations=[2, 2]), spec(8, 8, 2)),
    "StringSplitV2": (keras.layers.TextVectorization(vocabulary=["a"], output_sequence_length=4), STRING),
    "CombinedNonMaxSuppression": (
        lambda x, y: tf.image.combined_non_max_suppression(x[:, :, None], y, 5, 5)[0],
        spec(9, 4),
        spec(9, 3, name="y"),
    ),
    "MatMul": (lambda user, item: tf.nn.softmax(user @ tf.transpose(item)), spec(4), spec(4, name="y")),
}


def concrete(name):
    """The function of one of the models."""
    if name in FUNCTIONS:
        function, *specs = FUNCTIONS[name]
        return traced(function, *specs)
    made = ARCHITECTURES[name]()
    specs = [tf.TensorSpec(each.shape, each.dtype, each.name) for each in made.inputs]
    found = traced(lambda *inputs: made([*inputs] if len(inputs) > 1 else inputs[0], training=False), *specs)
    found.graph.made = made  # the function refers to its variables weakly
    return found
