import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    device = torch.device("cuda", gpu)
    model = DDP(torch.nn.Linear(8, 1).to(device), device_ids=[gpu])


main()
