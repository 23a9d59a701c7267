/* libFuzzer on what ranks write to PMI_FD (agent/pmi/pmi1.c), and on what the launcher
 * says of it: three ranks of one host, or of two, and a script of what happens.
 *
 * Each byte of the input is a step: its low two bits say which rank, the others what.
 * What the agent sends must be frames, and exchanges in their order; an honest answer
 * to them must be taken; answers must be whole lines; no descriptor may be left.  A
 * launcher that broke the protocol ends the script. */
#include <dirent.h>
#include <event2/event.h>
#include <sys/socket.h>

#include "agent/pmi/server_internal.h"
#include "common/job.h"
#include "fuzz.h"

enum { RANKS = 3, ALL_RANKS = 6 };

static struct event_base *base;
static struct buf out;
static struct server *server;
static int rank_fd[RANKS];
static bool reads[RANKS];
static struct buf given; /* to the exchange that the launcher has not answered */
static bool awaits_host_map;
static bool given_all;          /* all of it has come */
static uint64_t next_barrier;   /* its number */
static bool honest;             /* the launcher has been so far */
static uint32_t name_id[RANKS]; /* what each rank here awaits, by its local number */
static struct buf port;         /* the last that was published */

static size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static void check(bool good)
{
	if (!good)
		abort();
}

static void make_job(struct wire_job *job, bool two_hosts)
{
	static const uint32_t ranks[] = { 2, 0, 1 }, apps[] = { 0, 1, 0 };

	*job = (struct wire_job){ .epoch = 1,
				  .job_id = "ab12",
				  .flags = JOB_PMI1,
				  .np = two_hosts ? ALL_RANKS : RANKS,
				  .nodes = two_hosts ? 2 : 1,
				  .host = "here",
				  .ranks = { ranks, RANKS },
				  .apps = { apps, RANKS } };
}

static void rank_close(int r)
{
	if (rank_fd[r] >= 0)
		close(rank_fd[r]);
	rank_fd[r] = -1;
}

static void rank_connect(int r)
{
	struct err e;

	check(!server_pmi1(server, (size_t)r, &rank_fd[r], &e));
	reads[r] = true;
}

