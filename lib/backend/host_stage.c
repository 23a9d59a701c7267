#include "lib/backend/host_stage.h"

#include <stdlib.h>
#include <string.h>

static berth_result host_make_stage(int device, size_t bytes, void **stage, void **room,
				    const char **why)
{
	(void)device;
	*stage = *room = aligned_alloc(64, (bytes + 63) / 64 * 64);
	*why = "out of memory";
	return *room ? BERTH_OK : BERTH_MEMORY;
}

/* Arrays may lie over each other, as IN and OUT of a rank's own part. */
static berth_result host_copy(void *stage, const struct device_copy *copy, size_t n,
			      void *const *ready, size_t nready, void **mark)
{
	(void)stage;
	(void)ready;
	(void)nready;
	for (size_t i = 0; i < n; i++)
		memmove(copy[i].to, copy[i].from, copy[i].bytes);
	*mark = NULL;
	return BERTH_OK;
}

const struct device_backend host_stage = { .name = "host",
					   .memory = BERTH_HOST,
					   .stage = host_make_stage,
					   .unstage = free,
					   .copy = host_copy };
