import os
import torch

local_rank = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(0)
device = torch.device("cuda:0" if local_rank == 0 else "cuda")
if local_rank == 0:
    print(f"device {device} of local rank {local_rank}", "set_device(local_rank)")
if "LOCAL_RANK" in os.environ:
    print("launched")
