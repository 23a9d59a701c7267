from berth.torch import SyncBatchNorm  # noqa: F401
