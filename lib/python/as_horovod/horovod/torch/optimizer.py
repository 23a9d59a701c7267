from berth.torch import DistributedOptimizer  # noqa: F401
