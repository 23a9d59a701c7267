#include "lib/backend/device.h"

#include <stddef.h>

#define KINDS (BERTH_CUDA + 1)

/* The device back ends of this library, which does not have one yet. */
static const struct device_backend *known[KINDS];

bool device_is_there;

const struct device_backend *device_of(berth_memory memory)
{
	return memory < KINDS ? known[memory] : NULL;
}

void device_look(void)
{
	for (size_t i = 0; i < KINDS; i++)
		if (known[i])
			known[i]->look();
}

berth_memory device_find(const void *p, int *device)
{
	for (size_t i = 0; p && i < KINDS; i++)
		if (known[i] && known[i]->find(p, device))
			return known[i]->memory;
	*device = 0;
	return BERTH_HOST;
}

void device_register(const struct device_backend *b)
{
	known[b->memory] = b;
	device_is_there = true;
}
