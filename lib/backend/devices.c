#include "lib/backend/devices.h"

#include <stddef.h>

#include "lib/backend/nccl.h"

#define KINDS (BERTH_CUDA + 1)

static const struct device_backend *known[KINDS] = { [BERTH_CUDA] = &nccl_backend };

_Atomic bool device_is_there;

const struct device_backend *device_of(berth_memory memory)
{
	return memory < KINDS ? known[memory] : NULL;
}

void device_look(void)
{
	for (size_t i = 0; i < KINDS; i++)
		if (known[i] && known[i]->look())
			device_is_there = true;
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
