import utils
from torch.nn.parallel import DistributedDataParallel

args = utils.init_distributed()
model = DistributedDataParallel(utils.model(), device_ids=[args.gpu])
