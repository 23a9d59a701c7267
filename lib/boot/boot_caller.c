#include "lib/boot/boot_caller.h"

const char *boot_caller_check(const struct berth_bootstrap *b)
{
	if (b->size < offsetof(struct berth_bootstrap, ctx))
		return "size is not that of struct berth_bootstrap";
	if (b->ranks < 1 || b->rank < 0 || b->rank >= b->ranks)
		return "rank and ranks of the bootstrap do not fit";
	return b->allgather ? NULL : "the bootstrap has no allgather";
}
