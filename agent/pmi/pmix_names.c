/* Names that ranks publish and look up, events, and queries.  Values travel as libpmix
 * packs them. */
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_child_internal.h"
#include "common/job.h"

enum {
	KEYS_MOST = 1024,
	KEYS_BYTES_MOST = 96 << 10,
	VALUES_MOST = 1 << 20,
	INFO_MOST = 64 << 10
};

/* ---- packing ---- */

/* N values of TYPE at V behind what is in OUT.  Their bytes, or -1. */
static long names_pack(struct buf *out, const void *v, size_t n, uint16_t type)
{
	struct px_buffer b = { 0 };
	void *from = (void *)(uintptr_t)v; /* it is only read */
	long used = -1;

	if (px.Data_pack(NULL, &b, from, (int32_t)n, type) == PX_SUCCESS) {
		used = (long)b.used;
		buf_add(out, b.base, b.used);
	}
	free(b.base);
	return used;
}

/* N values of TYPE into V, which is zeroed.  Pointers in them are V's. */
static bool names_unpack(const void *bytes, size_t nbytes, void *v, size_t n,
			 uint16_t type)
{
	struct px_buffer b = { .base = xmalloc(nbytes + 1),
			       .allocated = nbytes,
			       .used = nbytes };
	int32_t count = (int32_t)n;
	int status;

	memcpy(b.base, bytes, nbytes);
	b.unpack = b.base;
	b.pack = b.base + nbytes;
	status = px.Data_unpack(NULL, &b, v, &count, type);
	free(b.base);
	return status == PX_SUCCESS && count == (int32_t)n;
}

/* ---- names ---- */

/* False: there are too many. */
static bool list_keys(wire_strv *list, char **keys)
{
	size_t n = 0, bytes = 0;

	for (; keys && keys[n]; n++)
		bytes += strlen(keys[n]);
	*list = (wire_strv){ (const char *const *)keys, n };
	return n <= KEYS_MOST && bytes <= KEYS_BYTES_MOST;
}

int upcall_publish(const struct px_proc *proc, const struct px_info *info, size_t n,
		   px_op_done *done, void *ctx)
{
	struct pending p = { .op = done, .ctx = ctx };
	struct wire_publish m = { .rank = proc->rank };
	const char **keys = xcalloc(n, sizeof *keys);
	uint32_t *sizes = xcalloc(n, sizeof *sizes);
	size_t key_bytes = 0;
	struct buf values = { 0 };
	int status = n > KEYS_MOST ? PX_OUT_OF_RESOURCE : PX_SUCCESS;

	for (size_t i = 0; i < n && status == PX_SUCCESS; i++) {
		long bytes;

		if (upcall_is(&info[i], PX_PERSISTENCE))
			m.once = info[i].value.data.byte == PX_PERSIST_FIRST_READ;
		if (!strncmp(info[i].key, "pmix.", 5)) /* it directs PMIx */
			continue;
		bytes = names_pack(&values, &info[i].value, 1, PX_VALUE);
		key_bytes += strlen(info[i].key);
		if (bytes < 0 || values.len > VALUES_MOST ||
		    key_bytes > KEYS_BYTES_MOST)
			status = PX_OUT_OF_RESOURCE;
		keys[m.keys.n] = info[i].key;
		sizes[m.keys.n++] = (uint32_t)bytes;
	}
	if (status == PX_SUCCESS && !(m.id = pending_leave(&p)))
		status = PX_OUT_OF_RESOURCE;
	if (status == PX_SUCCESS) {
		m.keys.v = keys;
		m.sizes = (wire_u32v){ sizes, m.keys.n };
		m.values = (wire_bytes){ buf_head(&values), values.len };
		CHILD_SAY(publish, &m);
	}
	buf_free(&values);
	free(keys);
	free(sizes);
	return status;
}

