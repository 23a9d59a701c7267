/* libFuzzer on what the process of a PMIx server says to its agent (agent/pmi/pmix.c),
 * and on what the launcher says of it: two ranks of one host, or of two, and a script
 * of what happens.
 *
 * Each byte of the input is a step.  What the agent sends must be frames, and those to
 * the launcher must be what it takes: exchanges in which this host has a part, names of
 * its own ranks.  What it asks honestly is answered, and must be taken.  No descriptor
 * may be left.  A launcher that broke the protocol ends the script. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>

#include "agent/pmi/pmix_process.h"
#include "agent/pmi/server_internal.h"
#include "common/job.h"
#include "common/loop.h"
#include "fuzz.h"

enum { RANKS = 2, ALL_RANKS = 4, GIVEN_MOST = 64 };

static struct event_base *base;
static struct buf out;
static struct server *server;
static struct wire_job job;
static struct pmix_folders folders;
static int child_fd;
static struct buf child_in;
static bool child_reads;
static bool honest; /* the launcher has been so far */
static bool has_ended[ALL_RANKS];

/* An exchange in which the server has given, and that was not answered. */
static struct given {
	uint32_t use, ranks[ALL_RANKS];
	size_t nranks;
	uint64_t number;
	struct buf data;
	uint32_t last; /* enum exchange_last */
} given[GIVEN_MOST];
static size_t ngiven;
static uint32_t asked; /* the id of the last modex_request; 0: answered */

static void check_at(bool good, int line)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_pmix.c:%d: that cannot be\n", line);
	abort();
}
#define check(good) check_at(good, __LINE__)

static size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- in place of the process and its folders, and of time ---- */

int __wrap_pmix_process_start(struct pmix_process *p, struct err *e);
void __wrap_pmix_process_end(struct pmix_process *p);
int __wrap_pmix_folders_make(struct pmix_folders *f, int *memory_lock, struct err *e);
void __wrap_pmix_folders_remove(struct pmix_folders *f);
void __wrap_loop_after_ms(struct event *e, uint64_t ms);

static struct event *timer[8];
static size_t ntimers;

void __wrap_loop_after_ms(struct event *e, uint64_t ms)
{
	size_t i = 0;

	(void)ms;
	while (i < ntimers && timer[i] != e)
		i++;
	check(i < sizeof timer / sizeof *timer);
	timer[i] = e;
	ntimers += i == ntimers;
	event_add(e, &(struct timeval){ .tv_sec = 86400 });
}

static void pass(unsigned which)
{
	struct event *e = which < ntimers ? timer[which] : NULL;

	if (!e || !event_pending(e, EV_TIMEOUT, NULL))
		return;
	event_del(e);
	event_active(e, EV_TIMEOUT, 1);
}

int __wrap_pmix_process_start(struct pmix_process *p, struct err *e)
{
	int pair[2];

	(void)e;
	check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	*p = (struct pmix_process){ .pidfd = -1, .fd = pair[0] };
	child_fd = pair[1];
	return 0;
}

void __wrap_pmix_process_end(struct pmix_process *p)
{
	if (p->fd >= 0)
		close(p->fd);
	*p = (struct pmix_process){ .pidfd = -1, .fd = -1 };
}

