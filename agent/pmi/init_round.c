/* The ranks of this host in the library: their init rounds, fences and losses. */
#include "agent/pmi/exchange.h"
#include "agent/pmi/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { READS_MOST = 16 /* of one connection in one turn of the loop */ };
#define MEMORY_MOST (1ull << 47)

/* ---- lost ranks ---- */

/* If C is the connection of a member, that rank is out of its init round, and has not
 * left it. */
static void round_lose(struct client *c)
{
	struct server *s = c->s;
	struct member *m = client_member(c);
	const uint32_t rank = client_rank(c);
	const uint32_t round = m->init_round ? m->init_round : 1;
	bool secondary, waits;

	if (!c->is_known || m->client != c)
		return;
	waits = m->state == MEMBER_WAITING;
	op_records_tell(s, c->local);
	secondary = op_records_secondary(s, c->local);
	if (m->state == MEMBER_IN_FENCE)
		m->round->in_fence--;
	m->state = waits ? MEMBER_NOT_JOINED : MEMBER_LOST;
	m->client = NULL;
	if (s->job->nodes > 1 || waits || m->dies)
		wire_pack_lost(s->out, &(struct wire_lost){ s->job->epoch,
							    { &rank, 1 },
							    round,
							    m->dies,
							    secondary });
	if (waits) /* it has left its last world */
		return;
	init_round_add_lost(
		s, (struct lost_rank){ rank, m->init_round, false, secondary });
	init_round_tell_lost(s);
}

/* The connection of M, whose process ends.  False: it had none any more. */
static bool round_lose_last(struct member *m)
{
	struct client *c = m->client;

	if (c)
		init_round_read(c); /* it may have left */
	if (!m->client)
		return false;
	round_lose(m->client);
	client_close(c);
	return true;
}

void init_round_dies(struct server *s, uint32_t local)
{
	struct member *m = &s->member[local];
	const uint32_t rank = s->job->ranks.v[local];

	m->dies = true;
	if (round_lose_last(m))
		return;
	wire_pack_lost(s->out,
		       &(struct wire_lost){ s->job->epoch, { &rank, 1 }, 0, 1, 0 });
}

/* The launcher knows it from `exited`. */
void init_round_ended(struct server *s, uint32_t local, bool failed)
{
	struct member *m = &s->member[local];

	dying_forget(m);
	round_lose_last(m);
	if (failed)
		op_records_send(s, local);
	/* words of others before it come first: that they go on without it, say */
	for (size_t i = 0; failed && i < s->job->ranks.n; i++)
		if (s->member[i].client)
			init_round_read(s->member[i].client);
	m->ended = true;
	init_round_add_lost(
		s, (struct lost_rank){ s->job->ranks.v[local],
				       m->init_round + (m->state == MEMBER_NOT_JOINED),
				       true, op_records_secondary(s, local) });
	init_round_tell_lost(s);
}

void init_round_lost(struct server *s, const struct wire_lost *m)
{
	for (size_t i = 0; i < m->ranks.n; i++)
		if (m->ranks.v[i] < s->job->np)
			init_round_add_lost(
				s, (struct lost_rank){ m->ranks.v[i], m->init_round,
						       m->ended, m->secondary });
	init_round_tell_lost(s);
}

/* ---- JOIN ---- */

void init_round_host_map(struct server *s)
{
	for (struct client *c = s->client; c; c = c->next)
		if (c->fd >= 0 && c->waits_host_map)
			init_round_send_world(c);
}

/* on_join() and the next functions do what a frame of C asks for.  NULL, or why C is
 * refused. */
static char *on_join(struct client *c, const struct boot_join *join)
{
	struct server *s = c->s;
	const uint32_t local = local_of(s, join->rank);
	struct member *m;

	if (join->version != BOOT_VERSION)
		return xasprintf(
			"libberth speaks protocol %u, the agent of this host %d",
			join->version, BOOT_VERSION);
	if (join->follows > BOOT_FOLLOWS || join->epoch >= BOOT_EPOCH_MOST)
		return xasprintf("rank %u says what cannot be of its last world",
				 join->rank);
	if (local == s->job->ranks.n)
		return xasprintf("rank %u is not on this host", join->rank);
	m = &s->member[local];
	if (m->client)
		init_round_read(m->client); /* it may be gone, or have left */
	if (m->client)
		return xasprintf("rank %u has joined already, as another process",
				 join->rank);
	if (m->ended)
		return xasprintf("rank %u has ended", join->rank);
	c->local = local;
	if (join->follows || m->joins)
		return next_world_wait(c, join->epoch);
	c->round = init_round_add(s, m->init_round + 1);
	if (!c->round)
		return xasprintf("rank %u is too far ahead of the others", join->rank);
	c->is_known = true;
	m->client = c;
	m->init_round++;
	m->dies = false;
	m->round = c->round;
	m->place = c->local;
	m->state = MEMBER_JOINING;
	m->asks_missing = false;
	c->waits_host_map = !host_map_known(s);
	if (!c->waits_host_map)
		init_round_send_world(c);
	return NULL;
}

