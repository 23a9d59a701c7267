#include "lib/ops/tf_xla.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/tf_part.h"
#include "lib/ops/tf_sets.h"
#include "lib/ops/tf_status.h"

/* A call, as its config says.  Its texts are parts of that. */
struct xla_call {
	int kind, type, op, root, rank, ranks, n;
	int64_t set;
	double prescale, postscale;
	char *name;
	char *tensors; /* lines that are not yet read */
};

/* False: another version of Berth made it. */
static bool xla_read(char *config, struct xla_call *c)
{
	const char *numbers = strsep(&config, "\n");
	int64_t bits[2];

	c->name = strsep(&config, "\n");
	c->tensors = config;
	if (!c->tensors ||
	    sscanf(numbers, "%d %d %d %d %" SCNd64 " %d %d %" SCNd64 " %" SCNd64 " %d",
		   &c->kind, &c->type, &c->op, &c->root, &c->set, &c->rank, &c->ranks,
		   &bits[0], &bits[1], &c->n) != 10)
		return false;
	memcpy(&c->prescale, &bits[0], sizeof c->prescale);
	memcpy(&c->postscale, &bits[1], sizeof c->postscale);
	return c->n > 0;
}

/* Describe the next tensor, from IN to OUT.  COUNTS: room for a number for each rank.
 * False: as xla_read(). */
static bool xla_describe(struct xla_call *c, const struct tf_group *group,
			 const void *in, void *out, uint64_t *counts,
			 struct berth_desc *d)
{
	const char *line = strsep(&c->tensors, "\n");
	uint64_t count, row;
	int shape = -1;

	if (!line ||
	    sscanf(line, "%" SCNu64 " %" SCNu64 " %n", &count, &row, &shape) != 2 ||
	    shape < 0)
		return false;
	*d = (struct berth_desc)BERTH_DESC(.kind = (berth_kind)c->kind,
					   .type = (berth_type)c->type,
					   .op = (berth_op)c->op, .root = c->root,
					   .set = group->set, .in = in, .out = out,
					   .count = count, .memory = BERTH_HOST);
	d->shape = line[shape] ? line + shape : NULL;
	if (c->prescale != 1)
		d->prescale = &c->prescale;
	if (c->postscale != 1)
		d->postscale = &c->postscale;
	if (c->kind == BERTH_REDUCESCATTER) {
		tf_part_share(row ? count / row : 0, row, group->ranks, counts);
		d->in_counts = counts;
	}
	return true;
}

static berth_result xla_do(const struct tf_group *group, const struct berth_desc *d,
			   int n)
{
	berth_result result = BERTH_OK;
	berth_request *request;

	/* A rank alone wakes no thread of the library. */
	if (n == 1 || group->ranks == 1) {
		for (int i = 0; i < n && !result; i++)
			result = berth_run(&d[i], -1, NULL);
		return result;
	}
	result = berth_submit(d, (size_t)n, &request);
	return result ? result : berth_wait(request, -1);
}

/* The ranks that do it.  False: WHY says why there are none. */
static bool xla_find_group(const struct xla_call *c, struct tf_group *group, char *why,
			   size_t bytes)
{
	if (!tf_sets_group(c->set, group, why, bytes))
		return false;
	if (group->rank < 0 || group->ranks < 1)
		snprintf(why, bytes, "%s: this rank is not in the process set",
			 c->name);
	else if (c->ranks && (c->rank != group->rank || c->ranks != group->ranks))
		snprintf(why, bytes,
			 "%s: the function was traced by rank %d of %d, which is now "
			 "rank %d of %d: make a new tf.function",
			 c->name, c->rank, c->ranks, group->rank, group->ranks);
	else
		return true;
	return false;
}

/* Do it.  False: WHY says why not. */
static bool xla_call_do(struct xla_call *c, void **out, const void **in, char *why,
			size_t bytes)
{
	size_t name_bytes = strlen(c->name) + 32, n = (size_t)c->n, ranks;
	struct tf_group group;
	struct berth_desc *d;
	berth_result result;
	bool is_read = true;
	uint64_t *counts;
	char *names;

	if (!xla_find_group(c, &group, why, bytes))
		return false;
	ranks = (size_t)group.ranks;
	d = calloc(n, sizeof *d + ranks * sizeof *counts + name_bytes);
	if (!d) {
		snprintf(why, bytes, "%s", berth_result_text(BERTH_MEMORY));
		return false;
	}
	counts = (uint64_t *)&d[n];
	names = (char *)&counts[n * ranks];
	for (size_t i = 0; i < n && is_read; i++, names += name_bytes) {
		is_read = xla_describe(c, &group, in[i], out[i], &counts[i * ranks],
				       &d[i]);
		d[i].name = n == 1 ? c->name : names;
		snprintf(names, name_bytes, "%s.%zuof%zu", c->name, i + 1, n);
	}
	result = is_read ? xla_do(&group, d, c->n) : BERTH_UNSUPPORTED;
	if (result)
		tf_status_text(why, bytes, c->name, result);
	free(d);
	return result == BERTH_OK;
}

/* A tf_xla_call. */
static void xla_answer(void *out, const void **in, const char *config, size_t bytes,
		       void *status)
{
	char *text = strndup(config, bytes), why[TF_STATUS_MAX] = "";
	struct xla_call call;

	if (!text)
		tf_xla_fail(status, berth_result_text(BERTH_MEMORY));
	else if (!xla_read(text, &call))
		tf_xla_fail(status, "this graph is of another version of Berth");
	else if (!xla_call_do(&call, out, in, why, sizeof why))
		tf_xla_fail(status, why);
	free(text);
}

const char *berth_tf_xla(void)
{
	void *library;

	if (!tf_xla_register)
		return "libberth_tf.so was built without a C++ compiler";
	library = dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return "it has no libtensorflow_cc.so.2";
	return tf_xla_register(library, "berth", xla_answer);
}