int __wrap_pmix_folders_make(struct pmix_folders *f, int *memory_lock, struct err *e)
{
	(void)f;
	(void)e;
	*memory_lock = -1;
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void __wrap_pmix_folders_remove(struct pmix_folders *f)
{
	(void)f;
}

/* ---- what the agent says ---- */

static bool is_here(uint32_t rank)
{
	return rank < job.np && rank / RANKS == job.node;
}

static void take_exchange(const struct wire_frame *f)
{
	struct wire_exchange m;
	struct given *g = given;
	bool has_part;

	check(!wire_unpack_exchange(&m, f->payload, f->n, NULL));
	check(m.epoch == 1 && m.use >= EXCHANGE_PMIX_FENCE && m.use < EXCHANGE_USES);
	has_part = !m.ranks.n;
	for (size_t i = 0; i < m.ranks.n; i++) {
		check(m.ranks.v[i] < job.np);
		check(!i || m.ranks.v[i] > m.ranks.v[i - 1]);
		has_part |= is_here(m.ranks.v[i]);
	}
	check(has_part);
	while (g < given + ngiven &&
	       (g->use != m.use || g->number != m.number || g->nranks != m.ranks.n ||
		(m.ranks.n &&
		 memcmp(g->ranks, m.ranks.v, m.ranks.n * sizeof *g->ranks))))
		g++;
	if (g == given + ngiven) {
		check(ngiven < EXCHANGES_MOST);
		if (ngiven == GIVEN_MOST) {
			wire_free_exchange(&m);
			return;
		}
		ngiven++;
		*g = (struct given){ .use = m.use,
				     .nranks = m.ranks.n,
				     .number = m.number };
		if (m.ranks.n)
			memcpy(g->ranks, m.ranks.v, m.ranks.n * sizeof *g->ranks);
	}
	check(!g->last);
	if (m.data.n)
		buf_add(&g->data, m.data.p, m.data.n);
	g->last = m.last;
	check(g->data.len <= EXCHANGE_PMIX_BYTES / job.nodes + EXCHANGE_PMIX_HEAD);
	wire_free_exchange(&m);
}

#define RANK_OF(name)                                                                  \
	case WIRE_##name: {                                                            \
		struct wire_##name m;                                                  \
                                                                                       \
		check(!wire_unpack_##name(&m, f->payload, f->n, NULL));                \
		check(m.epoch == 1 && is_here(m.rank));                                \
		wire_free_##name(&m);                                                  \
		break;                                                                 \
	}

static void launcher_hears(const struct wire_frame *f)
{
	struct wire_modex_request m;

	switch (f->type) {
		RANK_OF(absent)
		RANK_OF(publish)
		RANK_OF(lookup)
		RANK_OF(unpublish)
		RANK_OF(event)
	case WIRE_exchange:
		take_exchange(f);
		break;
	case WIRE_modex_request:
		check(!wire_unpack_modex_request(&m, f->payload, f->n, NULL));
		check(m.rank < job.np && !is_here(m.rank));
		asked = m.id;
		wire_free_modex_request(&m);
		break;
	default:
		check(f->type == WIRE_modex_data);
	}
}

/* All that can happen now does. */
static void turn(void)
{
	struct wire_frame f;
	ssize_t got = 1;
	long n;

	for (int i = 0; i < 3; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
	while (out.len) {
		n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, NULL);
		check(n > 0);
		launcher_hears(&f);
		buf_drop(&out, (size_t)n);
	}
	while (child_fd >= 0 && child_reads && got > 0) {
		got = recv(child_fd, buf_reserve(&child_in, 65536), 65536,
			   MSG_DONTWAIT);
		child_in.len += got > 0 ? (size_t)got : 0;
		while ((n = wire_next_from(WIRE_PMIX_HOST, &f, buf_head(&child_in),
					   child_in.len, NULL)) > 0)
			buf_drop(&child_in, (size_t)n);
		check(!n);
		event_base_loop(base, EVLOOP_NONBLOCK);
	}
}

/* ---- what the others say ---- */

static void child_hangs_up(void)
{
	if (child_fd >= 0)
		close(child_fd);
	child_fd = -1;
	buf_free(&child_in);
}

static void child_says(struct buf *b)
{
	while (child_fd >= 0 && b->len) {
		ssize_t n = send(child_fd, buf_head(b), b->len,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			break;
		buf_drop(b, n > 0 ? (size_t)n : 0);
		if (b->len)
			turn();
	}
	buf_free(b);
}

static int launcher_says(struct buf *b)
{
	struct wire_frame f;
	int rc;

	check(wire_next_from(WIRE_LAUNCHER, &f, buf_head(b), b->len, NULL) > 0);
	rc = server_frame(server, &f, NULL);
	buf_free(b);
	return rc;
}

/* Up to N bytes of the input, into a block of their own. */
static uint8_t *take(const uint8_t **p, const uint8_t *end, size_t *n)
{
	uint8_t *copy;

	*n = *p < end ? *(*p)++ : 0;
	*n = *n < (size_t)(end - *p) ? *n : (size_t)(end - *p);
	copy = xmalloc(*n + 1);
	memcpy(copy, *p, *n);
	*p += *n;
	return copy;
}

static unsigned next(const uint8_t **p, const uint8_t *end)
{
	return *p < end ? *(*p)++ : 0;
}

static bool never_complete(const struct given *g)
{
	bool any = false;

	for (size_t i = 0; i < g->nranks; i++)
		any |= has_ended[g->ranks[i]];
	for (size_t i = 0; !g->nranks && i < ALL_RANKS; i++)
		any |= has_ended[i];
	return any;
}

/* An exchange that the server has given to: it fails, as it does if a rank of it has
 * ended, or ends with its own record and one of another host. */
static bool launcher_answers(unsigned which, bool fails)
{
	struct given *g = given + which % GIVEN_MOST;
	const wire_u32v ranks = { g->ranks, g->nranks };
	struct buf b = { 0 };
	int rc;

	if (g >= given + ngiven || !g->last)
		return true;
	buf_u64(&g->data, 0);
	if (fails || g->last == EXCHANGE_LACKS_RANK || never_complete(g))
		wire_pack_exchange_failed(&b, &(struct wire_exchange_failed){
						      1, g->use, ranks, g->number });
	else
		wire_pack_exchange_data(
			&b, &(struct wire_exchange_data){
				    .epoch = 1,
				    .use = g->use,
				    .ranks = ranks,
				    .number = g->number,
				    .last = 1,
				    .data = { buf_head(&g->data), g->data.len } });
	rc = launcher_says(&b);
	buf_free(&g->data);
	*g = given[--ngiven];
	return !rc;
}

static void child_collects(unsigned which, const void *bytes, size_t n)
{
	static const uint32_t lists[][3] = {
		{ 0, 2 }, { 0, 1 }, { 2, 3 }, { 1, 2, 3 }
	};
	struct wire_pmix_collect m = { .id = which,
				       .use = EXCHANGE_PMIX_FENCE + (which & 3),
				       .withheld = which >> 6 & 1,
				       .data = { bytes, n } };
	struct buf b = { 0 };

	m.ranks.v = lists[which >> 2 & 3];
	m.ranks.n = which & 128 ? 0 : (which >> 2 & 3) == 3 ? 3 : 2;
	if (m.use == EXCHANGE_PMIX_GROUP)
		m.name = (which >> 4) * (UINT64_C(1) << 32); /* as hashes are */
	wire_pack_pmix_collect(&b, &m);
	child_says(&b);
}

static void child_begins(bool starts)
{
	static const uint32_t counts[] = { 1, 0 };
	static const char *const environment[] = { "A=1" };
	struct buf b = { 0 };

	if (starts)
		wire_pack_pmix_ready(&b, &(struct wire_pmix_ready){
						 .environment = { environment, 1 },
						 .counts = { counts, 2 } });
	else
		wire_pack_pmix_opened(&b, &(struct wire_pmix_opened){ "l", "v", "" });
	child_says(&b);
	turn();
}

static void start(void)
{
	static const uint32_t hosts[] = { 0, 0, 1, 1 }, app = 0;
	static const char *const names[] = { "a", "b" };
	struct buf b = { 0 };
	const char *why;
	const enum server_pmix_state state = server_pmix(server, &why);

	if (state != SERVER_PMIX_OPEN &&
	    (job.nodes > 1 || state != SERVER_PMIX_OPENING))
		return;
	if (job.nodes > 1 && !server->host) {
		wire_pack_host_map(&b, &(struct wire_host_map){ 1,
								{ hosts, job.np },
								{ names, job.nodes },
								{ names, job.nodes },
								{ &app, 1 } });
		check(!launcher_says(&b));
	}
	server_pmix_start(server, &(struct server_pmix){ .oversubscribed = false });
}

static void child_speaks(unsigned which)
{
	const uint32_t rank = job.node * RANKS + (which & 1);
	static const uint32_t size = 1;
	static const char *const key = "k";
	struct buf b = { 0 };

	switch (which >> 1 & 7) {
	case 0:
		wire_pack_modex_request(&b, &(struct wire_modex_request){
						    .rank = which >> 4, .id = 7 });
		break;
	case 1:
		wire_pack_modex_data(&b, &(struct wire_modex_data){ .id = which >> 4 });
		break;
	case 2:
		wire_pack_pmix_client(
			&b, &(struct wire_pmix_client){ rank, which >> 4 & 1 });
		break;
	case 3:
		wire_pack_pmix_abort(&b, &(struct wire_pmix_abort){ rank, 1, "N/A" });
		break;
	case 4:
		wire_pack_pmix_log(&b,
				   &(struct wire_pmix_log){ rank, which >> 4, "x" });
		break;
	case 5:
		wire_pack_publish(
			&b,
			&(struct wire_publish){
				0, rank, 1, 0, { &key, 1 }, { &size, 1 }, { "v", 1 } });
		break;
	case 6:
		wire_pack_lookup(
			&b, &(struct wire_lookup){ 0, rank, 1, 1, 1, { &key, 1 } });
		break;
	default:
		wire_pack_event(&b,
				&(struct wire_event){ .rank = which >> 4, .code = 1 });
	}
	child_says(&b);
}

static void launcher_speaks(unsigned which)
{
	struct buf b = { 0 };

	switch (which & 3) {
	case 0:
		wire_pack_modex_request(
			&b, &(struct wire_modex_request){ 1, which >> 2, 0, which });
		break;
	case 1:
		wire_pack_modex_data(
			&b, &(struct wire_modex_data){ .epoch = 1, .id = asked });
		break;
	case 2:
		wire_pack_event(&b, &(struct wire_event){ .epoch = 1, .rank = which });
		break;
	default:
		wire_pack_found(&b, &(struct wire_found){ .epoch = 1, .id = which });
	}
	check(!launcher_says(&b));
}

static void ask_server(unsigned which)
{
	const size_t most = RANKS;
	const char *text;
	uint32_t stream;
	size_t local;
	int code;

	if (which & 1) {
		has_ended[job.node * RANKS + (which >> 1 & 1)] = true;
		server_ended(server, which >> 1 & 1, which & 4);
	}
	while (which & 8 && server_ends(server, &local))
		check(local < most &&
		      (server_aborted(server, local, &code, &text) || !*text));
	while (which & 16 && server_says(server, &local, &stream)) {
		check(local < most && (stream == 1 || stream == 2));
		server_said(server);
	}
	server_pmix_in_use(server);
	for (size_t i = 0; i < most; i++) {
		const wire_strv v = server_pmix_environment(server, i);

		for (size_t k = 0; k < v.n; k++)
			check(v.v[k] != NULL);
	}
}

/* A frame of the child or of the launcher, with a payload of the input. */
static bool any_frame(bool of_child, const uint8_t **p, const uint8_t *end)
{
	static const unsigned types[] = { WIRE_exchange_data, WIRE_exchange_failed,
					  WIRE_modex_request, WIRE_modex_data,
					  WIRE_found,         WIRE_event };
	const unsigned type = next(p, end);
	struct buf b = { 0 };
	uint8_t *bytes;
	bool sound = true;
	size_t n;

	bytes = take(p, end, &n);
	if (of_child) {
		buf_u32(&b, (uint32_t)n);
		buf_add(&b,
			&(uint8_t){
				(uint8_t)(type & 32 ? 38 + type % 7 : 64 + type % 16) },
			1);
		buf_add(&b, bytes, n);
		child_says(&b);
	} else {
		const struct wire_frame f = { types[type % 6], bytes, n };

		honest = false;
		sound = !server_frame(server, &f, NULL);
	}
	free(bytes);
	return sound;
}

/* False: the launcher broke the protocol. */
static bool step(const uint8_t **p, const uint8_t *end)
{
	const unsigned what = next(p, end);
	struct buf b = { 0 };
	uint8_t *bytes;
	bool sound = true;
	size_t n;

	switch (what % 16) {
	case 0:
	case 1:
		child_begins(what & 1);
		break;
	case 2:
		start();
		break;
	case 3:
	case 4:
		bytes = take(p, end, &n);
		child_collects(next(p, end), bytes, n);
		free(bytes);
		break;
	case 5:
	case 6:
		sound = launcher_answers(next(p, end), what & 16);
		check(sound || !honest);
		break;
	case 7:
	case 8:
		child_speaks(next(p, end));
		break;
	case 9:
		launcher_speaks(next(p, end));
		break;
	case 10:
		ask_server(next(p, end));
		break;
	case 11:
		pass(what >> 4);
		break;
	case 12:
		bytes = take(p, end, &n);
		buf_add(&b, bytes, n);
		free(bytes);
		child_says(&b);
		break;
	case 13:
	case 14:
		sound = any_frame(what & 1, p, end);
		break;
	default:
		if (what >> 4 == 15)
			child_hangs_up();
		else if (what & 16)
			return true; /* no turn between this step and the next */
		else
			child_reads = !child_reads;
	}
	turn();
	return sound;
}

static void begin(bool two_hosts)
{
	static uint32_t ranks[RANKS], apps[RANKS];

	if (!base)
		base = event_base_new();
	job = (struct wire_job){ .epoch = 1,
				 .job_id = "ab12",
				 .nspace = "space",
				 .flags = JOB_PMIX,
				 .np = two_hosts ? ALL_RANKS : RANKS,
				 .node = two_hosts,
				 .nodes = two_hosts ? 2 : 1,
				 .host = "here",
				 .own = "here",
				 .ranks = { ranks, RANKS },
				 .apps = { apps, RANKS } };
	for (uint32_t i = 0; i < RANKS; i++)
		ranks[i] = job.node * RANKS + i;
	child_reads = honest = true;
	memset(has_ended, 0, sizeof has_ended);
	child_fd = -1;
	ngiven = ntimers = asked = 0;
	server = server_open(base, &out, &job);
	server_pmix_open(server,
			 &(struct server_pmix){ .topology = "", .folders = &folders });
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static size_t descriptors;
	const uint8_t *p = data, *end = data + size;
	unsigned head;

	if (!size || size > 4096)
		return 0;
	head = *p++;
	begin(head & 1);
	if (head & 2) { /* else the script does */
		child_begins(false);
		start();
		child_begins(true);
	}
	while (p < end && step(&p, end))
		;
	turn();
	child_hangs_up();
	server_free(server);
	for (size_t i = 0; i < ngiven; i++)
		buf_free(&given[i].data);
	buf_free(&out);
	if (!descriptors)
		descriptors = count_descriptors();
	check(count_descriptors() == descriptors);
	return 0;
}
