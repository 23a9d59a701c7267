"""JAX finds its processes by mpi4py, and sums over all of them."""

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(cluster_detection_method="mpi4py")

import jax.numpy as jnp
from jax.experimental import multihost_utils

ranks = multihost_utils.process_allgather(jnp.array([float(jax.process_index())]))
print(
    f"process {jax.process_index()} of {jax.process_count()},"
    f" {jax.device_count()} devices, sum {int(ranks.sum())}",
    flush=True,
)
jax.distributed.shutdown()
