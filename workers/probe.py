"""`python -P -m workers.probe GPUS`: TensorFlow multiplies on a worker's device, for `pool doctor`.

The last line that it prints is what TensorFlow is, or of its errors why it ended with another status.
"""

import os
import sys

import numpy as np

SIDE = 512


def main() -> None:
    from workers.tf.library import open_session, tf

    gpus, config = int(sys.argv[1]), tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    session = open_session(config, gpus)
    with session.graph.as_default(), tf.device("/gpu:0" if gpus else "/cpu:0"):
        fed = tf.compat.v1.placeholder(tf.float32, [SIDE, SIDE])  # of a constant the product would be folded
        product = session.run(tf.matmul(fed, fed), {fed: np.ones([SIDE, SIDE])})
    if (product != SIDE).any():
        raise ValueError(f"a product of ones is {product.min()} to {product.max()}, but should be {SIDE}")
    cuda = tf.sysconfig.get_build_info().get("cuda_version")
    os.write(1, f"\nTensorFlow {tf.__version__}, built {f'for CUDA {cuda}' if cuda else 'without CUDA'}".encode())
    os._exit(0)  # its teardown may hang


if __name__ == "__main__":
    main()
