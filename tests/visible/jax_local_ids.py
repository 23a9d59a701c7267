import os
import jax

jax.distributed.initialize(local_device_ids=[int(os.environ["LOCAL_RANK"])])
