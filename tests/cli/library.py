"""What Python's ctypes can do with libberth: library.py LIBRARY; rank 0 prints the sum."""
import ctypes
import sys

berth = ctypes.CDLL(sys.argv[1])
berth.berth_version.restype = ctypes.c_char_p


class Desc(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("set", ctypes.c_void_p),
                ("in_", ctypes.c_void_p), ("out", ctypes.c_void_p), ("count", ctypes.c_uint64),
                ("type", ctypes.c_int), ("op", ctypes.c_int), ("prescale", ctypes.c_void_p),
                ("postscale", ctypes.c_void_p), ("root", ctypes.c_int), ("in_counts", ctypes.c_void_p),
                ("out_counts", ctypes.c_void_p), ("timeout_ms", ctypes.c_int64),
                ("priority", ctypes.c_int)]


F64 = 11
x = (ctypes.c_double * 3)(1, 2, 3)
d = Desc(size=ctypes.sizeof(Desc), in_=ctypes.addressof(x), out=ctypes.addressof(x), count=3, type=F64)
if berth.berth_init(None) or berth.berth_allreduce(ctypes.byref(d)):
    sys.exit("berth failed")
if berth.berth_rank() == 0:
    print(berth.berth_version().decode(), *x)
sys.exit(berth.berth_shutdown())