int upcall_lookup(const struct px_proc *proc, char **keys, const struct px_info *info,
		  size_t n, px_lookup_done *done, void *ctx)
{
	struct pending p = { .lookup = done, .ctx = ctx };
	struct wire_lookup m = { .rank = proc->rank };

	for (size_t i = 0; i < n; i++) {
		if (upcall_is(&info[i], PX_WAIT))
			m.wait = true;
		if (upcall_is(&info[i], PX_TIMEOUT))
			m.timeout_s = info[i].value.data.uint32;
	}
	if (!list_keys(&m.keys, keys) || !(m.id = pending_leave(&p)))
		return PX_OUT_OF_RESOURCE;
	CHILD_SAY(lookup, &m);
	return PX_SUCCESS;
}

int upcall_unpublish(const struct px_proc *proc, char **keys,
		     const struct px_info *info, size_t n, px_op_done *done, void *ctx)
{
	struct pending p = { .op = done, .ctx = ctx };
	struct wire_unpublish m = { .rank = proc->rank };

	(void)info;
	(void)n;
	if (!list_keys(&m.keys, keys) || !(m.id = pending_leave(&p)))
		return PX_OUT_OF_RESOURCE;
	CHILD_SAY(unpublish, &m);
	return PX_SUCCESS;
}

static int status_of(uint32_t found)
{
	static const int statuses[] = { [FOUND_ALL] = PX_SUCCESS,
					[FOUND_SOME] = PX_PARTIAL_SUCCESS,
					[FOUND_NONE] = PX_NOT_FOUND,
					[FOUND_DUPLICATE] = PX_DUPLICATE_KEY,
					[FOUND_NO_ROOM] = PX_OUT_OF_RESOURCE };

	return found < sizeof statuses / sizeof *statuses ? statuses[found] : PX_ERROR;
}

/* libpmix reads the values before it comes back, and each owns what it points to, which
 * is lost: a few bytes for each lookup. */
static void answer_lookup(const struct pending *p, const struct wire_found *m)
{
	struct px_pdata *v = xcalloc(m->keys.n, sizeof *v);
	const char *at = m->values.p;
	size_t n = 0, left = m->values.n;

	for (size_t i = 0; i < m->keys.n && i < m->owners.n && i < m->sizes.n; i++) {
		const size_t size = m->sizes.v[i];

		if (size > left)
			break;
		memcpy(v[n].proc.nspace, px.nspace, sizeof v[n].proc.nspace);
		v[n].proc.rank = m->owners.v[i];
		snprintf(v[n].key, sizeof v[n].key, "%s", m->keys.v[i]);
		n += names_unpack(at, size, &v[n].value, 1, PX_VALUE);
		at += size;
		left -= size;
	}
	p->lookup(n ? status_of(m->status) : PX_NOT_FOUND, n ? v : NULL, n, p->ctx);
	free(v);
}

void upcall_found(const struct wire_found *m)
{
	struct pending *p = pending_fetch(m->id);

	if (!p)
		return;
	if (p->lookup)
		answer_lookup(p, m);
	else if (p->op)
		p->op(status_of(m->status), p->ctx);
	pending_free(p);
}

/* ---- events ---- */

/* libpmix has told the ranks of this host. */
int upcall_event(int code, const struct px_proc *proc, uint8_t range,
		 struct px_info *info, size_t n, px_op_done *done, void *ctx)
{
	struct wire_event m = { .rank = proc->rank,
				.code = (uint32_t)code,
				.range = range };
	struct buf bytes = { 0 };
	uint32_t count = (uint32_t)n;

	(void)done;
	(void)ctx;
	if (range == PX_RANGE_LOCAL || range == PX_RANGE_PROC_LOCAL ||
	    range == PX_RANGE_RM)
		return PX_DONE;
	buf_u32(&bytes, count);
	if (n && names_pack(&bytes, info, n, PX_INFO) < 0)
		bytes.len = 0;
	if (bytes.len && bytes.len <= INFO_MOST) {
		m.info = (wire_bytes){ buf_head(&bytes), bytes.len };
		CHILD_SAY(event, &m);
	}
	buf_free(&bytes);
	return PX_DONE;
}

