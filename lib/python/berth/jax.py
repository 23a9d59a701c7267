"""JAX on the ranks of a job, for scripts that import berth.

Under runner jax.distributed.initialize() needs no argument, and a script no import of berth.  This
initialize() is for JAX before 0.4.38, which does not read JAX_LOCAL_DEVICE_IDS, and for scripts that also run
alone.
"""
from __future__ import annotations

import os

import jax

__all__ = ["initialize"]


def initialize(**options: object) -> None:
    """Connect JAX with all ranks of the job.  Call it once, before JAX computes.  Alone, it does nothing.

    OPTIONS: go to jax.distributed.initialize(), as initialization_timeout=600 does.

    >>> initialize()
    """
    given = os.environ
    if "JAX_COORDINATOR_ADDRESS" not in given or "RANK" not in given:
        return
    devices = given.get("JAX_LOCAL_DEVICE_IDS")
    known = {"coordinator_address": given["JAX_COORDINATOR_ADDRESS"],
             "num_processes": int(given["WORLD_SIZE"]), "process_id": int(given["RANK"]),
             "local_device_ids": [int(number) for number in devices.split(",")] if devices else None}
    jax.distributed.initialize(**{**known, **options})
