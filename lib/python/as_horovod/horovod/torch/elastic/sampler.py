from berth.torch.elastic.sampler import *  # noqa: F401,F403
