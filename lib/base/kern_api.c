#include "lib/base/kern.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/kern_set.h"
#include "lib/base/names.def"

static const struct {
	size_t bytes;
	berth_type accumulator;
	bool is_float;
} about[TYPE_COUNT] = {
	[BERTH_U8] = { 1, BERTH_U8, false },
	[BERTH_I8] = { 1, BERTH_I8, false },
	[BERTH_U16] = { 2, BERTH_U16, false },
	[BERTH_I16] = { 2, BERTH_I16, false },
	[BERTH_I32] = { 4, BERTH_I32, false },
	[BERTH_U32] = { 4, BERTH_U32, false },
	[BERTH_I64] = { 8, BERTH_I64, false },
	[BERTH_U64] = { 8, BERTH_U64, false },
	[BERTH_F16] = { 2, BERTH_F32, true },
	[BERTH_BF16] = { 2, BERTH_F32, true },
	[BERTH_F32] = { 4, BERTH_F32, true },
	[BERTH_F64] = { 8, BERTH_F64, true },
	[BERTH_BOOL] = { 1, BERTH_BOOL, false },
	[BERTH_F8_E4M3] = { 1, BERTH_F32, true },
	[BERTH_F8_E5M2] = { 1, BERTH_F32, true },
};

static const char *const types[TYPE_COUNT] = { TYPE_NAMES };
static const char *const ops[OP_COUNT] = { OP_NAMES };

size_t kern_size(berth_type type)
{
	return (unsigned)type < TYPE_COUNT ? about[type].bytes : 0;
}

berth_type kern_accumulator(berth_type type)
{
	return about[type].accumulator;
}

const char *kern_type_name(berth_type type)
{
	return (unsigned)type < TYPE_COUNT ? types[type] : "?";
}

const char *kern_op_name(berth_op op)
{
	return (unsigned)op < OP_COUNT ? ops[op] : "?";
}

/* ---- the set of instructions ---- */

static const struct kern_set *kern_choose(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl") && !getenv("BERTH_NO_AVX512"))
		return &kern_avx512;
	/* every processor with F16C has AVX2, and the other way round */
	if (__builtin_cpu_supports("avx2") && !getenv("BERTH_NO_AVX2"))
		return &kern_avx2;
#endif
	return &kern_base;
}

/* Threads that call this at the same time find the same. */
static const struct kern_set *kern_set_in_use(void)
{
	static const struct kern_set *chosen;
	const struct kern_set *s = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

	if (!s) {
		s = kern_choose();
		__atomic_store_n(&chosen, s, __ATOMIC_RELAXED);
	}
	return s;
}

const char *kern_chosen(void)
{
	return kern_set_in_use()->name;
}

/* ---- the floating-point mode ---- */

#if defined(__x86_64__)
enum { MODE = 0x1f80, MODE_FLAGS = 0x3f /* of what has happened */ };

static unsigned get_mode(void)
{
	return __builtin_ia32_stmxcsr() & ~(unsigned)MODE_FLAGS;
}

static void set_mode(unsigned mode)
{
	__builtin_ia32_ldmxcsr(mode);
}
#elif defined(__aarch64__)
enum { MODE = 0 };

static unsigned get_mode(void)
{
	uint64_t mode;

	__asm__ volatile("mrs %0, fpcr" : "=r"(mode));
	return (unsigned)mode;
}

static void set_mode(unsigned mode)
{
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode));
}
#else
enum { MODE = 0 };

static unsigned get_mode(void)
{
	return MODE;
}

static void set_mode(unsigned mode)
{
	(void)mode;
}
#endif

/* A thread may have set another mode: torch.set_flush_denormal(), -ffast-math. */
static unsigned enter_mode(void)
{
	unsigned mode = get_mode();

	if (mode != MODE)
		set_mode(MODE);
	return mode;
}

static void leave_mode(unsigned mode)
{
	if (mode != MODE)
		set_mode(mode);
}

/* ---- one reduction ---- */

static const struct kern_scale none;

/* Division by a power of two is multiplication by its reciprocal, bit for bit, and
 * costs a tenth. */
static void choose_how(struct kern *k)
{
	const struct kern_scale *s = &k->scale;
	bool divides = s->divide > 1;

	k->times = 1;
	if (s->prescale == 1 && s->postscale == 1 && !divides) {
		k->how = KERN_PLAIN;
	} else if (k->floats && s->prescale == 1 &&
		   (divides ? s->postscale == 1 && !(s->divide & (s->divide - 1))
			    : true)) {
		k->how = KERN_TIMES;
		k->times = divides ? 1.0 / s->divide : s->postscale;
	} else if (k->floats && s->prescale == 1 && s->postscale == 1) {
		k->how = KERN_DIVIDED;
	} else {
		k->how = KERN_SCALED;
	}
}

bool kern_make(struct kern *k, berth_type type, berth_op op,
	       const struct kern_scale *scale, enum kern_form in, enum kern_form out)
{
	berth_type wide;

	if (!kern_is_defined(type, op))
		return false;
	wide = kern_accumulator(type);
	k->in_bytes = kern_size(in == KERN_PARTIAL ? wide : type);
	k->out_bytes = kern_size(out == KERN_PARTIAL ? wide : type);
	k->floats = about[type].is_float;
	k->scale = scale ? *scale : none;
	if (!k->scale.has_prescale || in == KERN_PARTIAL)
		k->scale.prescale = 1;
	if (!k->scale.has_postscale || out == KERN_PARTIAL)
		k->scale.postscale = 1;
	if (out == KERN_PARTIAL)
		k->scale.divide = 0;
	choose_how(k);
	if (wide == type || (in == KERN_PARTIAL && out == KERN_PARTIAL)) {
		type = wide;
		in = out = KERN_ELEMENTS;
	}
	k->reduce = kern_set_in_use()->reduce[in][out][type][op];
	k->mode = get_mode();
	return true;
}

bool kern_is_defined(berth_type type, berth_op op)
{
	return (unsigned)type < TYPE_COUNT && (unsigned)op < KERN_OPS &&
	       kern_base.reduce[KERN_ELEMENTS][KERN_ELEMENTS][type][op];
}

/* ---- doing it ---- */

void kern_reduce(const struct kern *k, void *const *dst, unsigned ndst,
		 const void *const *src, unsigned nsrc, size_t n, bool stream)
{
	if (k->mode != MODE)
		set_mode(MODE);
	k->reduce(k, dst, ndst, src, nsrc, n, stream);
	leave_mode(k->mode);
}

void kern_dots(double dot[3], berth_type type, const void *a, const void *b, size_t n)
{
	unsigned mode = enter_mode();

	kern_set_in_use()->dots[type == BERTH_F64](dot, a, b, n);
	leave_mode(mode);
}

void kern_combine(void *dst, berth_type type, const void *a, double ka, const void *b,
		  double kb, size_t n)
{
	unsigned mode = enter_mode();

	kern_set_in_use()->combine[type == BERTH_F64](dst, a, ka, b, kb, n);
	leave_mode(mode);
}

/* ---- copies ---- */

void kern_copy(void *dst, const void *src, size_t bytes, bool stream)
{
	if (!bytes) /* there may be no arrays */
		return;
	if (stream)
		kern_set_in_use()->copy(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

void kern_fence(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}
