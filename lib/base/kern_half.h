/* kern_half.h - one f16 to f32 and back, to nearest even, for
 * processors without the instructions of F16C, and with the same result. */
#ifndef BERTH_LIB_KERN_HALF_H
#define BERTH_LIB_KERN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_of_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint32_t half_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static inline float f16_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;

	if (rest > 0x7c00) /* no number: a quiet one */
		return half_of_bits(sign | 0x7fc00000 | rest << 13);
	if (rest == 0x7c00)
		return half_of_bits(sign | 0x7f800000);
	if (rest >= 0x400)
		return half_of_bits(sign | ((rest << 13) + (112u << 23)));
	return half_of_bits(sign | half_bits((float)rest * 0x1p-24F));
}

static inline uint16_t float_f16(float f)
{
	uint32_t bits = half_bits(f), sign = bits >> 16 & 0x8000,
		 rest = bits & 0x7fffffff;

	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
	if (rest >= 0x47800000) /* 65536 */
		return (uint16_t)(sign | 0x7c00);
	if (rest <
	    0x38800000) /* 2^-14: adding 0.5 leaves a multiple of 2^-24 below it */
		return (uint16_t)(sign |
				  (half_bits(half_of_bits(rest) + 0.5F) - 0x3f000000));
	return (uint16_t)(sign |
			  (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
}

#endif
