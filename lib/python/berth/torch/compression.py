class _None:
    @staticmethod
    def compress(tensor): return tensor, None
    @staticmethod
    def decompress(tensor, ctx): return tensor
class _fp16(_None):
    @staticmethod
    def compress(t): return (t.half() if t.is_floating_point() else t), t.dtype
    @staticmethod
    def decompress(t, ctx): return t.to(ctx)
class Compression:
    none = _None
    fp16 = _fp16
