/* PMI-1 (wire protocol 1.1), which MPICH and Intel MPI speak: each rank has a
 * socket, its number in PMI_FD, and writes lines that are answered by lines.
 *
 * What ranks put is known to all after the next barrier: that is an exchange of all
 * hosts (wire.def).  A rank that does not read its answers is not read either. */
#include <errno.h>
#include <event2/event.h>
#include <search.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/exchange.h"
#include "agent/pmi/pmi1_names.h"
#include "agent/pmi/server_internal.h"
#include "common/loop.h"

enum {
	OUT_MOST = 64 << 10, /* answers that a rank has not read */
	READ_BYTES = 8192,
	READS_MOST = 16, /* of a rank that has ended: a child of it may write on */
	KEYS_RANK_BYTES = 1 << 20 /* of all keys, for each rank of the job */
};

enum state { STATE_NEVER, STATE_INITIALISED, STATE_FINALISED, STATE_ABORTED };

struct pmi1_rank {
	struct pmi1 *p;
	uint32_t local;
	int fd; /* -1: none */
	struct event *readable, *writable;
	struct buf in, out;
	enum state state;
	bool in_barrier, waits_host_map, in_spawn, ended;
	/* what it awaits of the launcher's table of names, or PMI1_UNKNOWN */
	enum pmi1_command name_command;
	uint32_t name_id;
};

/* A key and its value, as a rank put them.  The strings stand behind the struct. */
struct pair {
	const char *key, *value;
};

struct pmi1 {
	struct server *s;
	struct pmi1_rank *rank;
	void *pairs; /* tree of struct pair */
	size_t pairs_bytes;
	struct buf puts; /* since the last barrier */
	struct buf all;  /* what comes at the end of this one */
	uint64_t barrier;
	bool given;      /* what ranks here put, to the launcher */
	bool has_failed; /* no barrier ends any more */
	struct exchange_wait wait;
	uint32_t name_id;
};

/* ---- keys ---- */

static int compare_keys(const void *a, const void *b)
{
	return strcmp(((const struct pair *)a)->key, ((const struct pair *)b)->key);
}

static const char *pmi1_get(const struct pmi1 *p, const char *key)
{
	const struct pair wanted = { key, NULL };
	void *const *found = tfind(&wanted, &p->pairs, compare_keys);

	return found ? ((const struct pair *)*found)->value : NULL;
}

/* The first value of a key stays.  False: there is no room. */
static bool pmi1_put(struct pmi1 *p, const char *key, const char *value)
{
	const size_t nkey = strlen(key) + 1, nvalue = strlen(value) + 1;
	const size_t bytes = sizeof(struct pair) + nkey + nvalue;
	struct pair *pair;
	char *at;

	if (pmi1_get(p, key))
		return true;
	if (bytes > (size_t)p->s->job->np * KEYS_RANK_BYTES - p->pairs_bytes)
		return false;
	pair = xmalloc(bytes);
	at = (char *)(pair + 1);
	*pair = (struct pair){ memcpy(at, key, nkey),
			       memcpy(at + nkey, value, nvalue) };
	if (!tsearch(pair, &p->pairs, compare_keys))
		die("out of memory", 0);
	p->pairs_bytes += bytes;
	return true;
}

/* ---- answers ---- */

static void hang_up(struct pmi1_rank *r)
{
	if (r->fd < 0)
		return;
	event_free(r->readable);
	event_free(r->writable);
	close(r->fd);
	r->fd = -1;
	buf_free(&r->in);
	buf_free(&r->out);
}

__attribute__((format(printf, 2, 3))) static void pmi1_answer(struct pmi1_rank *r,
							      const char *format, ...)
{
	va_list args;
	char *line;

	if (r->fd < 0)
		return;
	va_start(args, format);
	line = xvasprintf(format, args);
	va_end(args);
	buf_add(&r->out, line, strlen(line));
	buf_add(&r->out, "\n", 1);
	free(line);
	loop_send(&r->out, r->fd, r->writable);
}

