/* Who of this host's ranks is in the library: their joinings, fences and losses. */
#include "agent/pmi/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { AHEAD_MOST = 8 /* joinings at a time */ };
#define MEMORY_MOST (1ull << 47)

static uint32_t rank_of(const struct client *c)
{
	return c->s->job->ranks.v[c->local];
}

static struct member *member_of(const struct client *c)
{
	return &c->s->member[c->local];
}

static const char *host_name(const struct server *s, uint32_t rank)
{
	return s->host ? s->name_of[s->host[rank]] : s->job->host;
}

/* ---- joinings ---- */

struct init_round *init_round_find(const struct server *s, uint32_t number)
{
	struct init_round *j = s->joining;

	while (j && j->number != number)
		j = j->next;
	return j;
}

static struct init_round *get_joining(struct server *s, uint32_t number)
{
	struct init_round *j = init_round_find(s, number);
	size_t n = 0;

	if (j)
		return j;
	for (j = s->joining; j; j = j->next)
		n++;
	if (n >= AHEAD_MOST)
		return NULL;
	j = xcalloc(1, sizeof *j);
	*j = (struct init_round){ .number = number, .memory = -1, .next = s->joining };
	s->joining = j;
	return j;
}

static void free_joining(struct init_round *j)
{
	if (j->head)
		munmap(j->head, sizeof *j->head);
	if (j->memory >= 0)
		close(j->memory);
	buf_free(&j->all);
	free(j);
}

/* Somebody is in it, or was until it was lost, so that what it did is to be looked at.
 */
static bool is_of_use(const struct server *s, const struct init_round *j)
{
	for (const struct client *c = s->client; c; c = c->next)
		if (c->fd >= 0 && c->joining == j)
			return true;
	for (size_t i = 0; i < s->job->ranks.n; i++)
		if (s->member[i].joining == j->number &&
		    s->member[i].state == MEMBER_LOST)
			return true;
	return false;
}

void joinings_settle(struct server *s)
{
	struct init_round **at = &s->joining;

	while (*at) {
		struct init_round *j = *at;

		if (is_of_use(s, j)) {
			at = &j->next;
			continue;
		}
		*at = j->next;
		free_joining(j);
	}
}

void joinings_free(struct server *s)
{
	while (s->joining) {
		struct init_round *next = s->joining->next;

		free_joining(s->joining);
		s->joining = next;
	}
	for (size_t i = 0; i < s->job->ranks.n; i++)
		free(s->member[i].text);
	for (size_t i = 0; s->name_of && i < s->job->nodes; i++)
		free(s->name_of[i]);
	free(s->member);
	free(s->gone);
	free(s->host);
	free(s->name_of);
}

/* ---- who is lost ---- */

static bool out_of(const struct gone *g, const struct init_round *j)
{
	return g->joining == j->number || (g->ended && g->joining < j->number);
}

/* Into J's memory, where ranks have said by now where that is.  Its head may say
 * anything. */
static bool write_lost(const struct server *s, struct init_round *j)
{
	const uint64_t at = j->head->lost_at, bytes = j->bytes;
	const uint32_t np = s->job->np;
	unsigned char how;
	uint32_t n = 0;

	if (__atomic_load_n(&j->head->magic, __ATOMIC_ACQUIRE) != BOOT_MAGIC ||
	    j->head->size != np || at < sizeof *j->head || at > bytes ||
	    bytes - at < np)
		return false;
	for (size_t i = 0; i < s->ngone; i++) {
		if (!out_of(&s->gone[i], j))
			continue;
		how = s->gone[i].follows ? BOOT_FOLLOWS : BOOT_LOST;
		n += pwrite(j->memory, &how, 1, (off_t)(at + s->gone[i].rank)) == 1;
	}
	if (n > atomic_load(&j->head->nlost))
		atomic_store(&j->head->nlost, n);
	return true;
}

static void mark(struct server *s, struct init_round *j)
{
	bool any = false;

	for (size_t i = 0; i < s->ngone; i++)
		any |= out_of(&s->gone[i], j);
	j->unmarked = any && (!j->head || !write_lost(s, j));
	if (j->unmarked && j->head)
		server_again(s);
}

void joinings_again(struct server *s)
{
	for (struct init_round *j = s->joining; j; j = j->next)
		if (j->unmarked)
			mark(s, j);
}

/* Who will not come to the fence of J any more; NULL: all may. */
static const struct gone *missing(const struct server *s, const struct init_round *j)
{
	for (size_t i = 0; i < s->ngone; i++)
		if (s->gone[i].ended || s->gone[i].joining >= j->number)
			return &s->gone[i];
	return NULL;
}

