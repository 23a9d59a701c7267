from berth.torch.compression import *  # noqa: F401,F403
