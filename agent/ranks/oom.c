#include "agent/ranks/oom.h"

#include "common/str.h"

/* The number behind "oom_kill " in FILE; false where there is no such line. */
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

/* The cgroup's path in a line of /proc/self/cgroup, or NULL: v2 "0::/x", v1
 * "4:memory:/x". */
static char *cgroup_path(char *line, bool *v2)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return NULL;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	*v2 = controllers[1] == '\0';
	return *v2 || strstr(controllers, "memory") ? path : NULL;
}

/* A container shows its own cgroup as the root of the mount: the path, then the root.
 */
static bool try_cgroup(struct oom *o, const char *root, const char *path, bool v2)
{
	static const char *const mounts[2][2] = { { "/memory", "/memory" },
						  { "", "/unified" } };
	const char *file = v2 ? "memory.events" : "memory.oom_control";

	for (int i = 0; i < 4; i++) {
		int n = snprintf(o->path, sizeof o->path, "%s/sys/fs/cgroup%s", root,
				 mounts[v2][i / 2]);

		o->mount_len = (size_t)n;
		snprintf(o->path + n, sizeof o->path - (size_t)n, "%s/%s",
			 i % 2 || !path[1] ? "" : path, file);
		if (read_count(o->path, &o->seen))
			return true;
	}
	return false;
}

void oom_begin(struct oom *o, const char *root)
{
	char file[300], line[600];
	bool found = false, v2;
	FILE *f;

	snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
	f = fopen(file, "re");
	while (f && !found && fgets(line, sizeof line, f)) {
		const char *path = cgroup_path(line, &v2);

		found = path && try_cgroup(o, root, path, v2);
	}
	if (f)
		fclose(f);
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

/* What the cgroup at FOLDER allows; UINT64_MAX for all. */
static uint64_t read_limit(const char *folder)
{
	static const char *const files[] = { "memory.max", "memory.limit_in_bytes" };
	unsigned long long n = UINT64_MAX;
	char path[600];

	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		FILE *f;

		snprintf(path, sizeof path, "%s/%s", folder, files[i]);
		f = fopen(path, "re");
		if (f && fscanf(f, "%llu", &n) != 1) /* "max" */
			n = UINT64_MAX;
		if (f)
			fclose(f);
	}
	return n;
}

void oom_why(const struct oom *o, struct str *out)
{
	const uint64_t none = (uint64_t)INT64_MAX / 2; /* v1 says INT64_MAX in pages */
	char folder[512], cgroup[512] = "";
	uint64_t least = none;

	snprintf(folder, sizeof folder, "%s", o->path);
	/* up to the mount itself, which is a container's own cgroup */
	while (o->mount_len && strlen(folder) > o->mount_len) {
		uint64_t limit;

		*strrchr(folder, '/') = '\0';
		limit = read_limit(folder);
		if (limit >= least)
			continue;
		least = limit;
		snprintf(cgroup, sizeof cgroup, "%s", folder + o->mount_len);
	}
	if (least == none)
		str_add(out, "out of memory");
	else
		str_addf(out, "over the memory limit of %llu MiB of cgroup '%s'",
			 (unsigned long long)(least >> 20), *cgroup ? cgroup : "/");
}
