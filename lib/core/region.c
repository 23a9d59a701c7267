#include "lib/core/region.h"

#include "lib/backend/shm.h"

enum { ALIGN = 64 };

static size_t shared_at(unsigned n)
{
	return (shm_bytes(n) + ALIGN - 1) / ALIGN * ALIGN;
}

size_t region_bytes(unsigned n)
{
	return shared_at(n) + sizeof(struct region_shared) + n * sizeof(uint32_t);
}

struct region_shared *region_shared(void *region, unsigned n)
{
	return (struct region_shared *)((unsigned char *)region + shared_at(n));
}
