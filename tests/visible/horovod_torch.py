import torch
import horovod.torch as hvd

hvd.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
model = torch.nn.Linear(8, 1).cuda()
