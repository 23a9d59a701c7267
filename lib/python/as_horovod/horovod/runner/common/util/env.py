"""Variables of ranks."""
import os


def get_env_rank_and_size():
    """(rank, ranks) of this process, before init(); (0, 1) where no launcher says it."""
    return int(os.environ.get("HOROVOD_RANK", 0)), int(os.environ.get("HOROVOD_SIZE", 1))
