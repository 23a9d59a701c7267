import deepspeed

engine, _, _, _ = deepspeed.initialize(model=None)
