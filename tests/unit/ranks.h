/* ranks.h - processes that share memory and check what a collective gave them. */
#ifndef BERTH_TESTS_RANKS_H
#define BERTH_TESTS_RANKS_H

#include <check.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/backend/coll.h"
#include "lib/base/kern.h"
#include "tests/helpers/slow.h"

struct ranks {
	unsigned n, me;
	void *region, *heap;
	size_t region_bytes, heap_bytes;
	char *said;   /* why a rank failed */
	bool in_heap; /* ranks_array() is to take of HEAP, and has taken USED */
	size_t used;
};

static void *ranks_share(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

__attribute__((format(printf, 2, 3))) static void ranks_fail(struct ranks *r,
							     const char *fmt, ...)
{
	va_list ap;
	int n;

	if (*r->said) /* what the first one says: the others lose it */
		_exit(1);
	n = snprintf(r->said, 512, "rank %u of %u: ", r->me, r->n);

	va_start(ap, fmt);
	vsnprintf(r->said + n, 512 - (size_t)n, fmt, ap);
	va_end(ap);
	_exit(1);
}

#define RANKS_ASSERT(r, condition, ...)                                                \
	do {                                                                           \
		if (!(condition))                                                      \
			ranks_fail((r), __VA_ARGS__);                                  \
	} while (0)

/* RUN in N processes; fails where one does, or is still there after LIMIT_S. */
static void ranks_run(unsigned n, size_t region_bytes, size_t heap_bytes,
		      void (*run)(struct ranks *r), unsigned limit_s)
{
	struct ranks r = { .n = n,
			   .region_bytes = region_bytes,
			   .heap_bytes = heap_bytes };
	pid_t pid[64];
	bool fine = true;

	r.region = ranks_share(region_bytes);
	r.heap = heap_bytes ? ranks_share(heap_bytes) : NULL;
	r.said = ranks_share(4096);
	for (r.me = 0; r.me < n; r.me++) {
		pid[r.me] = fork();
		ck_assert_int_ge(pid[r.me], 0);
		if (!pid[r.me]) {
			signal(SIGALRM, SIG_DFL);
			alarm(slow_s(limit_s));
			run(&r);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		int status;

		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		if (status && fine && !*r.said)
			snprintf(r.said, 512, "rank %u of %u ended with status %#x", i,
				 n, (unsigned)status);
		else if (fine &&
			 WIFSIGNALED(status)) /* what another said is its effect */
			snprintf(r.said + strlen(r.said), 128,
				 "; rank %u of %u ended by signal %d", i, n,
				 WTERMSIG(status));
		fine = fine && !status;
		if (status) /* the others would wait for it */
			for (unsigned k = i + 1; k < n; k++)
				kill(pid[k], SIGKILL);
	}
	ck_assert_msg(fine, "%s", r.said);
	munmap(r.region, region_bytes);
	if (heap_bytes)
		munmap(r.heap, heap_bytes);
	munmap(r.said, 4096);
}

/* Arrays of one operation, all freed before the next. */
__attribute__((unused)) static void *ranks_array(struct ranks *r, size_t bytes)
{
	size_t part = r->heap_bytes / r->n, at = (r->used + 63) / 64 * 64;

	if (!r->in_heap)
		return malloc(bytes);
	RANKS_ASSERT(r, at + bytes <= part, "a heap too small for the test");
	r->used = at + bytes;
	return (unsigned char *)r->heap + r->me * part + at;
}

__attribute__((unused)) static void ranks_free(struct ranks *r, void *p)
{
	if (!r->in_heap)
		free(p);
	r->used = 0;
}

static void ranks_put_fp8(void *p, berth_type type, double x)
{
	const float f = (float)x;
	struct kern k;

	kern_make(&k, type, BERTH_SUM, NULL, KERN_PARTIAL, KERN_ELEMENTS);
	kern_reduce(&k, &p, 1, &(const void *){ &f }, 1, 1, false);
}

/* Element I of what rank R gives to operation number OP: any bits of integers,
 * floats of about one. */
__attribute__((unused)) static void ranks_fill(void *p, berth_type type, uint64_t n,
					       unsigned r, unsigned op)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t x = (i * 2654435761u) ^ (r * 40503u + op * 69069u + 12345u);
		double f;

		x ^= x >> 13;
		x *= 0x9e3779b97f4a7c15u;
		x ^= x >> 29;
		f = ((double)(x % 2001) - 1000) / 617;
		switch (type) {
		case BERTH_F32:
			((float *)p)[i] = (float)f;
			break;
		case BERTH_F64:
			((double *)p)[i] = f;
			break;
		case BERTH_F16:
			((_Float16 *)p)[i] = (_Float16)f;
			break;
		case BERTH_BF16: {
			float g = (float)f;
			uint32_t bits;

			memcpy(&bits, &g, 4);
			((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
			break;
		}
		case BERTH_BOOL:
			((unsigned char *)p)[i] = x & 1;
			break;
		case BERTH_F8_E4M3:
		case BERTH_F8_E5M2:
			ranks_put_fp8((unsigned char *)p + i, type, f);
			break;
		default:
			memcpy((char *)p + i * kern_size(type), &x, kern_size(type));
		}
	}
}

#endif