/* ---- MEMORY ---- */

/* 0, or an errno. */
static int make_memory(struct server *s, struct init_round *round, uint64_t bytes)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("berth", MFD_CLOEXEC | MFD_ALLOW_SEALING), error;
	void *head = MAP_FAILED;
	struct rlimit l;

	if (fd < 0)
		return errno;
	/* beyond a limit (ulimit -f) ftruncate() would end the agent with SIGXFSZ */
	if (!getrlimit(RLIMIT_FSIZE, &l) && bytes > l.rlim_cur)
		errno = EFBIG;
	else if (!ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, seals))
		head = mmap(NULL, sizeof *round->head, PROT_READ | PROT_WRITE,
			    MAP_SHARED, fd, 0);
	if (head == MAP_FAILED) {
		error = errno;
		close(fd);
		return error;
	}
	round->memory = fd;
	round->bytes = bytes;
	round->head = head;
	init_round_mark(s, round);
	return 0;
}

static char *on_memory(struct client *c, uint64_t bytes)
{
	struct init_round *round = c->round;
	const bool have = round->memory >= 0;
	int error = 0;

	if (bytes < sizeof *round->head || bytes > MEMORY_MOST ||
	    (have && bytes != round->bytes))
		return xasprintf("rank %u asks for %llu bytes of shared memory%s",
				 client_rank(c), (unsigned long long)bytes,
				 have ? ", and others of its host for another size"
				      : "");
	if (!have)
		error = make_memory(c->s, round, bytes);
	if (error)
		return xasprintf("cannot make shared memory of %llu bytes: %s",
				 (unsigned long long)bytes, strerror(error));
	if (!client_send_fd(c, BOOT_MEMORY, &bytes, sizeof bytes, round->memory))
		return xstrdup("the rank does not read the answers");
	return NULL;
}

/* ---- FENCE ---- */

/* The frame that answers the fence is complete but for its head. */
static void end_fence(struct server *s, struct init_round *round)
{
	const struct boot_head head = {
		(uint32_t)(round->fence_data.len - sizeof(struct boot_head)), BOOT_ALL
	};

	memcpy(buf_head(&round->fence_data), &head, sizeof head);
	round->is_over = true;
	for (size_t i = 0; i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (m->state != MEMBER_IN_FENCE || m->round != round)
			continue;
		m->state = MEMBER_JOINED;
		m->joins = false;
		m->asks_missing = false; /* that was about the fence */
		m->client->gets_fence_data = true;
		client_flush(m->client);
	}
}

/* The texts of ROUND's members: in the order of their world if this is the only host,
 * else in that of the host's ranks. */
static void add_texts(struct buf *out, const struct server *s,
		      const struct init_round *round)
{
	const wire_u32v ranks = s->job->ranks;
	uint32_t *order = xcalloc(ranks.n, sizeof *order), n = 0;

	for (uint32_t i = 0; i < ranks.n; i++)
		if (s->member[i].round == round)
			order[s->job->nodes == 1 ? init_round_place(round, ranks.v[i])
						 : n++] = i;
	for (size_t i = 0; i < round->local_size; i++) {
		const char *text = s->member[order[i]].text;

		buf_add(out, text, strlen(text) + 1);
	}
	free(order);
}

/* The beginning of the frame that answers ROUND's fence; end_fence() sets its
 * length. */
static void begin_fence_data(struct init_round *round, int64_t clock_offset_ns)
{
	const struct boot_head head = { 0, BOOT_ALL };

	buf_add(&round->fence_data, &head, sizeof head);
	buf_add(&round->fence_data, &clock_offset_ns, sizeof clock_offset_ns);
}

static char *round_on_fence(struct client *c, const char *text, size_t n)
{
	struct server *s = c->s;
	struct init_round *round = c->round;
	struct member *m = client_member(c);
	struct buf texts = { 0 };
	wire_u32v ranks;

	if (m->state != MEMBER_JOINING || c->waits_host_map ||
	    memchr(text, '\0', n) != text + n - 1)
		return xasprintf("rank %u sent an unexpected or malformed fence",
				 client_rank(c));
	free(m->text);
	m->text = xstrdup(text);
	m->state = MEMBER_IN_FENCE;
	round->in_fence++;
	init_round_refuse_waiting(s, round);
	if (round->in_fence < round->local_size)
		return NULL;
	if (s->job->nodes == 1) {
		begin_fence_data(round, 0);
		add_texts(&round->fence_data, s, round);
		end_fence(s, round);
		return NULL;
	}
	add_texts(&texts, s, round);
	ranks = init_round_ranks(round);
	exchange_give(s, EXCHANGE_INIT, ranks, round->number, EXCHANGE_WHOLE, &texts);
	free((uint32_t *)(uintptr_t)ranks.v);
	return NULL;
}

