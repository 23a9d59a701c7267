#include "lib/core/trace.h"

#include <inttypes.h>
#include <stdarg.h>

#include "lib/base/kern.h"

enum { LOOK_BACK = 64 /* records */ };

static const char *const kinds[KIND_COUNT] = { KIND_NAMES };

struct text {
	char *at;
	size_t left;
};

__attribute__((format(printf, 2, 3))) static void trace_put(struct text *t,
							    const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->at, t->left, fmt, ap);
	va_end(ap);
	if (n < 0 || !t->left)
		return;
	if ((size_t)n >= t->left)
		n = (int)t->left - 1;
	t->at += n;
	t->left -= (size_t)n;
}

static bool trace_reduces(unsigned kind)
{
	return kind == BERTH_ALLREDUCE || kind == BERTH_REDUCE ||
	       kind == BERTH_REDUCESCATTER;
}

static void put_what(struct text *t, unsigned kind, const char *name, int name_bytes)
{
	trace_put(t, "%s", kind < KIND_COUNT ? kinds[kind] : "operation");
	if (name_bytes)
		trace_put(t, " \"%.*s\"", name_bytes, name);
}

static void put_data(struct text *t, unsigned kind, uint64_t count, unsigned type,
		     unsigned op)
{
	if (kind == BERTH_BARRIER)
		return;
	trace_put(t, " of %" PRIu64 " %s", count, kern_type_name((berth_type)type));
	if (trace_reduces(kind))
		trace_put(t, ", %s", kern_op_name((berth_op)op));
}

/* ---- records, of another process, which may write them meanwhile ---- */

static bool trace_get(const struct boot_record *ring, uint64_t number,
		      struct boot_record *f)
{
	const struct boot_record *from = &ring[(number - 1) % BOOT_RECORDS];
	bool good = atomic_load_explicit(&from->number, memory_order_acquire) == number;

	f->count = from->count;
	f->begun = from->begun;
	f->ended = from->ended;
	f->kind = from->kind;
	f->type = from->type;
	f->op = from->op;
	memcpy(f->name, from->name, sizeof f->name);
	f->state = atomic_load_explicit(&from->state, memory_order_acquire);
	atomic_thread_fence(memory_order_acquire);
	return good &&
	       atomic_load_explicit(&from->number, memory_order_relaxed) == number;
}

/* Takes the latest record that is not done, or else the latest of all. */
static bool trace_choose(const struct memory *m, unsigned local, struct boot_record *f)
{
	const struct boot_record *ring = memory_records(m, local);
	uint64_t number = atomic_load(&m->rank[local].number);
	struct boot_record one;
	bool any = false;

	for (uint64_t k = 0; k < LOOK_BACK && k < number; k++) {
		if (!trace_get(ring, number - k, &one))
			continue;
		if (!any || one.state == BOOT_RECORD_RUNS)
			*f = one;
		any = true;
		if (one.state == BOOT_RECORD_RUNS)
			break;
	}
	return any;
}

static void put_age(struct text *t, uint64_t then)
{
	uint64_t now = clock_coarse_ns(), ms = now > then ? (now - then) / 1000000 : 0;

	if (ms < 9950)
		trace_put(t, "%" PRIu64 ".%" PRIu64 " s ago", (ms + 50) / 1000,
			  (ms + 50) / 100 % 10);
	else
		trace_put(t, "%" PRIu64 " s ago", (ms + 500) / 1000);
}

void trace_last(char *text, size_t bytes, const struct memory *m, unsigned local)
{
	static const char *const states[] = { "", "queued", "begun", "done", "failed" };
	struct text t = { text, bytes };
	uint32_t state = atomic_load(&m->rank[local].state);
	struct boot_record f;
	unsigned is;

	if (!trace_choose(m, local, &f)) {
		trace_put(&t, state == BOOT_NOT_JOINED ? "it has not joined"
						       : "no operation yet");
	} else {
		is = f.state <= BOOT_RECORD_FAILED ? f.state : 0;
		put_what(&t, f.kind, f.name, (int)strnlen(f.name, sizeof f.name));
		put_data(&t, f.kind, f.count, f.type, f.op);
		trace_put(&t, ", %s ", states[is]);
		put_age(&t, is >= BOOT_RECORD_DONE && f.ended ? f.ended : f.begun);
	}
	if (state == BOOT_LEFT)
		trace_put(&t, ", then it left");
}