/* Whoever waits in J's fence for somebody that won't come. */
static void refuse_waiting(struct server *s, struct init_round *j)
{
	const struct gone *g = j->is_over ? NULL : missing(s, j);

	for (size_t i = 0; g && i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (m->state != MEMBER_SAID || m->joining != j->number)
			continue;
		m->state = MEMBER_AWAY;
		client_refuse(m->client,
			      "rank %u on '%s' ended before all ranks had joined",
			      g->rank, host_name(s, g->rank));
		m->client = NULL;
		j->said--;
	}
}

/* Of each rank the last word is kept. */
static void add_gone(struct server *s, struct gone g)
{
	size_t i = 0;

	while (i < s->ngone && s->gone[i].rank != g.rank)
		i++;
	if (i == s->ngone)
		s->gone = xreallocarray(s->gone, ++s->ngone, sizeof *s->gone);
	s->gone[i] = g;
}

static void act_on_gone(struct server *s)
{
	for (struct init_round *j = s->joining; j; j = j->next) {
		mark(s, j);
		refuse_waiting(s, j);
	}
}

/* Local rank LOCAL is out of its joining, and has not left it. */
static void lose(struct server *s, uint32_t local)
{
	struct member *m = &s->member[local];
	const uint32_t rank = s->job->ranks.v[local];
	const bool follows = op_records_follows(s, local);
	const struct wire_lost w = {
		s->job->epoch, { &rank, 1 }, m->joining, 0, follows
	};

	if (m->state == MEMBER_SAID)
		init_round_find(s, m->joining)->said--;
	m->state = MEMBER_LOST;
	m->client = NULL;
	if (s->job->nodes > 1)
		wire_pack_lost(s->out, &w);
	add_gone(s, (struct gone){ rank, m->joining, false, follows });
	act_on_gone(s);
}

void init_round_closed(struct client *c)
{
	if (c->joining && member_of(c)->client == c)
		lose(c->s, c->local);
}

/* The launcher knows it from `ended`. */
void init_round_ended(struct server *s, uint32_t local, bool failed)
{
	struct member *m = &s->member[local];
	struct client *c = m->client;

	if (c)
		client_read(c); /* it may have left */
	if (m->client) {
		lose(s, local);
		client_close(c);
	}
	if (failed)
		op_records_say(s, local);
	m->ended = true;
	add_gone(s, (struct gone){ s->job->ranks.v[local],
				   m->joining + (m->state == MEMBER_AWAY), true,
				   op_records_follows(s, local) });
	act_on_gone(s);
}

void init_round_lost(struct server *s, const struct wire_lost *m)
{
	for (size_t i = 0; i < m->ranks.n; i++)
		if (m->ranks.v[i] < s->job->np)
			add_gone(s, (struct gone){ m->ranks.v[i], m->joining, m->ended,
						   m->follows });
	act_on_gone(s);
}

/* ---- JOIN ---- */

static void say_world(struct client *c)
{
	const struct server *s = c->s;
	const struct wire_job *job = s->job;
	struct boot_who who = { .size = job->np,
				.local_rank = c->local,
				.local_size = (uint32_t)job->ranks.n,
				.cross_rank = job->cross_ranks.v[c->local],
				.cross_size = job->cross_sizes.v[c->local],
				.hosts = job->nodes };
	struct buf b = { 0 };

	memcpy(who.key, job->key.p, sizeof who.key);
	buf_add(&b, &who, sizeof who);
	for (uint32_t i = 0; i < job->np; i++) {
		const uint32_t host = s->host ? s->host[i] : 0;

		buf_add(&b, &host, sizeof host);
	}
	for (uint32_t i = 0; i < job->nodes; i++) {
		const char *name = s->host ? s->name_of[i] : job->host;

		buf_add(&b, name, strlen(name) + 1);
	}
	c->waits_world = false;
	client_say(c, BOOT_WORLD, buf_head(&b), b.len);
	buf_free(&b);
}

static void ask_world(struct server *s)
{
	const struct wire_host_map_request m = { s->job->epoch };

	if (!s->asked)
		wire_pack_host_map_request(s->out, &m);
	s->asked = true;
}

int init_round_world(struct server *s, const struct wire_host_map *m, struct err *e)
{
	const struct wire_job *job = s->job;
	bool sound = s->asked && !s->host && m->hosts.n == job->np &&
		     m->names.n == job->nodes;

	for (size_t i = 0; sound && i < m->hosts.n; i++)
		sound = m->hosts.v[i] < job->nodes;
	if (!sound)
		return err_set(e, E_WIRE, "malformed 'world' message");
	s->host = xcalloc(job->np, sizeof *s->host);
	memcpy(s->host, m->hosts.v, job->np * sizeof *s->host);
	s->name_of = xcalloc(job->nodes, sizeof *s->name_of);
	for (size_t i = 0; i < job->nodes; i++)
		s->name_of[i] = xstrdup(m->names.v[i]);
	for (struct client *c = s->client; c; c = c->next)
		if (c->fd >= 0 && c->waits_world)
			say_world(c);
	return 0;
}