static void on_put(struct pmi1_rank *r, const struct pmi1_line *l)
{
	struct pmi1 *p = r->p;
	const size_t nkey = strlen(l->key) + 1, nvalue = strlen(l->value) + 1;
	const size_t most = p->s->job->ranks.n * (size_t)EXCHANGE_RANK_BYTES;

	if (nkey == 1 || nkey > PMI1_KEY_BYTES || nvalue > PMI1_VALUE_BYTES)
		pmi1_answer(r, "cmd=put_result rc=-1 msg=key_or_value_too_long");
	else if (pmi1_get(p, l->key))
		pmi1_answer(r, "cmd=put_result rc=-1 msg=duplicate_key_%s", l->key);
	else if (nkey + nvalue > most - p->puts.len || !pmi1_put(p, l->key, l->value))
		pmi1_answer(r, "cmd=put_result rc=-1 msg=no_room");
	else {
		buf_add(&p->puts, l->key, nkey);
		buf_add(&p->puts, l->value, nvalue);
		pmi1_answer(r, "cmd=put_result rc=0 msg=success");
	}
}

/* A layout that is too long for a value is not there: MPI then compares the names of
 * hosts. */
static void answer_vector(struct pmi1_rank *r)
{
	char *text = host_map_vector(r->p->s);

	if (strlen(text) < PMI1_VALUE_BYTES)
		pmi1_answer(r, "cmd=get_result rc=0 msg=success value=%s", text);
	else
		pmi1_answer(r, "cmd=get_result rc=-1 msg=too_long value=unknown");
	free(text);
}

static void on_get(struct pmi1_rank *r, const char *key)
{
	const char *value;

	if (!strcmp(key, "PMI_process_mapping")) {
		r->waits_host_map = !host_map_known(r->p->s);
		if (!r->waits_host_map)
			answer_vector(r);
		return;
	}
	value = pmi1_get(r->p, key);
	if (value)
		pmi1_answer(r, "cmd=get_result rc=0 msg=success value=%s", value);
	else
		pmi1_answer(
			r, "cmd=get_result rc=-1 msg=key_%.64s_not_found value=unknown",
			key);
}

/* ---- barriers ---- */

static bool pmi1_is_in_init(const void *pmi1, size_t i)
{
	const struct pmi1 *p = pmi1;

	return p->rank[i].state == STATE_INITIALISED && !p->rank[i].ended &&
	       !p->barrier;
}

static bool pmi1_never_came(const void *pmi1, size_t i)
{
	const struct pmi1 *p = pmi1;

	return p->rank[i].ended && p->rank[i].state == STATE_NEVER;
}

static void end_barrier(struct pmi1 *p)
{
	p->barrier++;
	exchange_wait_look(&p->wait);
	p->given = false;
	for (size_t i = 0; i < p->s->job->ranks.n; i++) {
		struct pmi1_rank *r = &p->rank[i];

		if (!r->in_barrier)
			continue;
		r->in_barrier = false;
		pmi1_answer(r, "cmd=barrier_out");
	}
}

/* If ranks are in the barrier, and no more will come.  Where one has ended, the
 * launcher says that it fails, and by whom. */
static void give_if_complete(struct pmi1 *p)
{
	uint32_t waiting = 0, n = 0;

	for (size_t i = 0; i < p->s->job->ranks.n; i++) {
		waiting += p->rank[i].in_barrier;
		n += p->rank[i].in_barrier || p->rank[i].ended;
	}
	if (!waiting || n < p->s->job->ranks.n || p->given)
		return;
	p->given = true;
	exchange_give(p->s, EXCHANGE_PMI1, (wire_u32v){ NULL, 0 }, p->barrier,
		      EXCHANGE_WHOLE, &p->puts);
}

static void on_barrier(struct pmi1_rank *r)
{
	if (r->in_barrier || r->ended || r->p->has_failed) {
		hang_up(r);
		return;
	}
	r->in_barrier = true;
	give_if_complete(r->p);
}

/* All that ranks put, as "key NUL value NUL"; what there is no room for is not there.
 * False: it is not that. */
static bool take_pairs(struct pmi1 *p)
{
	const char *at = (const char *)buf_head(&p->all), *end;
	bool sound;

	if (!p->all.len)
		return true;
	end = at + p->all.len;
	sound = !end[-1];
	while (sound && at < end) {
		const char *value = at + strlen(at) + 1;

		sound = value < end;
		if (!sound)
			break;
		pmi1_put(p, at, value);
		at = value + strlen(value) + 1;
	}
	return sound;
}

int pmi1_data(struct pmi1 *p, const struct wire_exchange_data *m, struct err *e)
{
	const size_t most =
		p ? (size_t)p->s->job->np * EXCHANGE_RANK_BYTES - p->all.len : 0;

	if (!p || p->has_failed)
		return 0;
	if (m->ranks.n || m->number != p->barrier || !p->given || m->data.n > most)
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	buf_add(&p->all, m->data.p, m->data.n);
	if (!m->last)
		return 0;
	if (!take_pairs(p))
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	buf_free(&p->all);
	end_barrier(p);
	return 0;
}

