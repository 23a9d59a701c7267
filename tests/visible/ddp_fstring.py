import os
local_rank = int(os.environ["LOCAL_RANK"])
device = f"cuda:{local_rank}"