/* Why C can't be local rank LOCAL, or NULL. */
static const char *why_not(struct server *s, size_t local)
{
	struct member *m;

	if (local == s->job->ranks.n)
		return "is none of this host's";
	m = &s->member[local];
	if (m->client)
		client_read(m->client); /* it may be gone, or have left */
	if (m->client)
		return "has joined already, as another process";
	if (m->ended)
		return "has ended";
	return NULL;
}

static void on_join(struct client *c, const struct boot_join *join)
{
	struct server *s = c->s;
	const wire_u32v ranks = s->job->ranks;
	struct member *m;
	const char *why;
	size_t local = 0;

	if (join->version != BOOT_VERSION) {
		client_refuse(c,
			      "libberth speaks protocol %u, the agent of this host %d",
			      join->version, BOOT_VERSION);
		return;
	}
	while (local < ranks.n && ranks.v[local] != join->rank)
		local++;
	why = why_not(s, local);
	if (why) {
		client_refuse(c, "rank %u %s", join->rank, why);
		return;
	}
	m = &s->member[local];
	c->joining = get_joining(s, m->joining + 1);
	if (!c->joining) {
		client_refuse(c, "rank %u is too far ahead of the others", join->rank);
		return;
	}
	c->local = (uint32_t)local;
	m->client = c;
	m->joining++;
	m->state = MEMBER_JOINED;
	m->asks = false;
	c->waits_world = s->job->nodes > 1 && !s->host;
	if (c->waits_world)
		ask_world(s);
	else
		say_world(c);
}

/* ---- MEMORY ---- */

/* Beyond a limit (ulimit -f) ftruncate() would end the agent with SIGXFSZ. */
static int size_to(int fd, uint64_t bytes)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_FSIZE, &l) || bytes <= l.rlim_cur)
		return ftruncate(fd, (off_t)bytes);
	errno = EFBIG;
	return -1;
}

