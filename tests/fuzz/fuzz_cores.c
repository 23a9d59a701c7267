/* libFuzzer on what tells of a process's CPU quota, a part of the input each:
 * /proc/self/cgroup, /proc/self/mountinfo, and the files of a quota. */
#include "fuzz.h"

#include "lib/core/cores.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	char *own = fuzz_part(&in, NULL), *mounts = fuzz_part(&in, NULL),
	     *quota = fuzz_part(&in, NULL), *period = fuzz_part(&in, NULL);
	struct cores_cgroup c;

	for (int v2 = 0; v2 < 2; v2++)
		if (cores_find(&c, v2, own, mounts) &&
		    (strnlen(c.path, sizeof c.path) == sizeof c.path ||
		     c.mount > strlen(c.path)))
			abort();
	if (!cores_quota(quota) || !cores_quota_v1(quota, period))
		abort();
	free(own);
	free(mounts);
	free(quota);
	free(period);
	return 0;
}