/* The texts in ROUND->texts, in the order of hosts, become the answer, in the order of
 * ranks.  False: they are not as many as ranks. */
static bool sort_texts(const struct server *s, struct init_round *round)
{
	const char *p = (const char *)buf_head(&round->texts),
		   *end = p + round->texts.len,
		   **text = xcalloc(round->size, sizeof *text);
	uint32_t *rank = ranks_by_host(s);
	bool sound = p < end && !end[-1];

	for (uint32_t i = 0; sound && i < s->job->np; i++) {
		const uint32_t place = init_round_place(round, rank[i]);

		if (place == round->size)
			continue;
		sound = p < end;
		text[place] = p;
		p += sound ? strlen(p) + 1 : 0;
	}
	sound &= p == end;
	for (uint32_t i = 0; sound && i < round->size; i++)
		buf_add(&round->fence_data, text[i], strlen(text[i]) + 1);
	free(rank);
	free(text);
	return sound;
}

int init_round_fence_data(struct server *s, const struct wire_exchange_data *m,
			  struct err *e)
{
	struct init_round *round = m->number <= UINT32_MAX
					   ? init_round_find(s, (uint32_t)m->number)
					   : NULL;

	if (!round || round->is_over || round->in_fence < round->local_size)
		return 0; /* they have gone meanwhile */
	buf_add(&round->texts, m->data.p, m->data.n);
	if (round->texts.len > BOOT_FRAME_BYTES_MAX || !s->host)
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	if (!m->last)
		return 0;
	begin_fence_data(round, (int64_t)m->clock_offset_ns);
	if (!sort_texts(s, round))
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	buf_free(&round->texts);
	end_fence(s, round);
	return 0;
}

/* ---- frames ---- */

static char *on_frame(struct client *c, uint32_t number, const void *payload, size_t n)
{
	struct member *m = client_member(c);
	struct boot_join join;
	uint64_t bytes;
	uint32_t can;

	if (c->is_known == (number == BOOT_JOIN) ||
	    (c->is_known && !c->round && number != BOOT_MISSING_REQUEST &&
	     number != BOOT_ELASTIC && number != BOOT_LEAVE))
		return xstrdup("an unexpected frame of libberth");
	switch (number) {
	case BOOT_JOIN:
		memcpy(&join, payload, sizeof join);
		return on_join(c, &join);
	case BOOT_MEMORY:
		memcpy(&bytes, payload, sizeof bytes);
		return on_memory(c, bytes);
	case BOOT_FENCE:
		return round_on_fence(c, payload, n);
	case BOOT_MISSING_REQUEST:
		return op_records_missing_request(c)
			       ? xstrdup("an unexpected question of libberth")
			       : NULL;
	case BOOT_STALL:
		return op_records_stall(c, payload, n)
			       ? xstrdup("not a report of a stall")
			       : NULL;
	case BOOT_ALIVE:
		return m->state == MEMBER_JOINED
			       ? dying_watch(c)
			       : xstrdup("an unexpected request of libberth");
	case BOOT_ELASTIC:
		memcpy(&can, payload, sizeof can);
		return next_world_elastic(c, can);
	default: /* BOOT_LEAVE */
		if (m->state == MEMBER_JOINED) {
			op_records_tell(c->s, c->local);
			m->state = MEMBER_NOT_JOINED;
			m->client = NULL;
		}
		round_lose(c);
		client_close(c);
		return NULL;
	}
}

void init_round_read(struct client *c)
{
	struct boot_head h;
	int some = 1;

	for (int i = 0; some > 0 && i < READS_MOST && c->fd >= 0; i++) {
		int whole = 0;

		some = client_read(c);
		while (c->fd >= 0 && some > 0 && (whole = client_frame(c, &h)) != 0) {
			char *why = whole < 0 ? xstrdup("not a frame of libberth")
					      : on_frame(c, h.number,
							 buf_head(&c->in) + sizeof h,
							 h.bytes);

			if (why) {
				round_lose(c);
				client_refuse(c, BOOT_REFUSED, why);
			}
			free(why);
			if (c->fd >= 0)
				buf_drop(&c->in, sizeof h + h.bytes);
		}
		if (some < 0) {
			round_lose(c);
			client_close(c);
		}
		if (c->fd >= 0 && !c->in.len)
			buf_free(&c->in);
	}
}
