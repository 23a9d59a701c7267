import sys

import horovod.torch

sys.modules[__name__] = horovod.torch  # so that it, too, loads what is asked for
