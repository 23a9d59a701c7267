import sys

import horovod.tensorflow

sys.modules[__name__] = horovod.tensorflow  # so that it, too, loads what is asked for
