#include "agent/ranks/oom.h"

#include <stdlib.h>

#include "agent/ranks/cgroup.h"
#include "common/file.h"

/* The number behind "oom_kill " in FILE; false if FILE lacks such a line. */
static bool read_count(const char *file, uint64_t *count)
{
	FILE *f = fopen(file, "re");
	unsigned long long n;
	bool found = false;
	char line[256];

	while (f && !found && fgets(line, sizeof line, f))
		found = sscanf(line, "oom_kill %llu", &n) == 1;
	if (f)
		fclose(f);
	if (found)
		*count = n;
	return found;
}

/* The counter of the cgroup that OWN names.  A container shows its own cgroup as the
 * root of the mount: try the path, then the root. */
static bool try_cgroup(struct oom *o, const char *root, const char *own, bool v2)
{
	static const char *const mounts[2][2] = { { "/memory", "/memory" },
						  { "", "/unified" } };
	const char *file = v2 ? "memory.events" : "memory.oom_control";
	size_t len = 0;
	const char *path = cgroup_own(own, v2 ? NULL : "memory", &len);

	for (int i = 0; path && i < 4; i++) {
		int n = snprintf(o->path, sizeof o->path, "%s/sys/fs/cgroup%s", root,
				 mounts[v2][i / 2]);

		o->mount_len = (size_t)n;
		snprintf(o->path + n, sizeof o->path - (size_t)n, "%.*s/%s",
			 i % 2 || len == 1 ? 0 : (int)len, path, file);
		if (read_count(o->path, &o->seen))
			return true;
	}
	return false;
}

void oom_begin(struct oom *o, const char *root)
{
	enum { OWN_BYTES = 64 << 10 };
	char *file = xasprintf("%s/proc/self/cgroup", root);
	struct str own = { 0 };
	bool found;

	file_read(&own, file, OWN_BYTES, false);
	found = try_cgroup(o, root, str_text(&own), false) ||
		try_cgroup(o, root, str_text(&own), true);
	str_free(&own);
	free(file);
	if (found)
		return;
	o->mount_len = 0;
	snprintf(o->path, sizeof o->path, "%s/proc/vmstat", root);
	if (!read_count(o->path, &o->seen))
		o->seen = 0;
}

bool oom_risen(struct oom *o)
{
	uint64_t now;

	if (!read_count(o->path, &now) || now <= o->seen)
		return false;
	o->seen++;
	return true;
}

/* ---- the limit ---- */

void oom_why(const struct oom *o, struct str *out)
{
	static const char *const files[] = { "memory.max", "memory.limit_in_bytes" };
	const uint64_t none = (uint64_t)INT64_MAX / 2; /* v1 says INT64_MAX in pages */
	char folder[512], path[600], cgroup[512] = "";
	uint64_t least = none;

	snprintf(folder, sizeof folder, "%s", o->path);
	/* up to the mount itself, which is a container's own cgroup */
	while (o->mount_len && strlen(folder) > o->mount_len) {
		*strrchr(folder, '/') = '\0';
		for (int i = 0; i < 2; i++) {
			unsigned long long limit;
			FILE *f;

			snprintf(path, sizeof path, "%s/%s", folder, files[i]);
			f = fopen(path, "re");
			if (f && fscanf(f, "%llu", &limit) == 1 && limit < least) {
				least = limit;
				snprintf(cgroup, sizeof cgroup, "%s",
					 folder + o->mount_len);
			}
			if (f)
				fclose(f);
		}
	}
	if (least == none)
		str_add(out, "out of memory");
	else
		str_addf(out, "over the memory limit of %llu MiB of cgroup '%s'",
			 (unsigned long long)(least >> 20), *cgroup ? cgroup : "/");
}