/* A rank that is in MPI_Init may wait on, in memory that it shares with another. */
void pmi1_failed(struct pmi1 *p, const struct wire_exchange_failed *m)
{
	if (!p || m->use != EXCHANGE_PMI1 || m->number != p->barrier || p->has_failed)
		return;
	p->has_failed = true;
	for (size_t i = 0; i < p->s->job->ranks.n; i++)
		if (p->rank[i].in_barrier)
			hang_up(&p->rank[i]);
	exchange_none_comes(&p->wait);
}

/* ---- names ---- */

static void answer_name(struct pmi1_rank *r, enum pmi1_command command,
			const struct wire_found *m)
{
	char *text = pmi1_name_answer(command, m);

	pmi1_answer(r, "%s", text);
	free(text);
}

static void on_name(struct pmi1_rank *r, const struct pmi1_line *l)
{
	struct server *s = r->p->s;
	const uint32_t id = FOUND_PMI1 | ++r->p->name_id;

	if (pmi1_name_ask(s->out, s->job->epoch, s->job->ranks.v[r->local], id, l)) {
		r->name_command = l->command;
		r->name_id = id;
	} else {
		answer_name(r, l->command, NULL);
	}
}

/* ---- lines ---- */

/* MPI_Abort is the last word. */
static void pmi1_becomes(struct pmi1_rank *r, enum state state)
{
	if (r->state != STATE_ABORTED)
		r->state = state;
	exchange_wait_look(&r->p->wait);
}

static void pmi1_begin(struct pmi1_rank *r)
{
	pmi1_becomes(r, STATE_INITIALISED);
	pmi1_answer(r, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
}

static void pmi1_finalise(struct pmi1_rank *r)
{
	pmi1_becomes(r, STATE_FINALISED);
	pmi1_answer(r, "cmd=finalize_ack");
}

/* A rank that has called MPI_Abort waits until it is ended. */
static void pmi1_on_abort(struct pmi1_rank *r, const char *code)
{
	pmi1_becomes(r, STATE_ABORTED);
	mpi_ends_abort(r->p->s, r->local, (int)strtol(code, NULL, 10), "");
}

static void do_line(struct pmi1_rank *r, char *text)
{
	const struct wire_job *job = r->p->s->job;
	struct pmi1_line l;

	if (r->in_spawn) {
		r->in_spawn = strcmp(text, "endcmd") != 0;
		if (!r->in_spawn)
			pmi1_answer(r, "cmd=spawn_result rc=-1 status=unsupported");
		return;
	}
	l = pmi1_parse(text);
	switch (l.command) {
	case PMI1_INIT:
		pmi1_begin(r);
		break;
	case PMI1_GET_MAXES:
		pmi1_answer(r, "cmd=maxes kvsname_max=256 keylen_max=%d vallen_max=%d",
			    PMI1_KEY_BYTES, PMI1_VALUE_BYTES);
		break;
	case PMI1_GET_APPNUM:
		pmi1_answer(r, "cmd=appnum appnum=%u", job->apps.v[r->local]);
		break;
	case PMI1_GET_MY_KVSNAME:
		pmi1_answer(r, "cmd=my_kvsname kvsname=kvs_%s_%u", job->job_id,
			    job->epoch);
		break;
	case PMI1_GET_UNIVERSE_SIZE:
		pmi1_answer(r, "cmd=universe_size size=%u", job->np);
		break;
	case PMI1_PUT:
		on_put(r, &l);
		break;
	case PMI1_GET:
		on_get(r, l.key);
		break;
	case PMI1_BARRIER_IN:
		on_barrier(r);
		break;
	case PMI1_FINALIZE:
		pmi1_finalise(r);
		break;
	case PMI1_ABORT:
		pmi1_on_abort(r, l.exitcode);
		break;
	case PMI1_PUBLISH_NAME:
	case PMI1_LOOKUP_NAME:
	case PMI1_UNPUBLISH_NAME:
		on_name(r, &l);
		break;
	case PMI1_SPAWN:
		r->in_spawn = true;
		break;
	case PMI1_UNKNOWN:
		pmi1_answer(r, "cmd=unknown_result rc=-1 msg=unsupported");
		break;
	}
}

/* R may be read: it awaits no answer of the launcher, and reads its own answers. */
static bool may_read(const struct pmi1_rank *r)
{
	return r->fd >= 0 && !r->waits_host_map && !r->name_command &&
	       r->out.len < OUT_MOST;
}

/* Whole lines. */
static void do_lines(struct pmi1_rank *r)
{
	while (may_read(r)) {
		char *line = (char *)buf_head(&r->in),
		     *end = r->in.len ? memchr(line, '\n', r->in.len) : NULL;
		size_t n;

		if (!end) {
			if (r->in.len > PMI1_LINE_BYTES)
				hang_up(r);
			return;
		}
		*end = '\0';
		n = (size_t)(end - line) + 1;
		do_line(r, line);
		if (r->fd >= 0)
			buf_drop(&r->in, n);
	}
}

/* False: there is nothing more now. */
static bool pmi1_read_some(struct pmi1_rank *r)
{
	ssize_t n = read(r->fd, buf_reserve(&r->in, READ_BYTES), READ_BYTES);

	if (n > 0) {
		r->in.len += (size_t)n;
		do_lines(r);
	} else if (!n || (errno != EAGAIN && errno != EINTR)) {
		hang_up(r);
	}
	return n > 0;
}

static void pmi1_attend(struct pmi1_rank *r)
{
	do_lines(r);
	if (may_read(r))
		loop_watch(r->readable);
	else if (r->fd >= 0)
		event_del(r->readable);
}

static void pmi1_on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	pmi1_read_some(arg);
	pmi1_attend(arg);
}

