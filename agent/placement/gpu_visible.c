#include <strings.h>

#include "agent/placement/gpu_internal.h"

enum { STOP = -1 }; /* the word names no GPU */

/* The position of VENDOR's GPU whose number WORD begins with, as strtoul() reads it:
 * spaces and a sign in front, anything after it ignored.  A GPU in MIG mode answers
 * with its first instance, as CUDA does. */
static long by_number(const struct gpus *g, enum gpu_vendor vendor, const char *word)
{
	char *end;
	long n = strtol(word, &end, 10);

	for (size_t i = 0; end != word && i < g->n; i++)
		if (n >= 0 && g->v[i].vendor == vendor && g->v[i].index == n)
			return (long)i;
	return STOP;
}

/* The one GPU that WORD names; STOP if none or several do.  WORD is the beginning of a
 * UUID, or "MIG-GPU-<uuid>/gi/ci", as drivers before 470 name instances.  "GPU-" names
 * whole GPUs; the instances of a GPU in MIG mode answer to their own names only. */
static long by_uuid(const struct gpus *g, enum gpu_vendor vendor, const char *word,
		    size_t len)
{
	const char *slash = vendor == GPU_NVIDIA ? memchr(word, '/', len) : NULL;
	int gi = 0, ci = 0, end = 0;
	long found = STOP;

	if (slash && (sscanf(slash, "/%d/%d%n", &gi, &ci, &end) != 2 ||
		      slash + end != word + len))
		return STOP;
	for (size_t i = 0; i < g->n; i++) {
		const struct gpu *v = &g->v[i];

		if (slash ? !v->mig || v->gi != gi || v->ci != ci ||
				    strncasecmp(v->parent_uuid, word + 4,
						(size_t)(slash - word) - 4)
			  : v->vendor != vendor || !*v->uuid ||
				    strncasecmp(v->uuid, word, len))
			continue;
		if (found != STOP)
			return STOP;
		found = (long)i;
	}
	return found;
}

size_t gpu_visible_list(size_t *out, const struct gpus *g, enum gpu_vendor vendor,
			const char *list)
{
	bool names = !strncasecmp(list, "GPU-", 4) || !strncasecmp(list, "MIG-", 4);
	size_t n = 0;

	for (const char *word = list; *word;) {
		size_t len = strcspn(word, ",");
		long at = names ? (len > 4 ? by_uuid(g, vendor, word, len) : STOP)
				: by_number(g, vendor, word);

		if (at == STOP)
			break;
		for (size_t i = 0; i < n; i++)
			if (out[i] == (size_t)at)
				return 0;
		out[n++] = (size_t)at;
		word += len;
		word += *word == ',';
	}
	return n;
}
