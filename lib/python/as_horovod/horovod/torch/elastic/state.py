from berth.torch.elastic.state import *  # noqa: F401,F403
