import torch
import torch.distributed as dist

dist.init_process_group("nccl")
device_id = dist.get_rank() % torch.cuda.device_count()
model = torch.nn.Linear(8, 1).to(device_id)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device_id])
