#include "lib/backend/host_stage.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

static berth_result host_make(int device, size_t bytes, void **stage, void **room,
			      const char **why)
{
	(void)device;
	*stage = *room = aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
	*why = "out of memory";
	return *room ? BERTH_OK : BERTH_MEMORY;
}

static void host_free(void *stage)
{
	free(stage);
}

/* A part may be copied to its own place. */
static berth_result host_copy(void *stage, const struct device_copy *copy, size_t n,
			      void *const *ready, size_t nready, void **mark)
{
	(void)stage;
	(void)ready;
	(void)nready;
	for (size_t i = 0; i < n; i++)
		memmove(copy[i].to, copy[i].from, copy[i].bytes);
	if (mark)
		*mark = NULL;
	return BERTH_OK;
}

static berth_result host_passed(void *mark)
{
	(void)mark;
	return BERTH_OK;
}

static void host_forget(void *mark)
{
	(void)mark;
}

const struct device_backend host_stage = { .name = "host",
					   .memory = BERTH_HOST,
					   .forget = host_forget,
					   .stage = host_make,
					   .unstage = host_free,
					   .copy = host_copy,
					   .passed = host_passed };
