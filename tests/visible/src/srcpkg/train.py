import os
x = "cuda:%d" % int(os.environ["LOCAL_RANK"])
