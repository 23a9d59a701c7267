/* pmix_abi.h - what of libpmix.so.2's interface a client needs: the layouts and numbers
 * that releases 3 to 6 have in common.  Of our own, so that a build needs no headers of
 * PMIx; tests/unit/test_lib_pmix_abi.c compares with them where they are.
 *
 * Source: the PMIx standard 4.0, chapters 3 (data structures), 4 (initialisation), 7
 * (exchange of data). */
#ifndef BERTH_LIB_PMIX_ABI_H
#define BERTH_LIB_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PX_NSPACE_BYTES = 256,
	PX_KEY_BYTES = 512,
	/* statuses; what is negative is an error, but for PX_DONE: nothing will be
	 * called back */
	PX_SUCCESS = 0,
	PX_DONE = -157,
	/* types of values */
	PX_BOOL = 1,
	PX_UINT32 = 14,
	PX_BYTES = 27,
	/* scopes of PMIx_Put */
	PX_GLOBAL = 3
};

#define PX_RANK_ALL (UINT32_MAX - 1)

#define PX_JOB_SIZE "pmix.job.size"
#define PX_COLLECT_DATA "pmix.collect"

struct px_proc {
	char nspace[PX_NSPACE_BYTES];
	uint32_t rank;
};

struct px_bytes {
	char *bytes;
	size_t size;
};

struct px_value {
	uint16_t type;
	union {
		bool flag;
		char *string;
		uint32_t uint32;
		struct px_bytes bytes;
		struct {
			char *name, *value, separator;
		} largest; /* an environment variable */
	} data;
};

struct px_info {
	char key[PX_KEY_BYTES];
	uint32_t flags;
	struct px_value value;
};

typedef void px_op_done(int status, void *ctx);
typedef void px_value_done(int status, struct px_value *v, void *ctx);

/* FUNCTION(result, name, (arguments)) */
#define PX_FUNCTIONS(FUNCTION)                                                         \
	FUNCTION(int, Init, (struct px_proc * me, struct px_info *, size_t))           \
	FUNCTION(int, Finalize, (const struct px_info *, size_t))                      \
	FUNCTION(int, Put, (uint8_t scope, const char *key, struct px_value *))        \
	FUNCTION(int, Commit, (void))                                                  \
	FUNCTION(int, Fence_nb,                                                        \
		 (const struct px_proc *, size_t, const struct px_info *, size_t,      \
		  px_op_done *, void *ctx))                                            \
	FUNCTION(int, Get_nb,                                                          \
		 (const struct px_proc *, const char *key, const struct px_info *,     \
		  size_t, px_value_done *, void *ctx))                                 \
	FUNCTION(const char *, Error_string, (int status))

#endif
