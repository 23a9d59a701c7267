import os
import torch

rank = int(os.environ["RANK"])
t = torch.zeros(3).cuda(rank, non_blocking=True)
