from berth.torch.functions import *  # noqa: F401,F403