static void pmi1_on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct pmi1_rank *r = arg;

	(void)what;
	loop_send(&r->out, fd, r->writable);
	pmi1_attend(r);
}

/* ---- from outside ---- */

struct pmi1 *pmi1_open(struct server *s)
{
	struct pmi1 *p = xcalloc(1, sizeof *p);

	*p = (struct pmi1){ .s = s, .rank = xcalloc(s->job->ranks.n, sizeof *p->rank) };
	p->wait = (struct exchange_wait){ .s = s,
					  .use = EXCHANGE_PMI1,
					  .ctx = p,
					  .never_came = pmi1_never_came,
					  .is_in_init = pmi1_is_in_init };
	for (uint32_t i = 0; i < s->job->ranks.n; i++)
		p->rank[i] = (struct pmi1_rank){ .p = p, .local = i, .fd = -1 };
	return p;
}

void pmi1_free(struct pmi1 *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->s->job->ranks.n; i++)
		hang_up(&p->rank[i]);
	tdestroy(p->pairs, free);
	buf_free(&p->puts);
	buf_free(&p->all);
	free(p->rank);
	free(p);
}

int pmi1_connect(struct pmi1 *p, uint32_t local, int *fd)
{
	struct pmi1_rank *r = &p->rank[local];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -1;
	hang_up(r);
	*r = (struct pmi1_rank){ .p = p, .local = local, .fd = pair[0] };
	evutil_make_socket_nonblocking(r->fd);
	r->readable =
		event_new(p->s->base, r->fd, EV_READ | EV_PERSIST, pmi1_on_readable, r);
	r->writable = event_new(p->s->base, r->fd, EV_WRITE, pmi1_on_writable, r);
	loop_watch(r->readable);
	*fd = pair[1];
	return 0;
}

const char *pmi1_ended(struct pmi1 *p, uint32_t local)
{
	struct pmi1_rank *r = p ? &p->rank[local] : NULL;

	if (!r)
		return NULL;
	for (int i = 0; i < READS_MOST && may_read(r) && pmi1_read_some(r); i++)
		;
	r->ended = true;
	give_if_complete(p);
	exchange_wait_look(&p->wait);
	return r->state == STATE_INITIALISED
		       ? "exited with status 0 between MPI_Init and MPI_Finalize"
		       : NULL;
}

void pmi1_host_map(struct pmi1 *p)
{
	for (size_t i = 0; p && i < p->s->job->ranks.n; i++) {
		struct pmi1_rank *r = &p->rank[i];

		if (!r->waits_host_map)
			continue;
		r->waits_host_map = false;
		answer_vector(r);
		pmi1_attend(r);
	}
}

bool pmi1_found(struct pmi1 *p, const struct wire_found *m)
{
	for (size_t i = 0; p && i < p->s->job->ranks.n; i++) {
		struct pmi1_rank *r = &p->rank[i];

		if (!r->name_command || r->name_id != m->id)
			continue;
		answer_name(r, r->name_command, m);
		r->name_command = PMI1_UNKNOWN;
		pmi1_attend(r);
	}
	return m->id & FOUND_PMI1;
}
