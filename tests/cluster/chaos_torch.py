"""A rank of a job of the chaos runner: DDP-like steps with a DataLoader of two workers."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        return torch.ones(8) * (i % 7)


torch.set_num_threads(1)
life = float(sys.argv[1])
ready = os.environ["CHAOS_DIR"] + "/ready." + os.environ["RANK"]
dist.init_process_group("gloo")
until = None
for batch in DataLoader(Numbers(), batch_size=4, num_workers=2):
    over = torch.tensor(float(until is not None and time.monotonic() > until))
    dist.all_reduce(over)
    if over.item():
        break
    if until is None:
        with open(ready + ".new", "w") as f:
            f.write(f"{os.getpid()}\n")
        os.rename(ready + ".new", ready)
        until = time.monotonic() + life
dist.destroy_process_group()