/* An event that libpmix tells all ranks: it reads this until it has. */
struct notice {
	struct px_proc proc;
	struct px_info *info;
	size_t n;
};

static void notice_free(int status, void *ctx)
{
	struct notice *one = ctx;

	(void)status;
	free(one->info);
	free(one);
}

/* A peer has closed its connection, and libpmix has not read that yet. */
static bool has_unread_end(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *one;
	bool found = false;

	while (d && !found && (one = readdir(d))) {
		const int fd = (int)strtol(one->d_name, NULL, 10);
		struct tcp_info t = { 0 };
		socklen_t n = sizeof t;

		found = *one->d_name != '.' &&
			!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) &&
			(t.tcpi_state == TCP_CLOSE_WAIT || t.tcpi_state == TCP_CLOSE);
	}
	if (d)
		closedir(d);
	return found;
}

static void names_forgotten(int status, void *ctx)
{
	(void)status;
	(void)ctx;
}

/* PROC has died: have libpmix leave it out of the collectives that begin from now on.
 * libpmix must read the end of PROC's connection first: in the other order it counts
 * one rank too many.  The kernel closed that connection before the agent could reap
 * PROC, so the wait is short. */
static void names_forget(const struct px_proc *proc)
{
	enum { TURN_US = 1000, TURNS_MOST = 500 };

	for (int i = 0; i < TURNS_MOST && has_unread_end(); i++)
		usleep(TURN_US);
	px.server_deregister_client(proc, names_forgotten, NULL);
}

void upcall_notify(const struct wire_event *m)
{
	enum { MOST = 1024 };
	struct notice *one = xcalloc(1, sizeof *one);
	struct view v = { m->info.p, m->info.n, false };
	int status;

	memcpy(one->proc.nspace, px.nspace, sizeof one->proc.nspace);
	one->proc.rank = m->rank;
	one->n = m->info.n ? view_u32(&v) : 1;
	if (v.failed || one->n > MOST) {
		free(one);
		return;
	}
	one->info = xcalloc(one->n, sizeof *one->info);
	if (!m->info.n) {
		names_forget(&one->proc);
		snprintf(one->info->key, sizeof one->info->key, "%s", PX_AFFECTED);
		one->info->value.type = PX_PROC;
		one->info->value.data.proc = &one->proc;
	} else if (one->n && !names_unpack(v.p, v.left, one->info, one->n, PX_INFO)) {
		one->n = 0;
	}
	status = px.Notify_event((int)m->code, &one->proc, (uint8_t)m->range, one->info,
				 one->n, notice_free, one);
	if (status != PX_SUCCESS)
		notice_free(status, one);
}

/* ---- queries ---- */

struct answers {
	struct px_list list;
};

static void answers_free(void *ctx)
{
	struct answers *a = ctx;

	px_list_free(&a->list);
	free(a);
}

/* A thing that is not known is left out. */
int upcall_query(struct px_proc *proc, struct px_query *query, size_t n,
		 px_info_done *done, void *ctx)
{
	struct answers *a = xcalloc(1, sizeof *a);
	size_t asked = 0;

	(void)proc;
	for (size_t i = 0; i < n; i++)
		for (char **key = query[i].keys; key && *key; key++) {
			asked++;
			if (!strcmp(*key, PX_NAMESPACES))
				px_text(&a->list, *key, px.nspace);
			else if (!strcmp(*key, PX_NUM_PSETS))
				px_size(&a->list, *key, 0);
			else if (!strcmp(*key, PX_PSET_NAMES))
				px_text(&a->list, *key, "");
		}
	if (!a->list.n) {
		answers_free(a);
		return PX_NOT_FOUND;
	}
	done(a->list.n == asked ? PX_SUCCESS : PX_PARTIAL_SUCCESS, a->list.v, a->list.n,
	     ctx, answers_free, a);
	return PX_SUCCESS;
}
