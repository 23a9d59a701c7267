# torch.cuda.set_device(LOCAL_RANK) is not needed: runner sets LOCAL_RANK
"""Run me as

    torch.cuda.set_device(local_rank)
    device_ids=[local_rank]
"""
import torch

x = torch.ones(3, device="cuda")  # not f"cuda:{local_rank}"