static void rank_say(int r, const void *bytes, size_t n)
{
	if (rank_fd[r] >= 0)
		send(rank_fd[r], bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void rank_read(int r)
{
	static char room[65536];
	char last = '\n';
	ssize_t n;

	if (rank_fd[r] < 0 || !reads[r])
		return;
	while ((n = recv(rank_fd[r], room, sizeof room, MSG_DONTWAIT)) > 0) {
		last = room[n - 1];
		event_base_loop(base, EVLOOP_NONBLOCK);
	}
	check(last == '\n');
}

/* What a rank would say. */
static void rank_honest(int r, unsigned what)
{
	static const char *const lines[] = {
		"cmd=init pmi_version=1 pmi_subversion=1\n",
		"cmd=get_maxes\n",
		"cmd=get_appnum\ncmd=get_my_kvsname\ncmd=get_universe_size\n",
		"cmd=put kvsname=kvs key=a value=1\n",
		"cmd=put kvsname=kvs key=b value=2\n",
		"cmd=get kvsname=kvs key=a\n",
		"cmd=get kvsname=kvs key=PMI_process_mapping\n",
		"cmd=barrier_in\n",
		"cmd=barrier_in\n",
		"cmd=finalize\n",
		"cmd=abort exitcode=1\n",
		"mcmd=spawn\nnprocs=1\nendcmd\n",
		"cmd=lookup_name service=s\n",
		"cmd=publish_name service=s port=p\ncmd=unpublish_name service=s\n",
		"cmd=put kvsname=kvs key=",
		" value=",
	};
	const char *line = lines[what % (sizeof lines / sizeof *lines)];

	rank_say(r, line, strlen(line));
}

static void take_exchange(const struct wire_frame *f)
{
	struct wire_exchange m;
	struct err e;

	check(!wire_unpack_exchange(&m, f->payload, f->n, &e));
	check(m.epoch == 1 && m.use == EXCHANGE_PMI1 && !m.ranks.n);
	if (!honest)
		next_barrier = m.number;
	check(m.number == next_barrier && (!honest || !given_all));
	buf_add(&given, m.data.p, m.data.n);
	given_all = m.last;
	check(!honest || given.len <= RANKS * (size_t)EXCHANGE_RANK_BYTES);
	wire_free_exchange(&m);
}

/* A port has come as a rank can read it; a request is of a rank here. */
static void take_name(const struct wire_frame *f)
{
	struct wire_publish p = { .rank = UINT32_MAX };
	struct wire_lookup l;
	struct wire_unpublish u;

	if (f->type == WIRE_publish) {
		check(!wire_unpack_publish(&p, f->payload, f->n, NULL));
		check(p.values.n && !memchr(p.values.p, ' ', p.values.n));
		buf_free(&port);
		buf_add(&port, p.values.p, p.values.n);
	} else if (f->type == WIRE_lookup) {
		check(!wire_unpack_lookup(&l, f->payload, f->n, NULL));
		p.rank = l.rank;
		p.id = l.id;
		wire_free_lookup(&l);
	} else if (f->type == WIRE_unpublish) {
		check(!wire_unpack_unpublish(&u, f->payload, f->n, NULL));
		p.rank = u.rank;
		p.id = u.id;
		wire_free_unpublish(&u);
	} else {
		return;
	}
	check(p.rank < RANKS && p.id & FOUND_PMI1);
	name_id[p.rank] = p.id;
	if (f->type == WIRE_publish)
		wire_free_publish(&p);
}

/* All that can happen now does. */
static void turn(void)
{
	struct wire_frame f;

	for (int i = 0; i < 3; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
	for (int i = 0; i < RANKS; i++)
		rank_read(i);
	while (out.len) {
		const long n =
			wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, NULL);

		check(n > 0);
		if (f.type == WIRE_exchange)
			take_exchange(&f);
		take_name(&f);
		awaits_host_map |= f.type == WIRE_host_map_request;
		buf_drop(&out, (size_t)n);
	}
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

static int give(struct buf *b)
{
	struct wire_frame f;
	int rc;

	check(wire_next_from(WIRE_LAUNCHER, &f, buf_head(b), b->len, NULL) > 0);
	rc = server_frame(server, &f, NULL);
	buf_free(b);
	return rc;
}

/* Any bytes, in an exchange_data frame of exchange NUMBER. */
static int launcher_data(uint64_t number, const void *bytes, size_t n, bool last)
{
	struct buf b = { 0 };
	struct wire_exchange_data m = { .epoch = 1,
					.use = EXCHANGE_PMI1,
					.number = number,
					.last = last,
					.data = { bytes, n } };

	wire_pack_exchange_data(&b, &m);
	return give(&b);
}

/* What the ranks here gave, in two parts, of which the first is of AT bytes. */
static bool launcher_answers(size_t at)
{
	const uint8_t *bytes = buf_head(&given);
	bool taken;

	if (!given_all)
		return true;
	at = at < given.len ? at : given.len;
	taken = !launcher_data(next_barrier, bytes, at, false) &&
		!launcher_data(next_barrier, given.len ? bytes + at : NULL,
			       given.len - at, true);
	check(taken || !honest);
	given_all = false;
	next_barrier++;
	buf_free(&given);
	return taken;
}

/* The answer to what rank RANK asked of names, with what was published last. */
static void launcher_finds(int rank, uint32_t status)
{
	const char *key = "pmi1:s";
	const uint32_t owner = 0, size = (uint32_t)port.len;
	struct buf b = { 0 };

	wire_pack_found(&b, &(struct wire_found){ 1,
						  name_id[rank],
						  status,
						  { &key, 1 },
						  { &owner, 1 },
						  { &size, 1 },
						  { buf_head(&port), port.len } });
	check(!give(&b));
}

static void launcher_fails(uint64_t number)
{
	struct buf b = { 0 };
	struct wire_exchange_failed m = { .epoch = 1,
					  .use = EXCHANGE_PMI1,
					  .number = number };

	wire_pack_exchange_failed(&b, &m);
	give(&b);
}

static void launcher_maps(unsigned which, const struct wire_job *job)
{
	static const uint32_t hosts[2][ALL_RANKS] = { { 0, 0, 0, 1, 1, 1 },
						      { 1, 0, 1, 0, 1, 0 } };
	static const char *const names[] = { "a", "b" };
	static const uint32_t app = 0;
	struct buf b = { 0 };

	if (!awaits_host_map)
		return;
	wire_pack_host_map(&b, &(struct wire_host_map){ 1,
							{ hosts[which & 1], job->np },
							{ names, 2 },
							{ names, 2 },
							{ &app, 1 } });
	check(!give(&b));
	awaits_host_map = false;
}

/* A step with bytes of the input. */
static bool step_bytes(unsigned what, const uint8_t **p, const uint8_t *end)
{
	uint8_t *bytes;
	int rc = 0;
	size_t n;

	bytes = take(p, end, &n);
	if (what >> 2 == 0) {
		rank_say((int)(what & 3) % RANKS, bytes, n);
	} else if (what >> 2 == 1) {
		const struct wire_frame f = { WIRE_exchange_data, bytes, n };

		honest = false;
		rc = server_frame(server, &f, NULL);
	} else {
		honest = false;
		rc = launcher_data(next_barrier, bytes, n, what & 1);
	}
	free(bytes);
	return !rc;
}

static void take_aborts(void)
{
	const char *text;
	size_t local;
	int code;

	while (server_ends(server, &local))
		check(!server_aborted(server, local, &code, &text) || !*text);
}

/* False: the launcher broke the protocol. */
static bool step(unsigned what, const struct wire_job *job, const uint8_t **p,
		 const uint8_t *end)
{
	const int r = (int)(what & 3) % RANKS;
	bool sound = true;

	switch (what >> 2) {
	case 0:
	case 1:
	case 2:
		sound = step_bytes(what, p, end);
		break;
	case 3:
		rank_close(r);
		break;
	case 4:
		server_ended(server, (size_t)r, what & 4);
		break;
	case 5:
	case 6:
		sound = launcher_answers(what & 7);
		break;
	case 7:
		launcher_fails(next_barrier + (what & 1));
		break;
	case 8:
		launcher_maps(what, job);
		break;
	case 9:
		reads[r] = !reads[r];
		break;
	case 10:
		take_aborts();
		break;
	case 11:
		return true; /* no turn between this step and the next */
	case 12:
	case 13:
		launcher_finds(r, (what >> 2 & 1) * FOUND_NO_ROOM);
		break;
	default:
		rank_honest(r, what >> 2);
	}
	turn();
	return sound;
}

static void begin(struct wire_job *job, bool two_hosts)
{
	if (!base)
		base = event_base_new();
	make_job(job, two_hosts);
	given_all = awaits_host_map = false;
	honest = true;
	next_barrier = 0;
	memset(name_id, 0, sizeof name_id);
	server = server_open(base, &out, job);
	for (int i = 0; i < RANKS; i++) {
		rank_fd[i] = -1;
		rank_connect(i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static size_t descriptors;
	const uint8_t *p = data, *end = data + size;
	struct wire_job job;
	bool sound = true;

	if (!size || size > 4096)
		return 0;
	begin(&job, *p++ & 1);
	while (p < end && sound) {
		const unsigned what = *p++;

		sound = step(what, &job, &p, end);
	}
	turn();
	for (int i = 0; i < RANKS; i++)
		rank_close(i);
	server_free(server);
	buf_free(&given);
	buf_free(&port);
	buf_free(&out);
	if (!descriptors)
		descriptors = count_descriptors();
	check(count_descriptors() == descriptors);
	return 0;
}