/* 0, or an errno. */
static int make_memory(struct server *s, struct init_round *j, uint64_t bytes)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("berth", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *head = MAP_FAILED;
	int error;

	if (fd >= 0 && !size_to(fd, bytes) && !fcntl(fd, F_ADD_SEALS, seals))
		head = mmap(NULL, sizeof *j->head, PROT_READ | PROT_WRITE, MAP_SHARED,
			    fd, 0);
	if (head == MAP_FAILED) {
		error = errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	j->memory = fd;
	j->bytes = bytes;
	j->head = head;
	mark(s, j);
	return 0;
}

static void on_memory(struct client *c, uint64_t bytes)
{
	struct init_round *j = c->joining;
	int error = 0;

	if (bytes < sizeof *j->head || bytes > MEMORY_MOST ||
	    (j->memory >= 0 && bytes != j->bytes)) {
		init_round_closed(c);
		client_refuse(c, "rank %u asks for %llu bytes of shared memory%s",
			      rank_of(c), (unsigned long long)bytes,
			      j->memory >= 0
				      ? ", and others of its host for another size"
				      : "");
		return;
	}
	if (j->memory < 0)
		error = make_memory(c->s, j, bytes);
	if (error) {
		init_round_closed(c);
		client_refuse(c, "cannot make shared memory of %llu bytes: %s",
			      (unsigned long long)bytes, strerror(error));
		return;
	}
	client_say_with(c, BOOT_MEMORY, &bytes, sizeof bytes, j->memory);
	if (c->fd < 0)
		init_round_closed(c);
}

/* ---- FENCE ---- */

/* The head of the frame that ends J's fence; its length comes last. */
static void begin_all(struct init_round *j, int64_t clock_offset_ns)
{
	const struct boot_head head = { 0, BOOT_ALL };

	buf_add(&j->all, &head, sizeof head);
	buf_add(&j->all, &clock_offset_ns, sizeof clock_offset_ns);
}

static void end_fence(struct server *s, struct init_round *j)
{
	const struct boot_head head = {
		(uint32_t)(j->all.len - sizeof(struct boot_head)), BOOT_ALL
	};

	memcpy(buf_head(&j->all), &head, sizeof head);
	j->is_over = true;
	for (size_t i = 0; i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (m->state != MEMBER_SAID || m->joining != j->number)
			continue;
		m->state = MEMBER_IN;
		m->asks = false; /* that was for whom it had to wait */
		m->client->gets_all = true;
		client_flush(m->client);
	}
}

/* All ranks of the job are here. */
static void fence_alone(struct server *s, struct init_round *j)
{
	const wire_u32v ranks = s->job->ranks;
	uint32_t *local = xcalloc(ranks.n, sizeof *local);

	for (size_t i = 0; i < ranks.n; i++)
		local[ranks.v[i]] = (uint32_t)i;
	begin_all(j, 0);
	for (size_t i = 0; i < ranks.n; i++) {
		const char *text = s->member[local[i]].text;

		buf_add(&j->all, text, strlen(text) + 1);
	}
	free(local);
	end_fence(s, j);
}

static void send_fence(struct server *s, const struct init_round *j)
{
	struct wire_fence m = { .epoch = s->job->epoch, .joining = j->number };
	struct buf texts = { 0 };

	for (size_t i = 0; i < s->job->ranks.n; i++) {
		const char *text = s->member[i].text;

		buf_add(&texts, text, strlen(text) + 1);
	}
	while (!m.last) {
		m.last = texts.len <= WIRE_PART_MAX;
		m.texts.p = buf_head(&texts);
		m.texts.n = m.last ? texts.len : WIRE_PART_MAX;
		wire_pack_fence(s->out, &m);
		buf_drop(&texts, m.texts.n);
	}
	buf_free(&texts);
}

static void on_fence(struct client *c, const char *text, size_t n)
{
	struct server *s = c->s;
	struct init_round *j = c->joining;
	struct member *m = member_of(c);

	if (m->state != MEMBER_JOINED || c->waits_world ||
	    memchr(text, '\0', n) != text + n - 1) {
		init_round_closed(c);
		client_refuse(c, "rank %u is in no fence, or says no text", rank_of(c));
		return;
	}
	free(m->text);
	m->text = xstrdup(text);
	m->state = MEMBER_SAID;
	j->said++;
	refuse_waiting(s, j);
	if (j->said < s->job->ranks.n)
		return;
	if (s->job->nodes == 1)
		fence_alone(s, j);
	else
		send_fence(s, j);
}

/* How many texts, or 0: the last one has no end. */
static size_t count_texts(const struct buf *all, size_t from)
{
	const char *p = (const char *)buf_head(all);
	size_t n = 0;

	if (all->len <= from || p[all->len - 1])
		return 0;
	for (size_t i = from; i < all->len; i++)
		n += !p[i];
	return n;
}

int init_round_all(struct server *s, const struct wire_fence_data *m, struct err *e)
{
	const size_t head = sizeof(struct boot_head) + sizeof(int64_t);
	struct init_round *j = init_round_find(s, m->joining);

	if (!j || j->is_over || j->said < s->job->ranks.n)
		return 0; /* they have gone meanwhile */
	if (!j->all.len)
		begin_all(j, (int64_t)m->clock_offset_ns);
	buf_add(&j->all, m->texts.p, m->texts.n);
	if (j->all.len > BOOT_FRAME_BYTES_MAX ||
	    (m->last && count_texts(&j->all, head) != s->job->np))
		return err_set(e, E_WIRE, "malformed 'all' message");
	if (m->last)
		end_fence(s, j);
	return 0;
}

/* ---- LEAVE ---- */

static void on_leave(struct client *c)
{
	struct member *m = member_of(c);

	if (m->state == MEMBER_IN) {
		m->state = MEMBER_AWAY;
		m->client = NULL;
	} else {
		lose(c->s, c->local);
	}
	client_close(c);
}

void init_round_frame(struct client *c, uint32_t number, const void *payload, size_t n)
{
	struct boot_join join;
	uint64_t bytes;

	if (!c->joining != (number == BOOT_JOIN)) {
		init_round_closed(c);
		client_refuse(c, "%s", "a frame of libberth's out of turn");
		return;
	}
	switch (number) {
	case BOOT_JOIN:
		memcpy(&join, payload, sizeof join);
		on_join(c, &join);
		break;
	case BOOT_MEMORY:
		memcpy(&bytes, payload, sizeof bytes);
		on_memory(c, bytes);
		break;
	case BOOT_FENCE:
		on_fence(c, payload, n);
		break;
	case BOOT_ASK:
		if (!op_records_ask(c))
			break;
		init_round_closed(c);
		client_refuse(c, "%s", "a question of libberth's out of turn");
		break;
	case BOOT_STALL:
		if (!op_records_stall(c, payload, n))
			break;
		init_round_closed(c);
		client_refuse(c, "%s", "that is no report of a stall");
		break;
	default:
		on_leave(c);
	}
}
