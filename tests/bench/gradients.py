"""gradients.c through Horovod's PyTorch API: 64 tensors of 16 KiB, submitted one by one, then
waited for; prints the median time of a step in microseconds."""

import sys
import time

import horovod.torch as hvd
import torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
hvd.init()
torch.set_num_threads(1)
tensors = [torch.zeros(4096) for _ in range(64)]
times = []
for _ in range(steps):
    before = time.perf_counter()
    for handle in [hvd.allreduce_async_(x, name=f"gradient{i}", op=hvd.Sum) for i, x in enumerate(tensors)]:
        hvd.synchronize(handle)
    times.append((time.perf_counter() - before) * 1e6)
if hvd.rank() == 0:
    print(f"64 x 16384: median {sorted(times)[steps // 2]:.1f} us", flush=True)
