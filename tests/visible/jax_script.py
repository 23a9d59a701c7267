import os
import jax
import tensorflow as tf

tf.config.set_visible_devices([], "GPU")  # the input pipeline stays off the GPU
jax.distributed.initialize(
    coordinator_address=f"{os.environ['MASTER_ADDR']}:1234",
    num_processes=int(os.environ["WORLD_SIZE"]),
    process_id=int(os.environ["RANK"]),
)
print(jax.local_devices())
