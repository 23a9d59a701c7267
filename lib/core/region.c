#include "lib/core/region.h"

#include "lib/backend/shm.h"
#include "lib/p2p/p2p.h"

enum { ALIGN = 4096 };

static size_t round_up(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t shared_at(unsigned n)
{
	return round_up(shm_bytes(n));
}

size_t region_bytes(unsigned n)
{
	return shared_at(n) + sizeof(struct region_shared) +
	       n * (sizeof(struct arrival) + sizeof(_Atomic uint32_t));
}

size_t region_bytes_of_all(unsigned n)
{
	return round_up(region_bytes(n)) + round_up(n * sizeof(struct bell)) +
	       p2p_bytes(n);
}

struct bell *region_bells(void *region, unsigned n)
{
	return (struct bell *)((unsigned char *)region + round_up(region_bytes(n)));
}

void *region_messages(void *region, unsigned n)
{
	return (unsigned char *)region_bells(region, n) +
	       round_up(n * sizeof(struct bell));
}

_Atomic uint32_t *region_left(struct region_shared *shared, unsigned n)
{
	return (_Atomic uint32_t *)(shared->arrival + n);
}

struct region_shared *region_shared(void *region, unsigned n)
{
	return (struct region_shared *)((unsigned char *)region + shared_at(n));
}
