/* libFuzzer on files of /proc, a part of the input each: /proc/self/cgroup and
 * /proc/self/mountinfo, and /proc/net/tcp. */
#include "fuzz.h"

#include "agent/ranks/cgroup.h"
#include "agent/ranks/listener.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	char *own = fuzz_part(&in, NULL), *mounts = fuzz_part(&in, NULL),
	     *sockets = fuzz_part(&in, NULL);
	struct listener l;

	for (int v2 = 0; v2 < 2; v2++)
		for (size_t n = 1; n <= 512; n *= 8) {
			char *out = xmalloc(n);

			if (cgroup_find(out, n, v2, own, mounts) && strlen(out) >= n)
				abort();
			free(out);
		}
	listener_find(&l, sockets, 20000);
	free(own);
	free(mounts);
	free(sockets);
	return 0;
}
