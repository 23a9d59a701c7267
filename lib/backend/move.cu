// The kernel of move.h, the source of move_ptx.h (make ptx).  One row of blocks does one piece.
//
// OUT = IN / DIVIDE * TIMES, as kern.h has it: f16 and bf16 by way of f32, each result rounded to
// nearest even.
#include <stdint.h>

enum { BYTES, F32, F64, F16, BF16, PIECES = 128 };

struct args {
	uint32_t type, pieces;
	double times, divide;
	struct {
		uint64_t from, to, bytes;
	} piece[PIECES];
};

static __device__ float of_f16(uint16_t v)
{
	float f;

	asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "h"(v));
	return f;
}

static __device__ uint16_t to_f16(float f)
{
	uint16_t v;

	asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(v) : "f"(f));
	return v;
}

static __device__ float of_bf16(uint16_t v)
{
	return __uint_as_float((uint32_t)v << 16);
}

static __device__ uint16_t to_bf16(float f)
{
	const uint32_t bits = __float_as_uint(f);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T> static __device__ void copy(const T *in, T *out, uint64_t n, uint64_t i, uint64_t step)
{
	for (; i < n; i += step)
		out[i] = in[i];
}

extern "C" __global__ void berth_move(const __grid_constant__ struct args a)
{
	const auto &p = a.piece[blockIdx.y];
	const uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	const uint64_t step = gridDim.x * (uint64_t)blockDim.x;
	const float times = (float)a.times, divide = (float)a.divide;
	const uint16_t *in = (const uint16_t *)p.from;
	uint16_t *out = (uint16_t *)p.to;

	switch (a.type) {
	case BYTES:
		if ((p.from | p.to | p.bytes) & 15)
			copy((const uint8_t *)p.from, (uint8_t *)p.to, p.bytes, first, step);
		else
			copy((const uint4 *)p.from, (uint4 *)p.to, p.bytes / 16, first, step);
		return;
	case F32:
		for (uint64_t i = first; i < p.bytes / 4; i += step)
			((float *)p.to)[i] = __fmul_rn(__fdiv_rn(((const float *)p.from)[i], divide), times);
		return;
	case F64:
		for (uint64_t i = first; i < p.bytes / 8; i += step)
			((double *)p.to)[i] = __dmul_rn(__ddiv_rn(((const double *)p.from)[i], a.divide), a.times);
		return;
	case F16:
		for (uint64_t i = first; i < p.bytes / 2; i += step)
			out[i] = to_f16(__fmul_rn(__fdiv_rn(of_f16(in[i]), divide), times));
		return;
	case BF16:
		for (uint64_t i = first; i < p.bytes / 2; i += step)
			out[i] = to_bf16(__fmul_rn(__fdiv_rn(of_bf16(in[i]), divide), times));
	}
}
