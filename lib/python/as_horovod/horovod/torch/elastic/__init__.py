from berth.torch.elastic import *  # noqa: F401,F403
