/* libFuzzer on lib/p2p: what a rank does with the frames of faulty ranks that have the
 * job's key.  This is rank 1 of four.  Rank 0 says on connections, and rank 2 of this
 * host in its ring, what the input asks; rank 3 is silent.
 *
 * The first byte says which connections of rank 0 there are, and whether they are
 * encrypted.  Then come steps: of rank 1, which sends, receives and looks at the time,
 * and of ranks 0 and 2.  All bytes of messages of one rank are the same, so data in
 * the wrong place are seen; what rank 0 has not said rightly has other bytes.  Each
 * message ends once; its data are freed then. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/p2p/p2p_internal.h"
#include "tests/fuzz/far_end.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	RANKS = 4,
	ME = 1,
	STREAM = 0,
	RING = 2,
	SILENT = 3,
	GROUPS = 3, /* the last one is left, or ended, when a step says so */
	LAST = GROUPS - 1,
	OWNS = 64,
	ALLOC_MOST = 1 << 20,
	OWN_BYTE = 0x11,
	UNTOUCHED = 0x55,
	FORGED = 0xee
};

/* No run takes so long: deadlines come when a step says so. */
#define LATER_NS (1ull << 62)

static const uint8_t byte_of[RANKS] = { 0xa0, OWN_BYTE, 0xc2, 0 };

static struct net_where where[RANKS];
static struct net_door door = { .rank = ME,
				.size = RANKS,
				.key = "fuzz",
				.peer = where,
				.lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	struct p2p *p;
	struct p2p_group *group[GROUPS]; /* numbers 0 to GROUPS - 1 */
	struct net *net;
	void *region;
	struct far_end far[3]; /* lanes 0 and 1 of rank 0, lane 0 of rank 3 */
	uint64_t cells, bytes; /* that rank 2 has written */
	bool is_lost[RANKS];
	bool may_end; /* somebody has ended the group */
	bool may_lose[RANKS];
	bool is_apart;  /* they are not where rank 1 reads */
	bool ring_ends; /* as ENDS */
	/* Frames of rank 0 with heads that rank 1 has not answered, and bytes that rank
	 * 1 has offered it, and not sent. */
	uint64_t heads, offered;
} all;

static struct own {
	struct p2p_message m;
	unsigned char *data;
	size_t bytes;
	bool posted, done;
} own[OWNS];
static unsigned owns;

struct input {
	const uint8_t *p;
	size_t left;
};

static uint8_t next(struct input *in)
{
	return in->left ? (in->left--, *in->p++) : 0;
}

/* Small numbers, and those at which something ends. */
static uint64_t number(struct input *in)
{
	static const uint64_t ends[] = { P2P_NO_ID,       UINT64_MAX,
					 1ull << 63,      1ull << 32,
					 P2P_HEADS,       NET_SMALL_BYTES,
					 P2P_EAGER_BYTES, P2P_DATA_BYTES,
					 P2P_PIECE_BYTES, P2P_REASON_BYTES };
	const size_t n = sizeof ends / sizeof *ends;
	const uint8_t b = next(in);

	if (b < 200)
		return b < 100 ? b : (b - 100u) * 96u;
	if (b - 200u < 2 * n)
		return ends[(b - 200u) % n] + (b - 200u) / n;
	return (uint64_t)next(in) << (b % 57);
}

/* ---- messages of rank 1 ---- */

static bool are(const unsigned char *p, size_t n, uint8_t byte)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != byte)
			return false;
	return true;
}

static void look_at_receive(const struct own *x)
{
	const struct p2p_message *m = &x->m;

	if (m->rc == BERTH_MISMATCH)
		must(m->alloc || are(x->data, x->bytes, UNTOUCHED));
	if (m->rc)
		return;
	must(m->from < RANKS && (m->peer == P2P_ANY || m->peer == (int)m->from));
	must(m->from != SILENT && m->got <= x->bytes);
	if (!x->data)
		return;
	must(are(x->data, m->got, byte_of[m->from]));
	must(are(x->data + m->got, x->bytes - m->got, UNTOUCHED));
}

static void done(struct p2p_message *m)
{
	struct own *x = m->ctx;

	must(x->posted && !x->done);
	x->done = true;
	if (!m->sends)
		look_at_receive(x);
	free(x->data);
	x->data = NULL;
}

static void *more(void *ctx, uint64_t bytes)
{
	struct own *x = ctx;

	must(bytes && !x->data);
	if (bytes > ALLOC_MOST)
		return NULL;
	x->data = malloc(bytes);
	must(x->data != NULL);
	memset(x->data, UNTOUCHED, bytes);
	x->bytes = bytes;
	return x->data;
}

static void post_one(struct input *in, bool sends)
{
	struct own *x = &own[owns];
	const uint8_t how = next(in);
	const uint64_t bytes = number(in), tag = next(in) % 4;
	const int peer = (int)(how % 5) - (sends ? 0 : 1);
	struct p2p_group *g = all.group[how / 5 % GROUPS];
	berth_result rc;

	if (owns == OWNS || bytes > ALLOC_MOST || !g)
		return;
	owns++;
	x->m = (struct p2p_message){ .sends = sends,
				     .peer = peer,
				     .tag = tag,
				     .signature = how & 64 ? 8 : 7,
				     .bytes = bytes,
				     .deadline_ns = how & 128 ? LATER_NS : 0,
				     .done = done,
				     .ctx = x };
	if (!sends && how & 32) {
		x->m.alloc = more;
		x->m.alloc_ctx = x;
		x->m.bytes = 0;
	} else {
		x->bytes = bytes;
		x->data = malloc(bytes + 1);
		must(x->data != NULL);
		memset(x->data, sends ? OWN_BYTE : UNTOUCHED, bytes);
		x->m.in = x->m.out = x->data;
	}
	x->posted = true;
	rc = p2p_post(g, &x->m, 1);
	if (!rc)
		return;
	must(!x->done);
	x->posted = false;
	free(x->data);
	x->data = NULL;
}

static bool is_lost(void *ctx, unsigned place)
{
	(void)ctx;
	return all.is_lost[place];
}

static void aborted(void *ctx, unsigned place, const char *text)
{
	(void)ctx;
	must(all.may_end && strnlen(text, P2P_REASON_BYTES + 1) <= P2P_REASON_BYTES &&
	     (place == STREAM || place == RING));
}

static void forget_posts(void)
{
	for (unsigned i = 0; i < owns; i++)
		must(own[i].done == own[i].posted);
	memset(own, 0, owns * sizeof *own);
	owns = 0;
}

/* ---- frames ---- */

/* BODY: as long as it is to be.  FALSE: there is no such frame.  PLACE: its sender, in
 * all groups, unless the input has another one. */
static bool make_frame(struct input *in, unsigned place, struct p2p_frame *f,
		       uint64_t *body)
{
	const uint8_t kind = next(in);

	*f = (struct p2p_frame){ .kind = P2P_EAGER + kind % 16u - 1,
				 .signature = kind & 64 ? (uint32_t)number(in) : 7,
				 .id = (uint32_t)number(in),
				 .to = kind & 128 ? (uint32_t)number(in) : 0,
				 .place = place,
				 .tag = next(in) % 4 };
	f->bytes = number(in);
	if (kind & 16)
		f->group = (uint32_t)number(in) % (GROUPS + 1);
	if (kind & 32)
		f->place = (uint32_t)number(in);
	all.may_end |= f->kind == P2P_ABORT;
	if (p2p_frame_body(f, body))
		return true;
	*body = 0;
	return false;
}

/* A frame on E.  HOW: one bit changes, or its end is left out. */
static void say(struct input *in, struct far_end *e, unsigned times, unsigned how)
{
	struct p2p_wire w = { 0 };
	uint64_t body, tail, bit = how ? number(in) : 0;
	unsigned char *small;
	size_t begun, n;

	bool can_be = make_frame(in, STREAM, &w.frame, &body);

	if (e->fd < 0 || !e->channel.out)
		return;
	small = malloc(body + 1);
	must(small != NULL);
	while (times--) {
		if (e->have + body + sizeof w + sizeof tail > QUEUE_BYTES)
			break;
		e->forged |= how;
		e->ends |= !can_be && !e->forged;
		memset(small, e->forged ? FORGED : byte_of[STREAM], body);
		w.mark = net_mark(e->channel.out, &w.frame);
		e->channel.out->number++;
		tail = net_tail(e->channel.out, w.mark.number, small, body);
		begun = e->have;
		far_say(e, &w, sizeof w);
		far_say(e, small, body);
		far_say(e, &tail, net_tail_bytes(e->channel.out, body));
		n = e->have - begun;
		if (how == 1)
			e->queue[begun + bit / 8 % n] ^= (uint8_t)(1 << bit % 8);
		if (how == 2) { /* nor can what follows make it whole */
			e->queue[begun] ^= 1;
			e->have -= 1 + bit % n;
		}
		if (!e->forged &&
		    (w.frame.kind == P2P_EAGER || w.frame.kind == P2P_OFFER))
			all.heads++;
	}
	free(small);
}

static void say_raw(struct input *in, struct far_end *e)
{
	if (e->fd < 0)
		return;
	e->forged = true;
	for (unsigned n = 1 + next(in) % 64u; n--;)
		far_say(e, (const uint8_t[]){ next(in) }, 1);
}

/* ---- what rank 1 says ---- */

/* It says nothing that can't be, whatever it hears. */
static bool hear_frame(struct far_end *e)
{
	struct p2p_wire w;
	uint64_t body;

	if (e->heard < sizeof w)
		return false;
	memcpy(&w, e->in, sizeof w);
	must(net_mark_is_good(e->channel.in, &w.mark, &w.frame, false));
	must(p2p_frame_body(&w.frame, &body));
	e->channel.in->number++;
	e->heard -= sizeof w;
	memmove(e->in, e->in + sizeof w, e->heard);
	e->skip = e->bytes = body;
	e->tailing = net_tail_bytes(e->channel.in, body);
	net_tail_begin(e->channel.in);
	must(w.frame.place == (w.frame.kind == P2P_LEAVE ? w.frame.place : ME));
	if (w.frame.kind == P2P_TAKE || w.frame.kind == P2P_MATCHED ||
	    w.frame.kind == P2P_REFUSE) {
		must(e != &all.far[SILENT - 1] && all.heads);
		all.heads--;
	}
	if (w.frame.kind == P2P_OFFER)
		all.offered += w.frame.bytes;
	if (w.frame.kind == P2P_DATA) {
		must(body <= all.offered);
		all.offered -= body;
	}
	return true;
}

/* Of a body and its tail, as much as has come.  Is there no more of them? */
static bool hear_body(struct far_end *e)
{
	const size_t k = e->skip < e->heard ? e->skip : e->heard;
	uint64_t tail;
	size_t n = k;

	if (k)
		net_tail_add(e->channel.in, e->in, k);
	e->skip -= k;
	if (!e->skip && e->tailing && e->heard - k >= sizeof tail) {
		/* its head was the last one that counted */
		tail = net_tail_end(e->channel.in, e->channel.in->number - 1, e->bytes);
		must(!memcmp(&tail, e->in + k, sizeof tail));
		n += sizeof tail;
		e->tailing = false;
	}
	e->heard -= n;
	memmove(e->in, e->in + n, e->heard);
	return !e->skip && !e->tailing;
}

static void hear(struct far_end *e)
{
	ssize_t k = 1;

	while (e->fd >= 0 && k > 0) {
		k = net_channel_receive(
			&e->channel,
			&(struct iovec){ e->in + e->heard, sizeof e->in - e->heard },
			1);
		e->heard += k > 0 ? (size_t)k : 0;
		while (hear_body(e) && hear_frame(e))
			;
	}
}

/* ---- the ring of rank 2 ---- */

static void say_in_ring(struct input *in, unsigned times)
{
	struct p2p_ring_end *e = &all.p->peer[RING].in;
	struct p2p_frame f;
	uint64_t body;

	const bool can_be = make_frame(in, RING, &f, &body);

	while (times-- && e->ring) {
		struct p2p_cell *c = &e->ring->cell[all.cells % P2P_CELLS];

		all.is_apart |= all.cells - e->cells >= P2P_CELLS;
		all.ring_ends |= !can_be;
		c->frame = f;
		memset(c->body, byte_of[RING], sizeof c->body);
		/* all that could be looked at */
		if (body > P2P_CELL_BYTES && !all.bytes)
			memset(e->ring->bytes, byte_of[RING], e->size);
		all.bytes |= body > P2P_CELL_BYTES;
		atomic_store(&c->stamp, ++all.cells);
	}
}

static void change_ring(struct input *in)
{
	struct p2p_peer *q = &all.p->peer[RING];
	const uint8_t what = next(in);
	const uint64_t k = number(in);

	switch (what % 6) {
	case 0:
		atomic_store(&q->out.ring->cells_taken, q->out.cells);
		atomic_store(&q->out.ring->bytes_taken, q->out.bytes);
		break;
	case 1:
		atomic_store(&q->out.ring->cells_taken, k);
		break;
	case 2:
		atomic_store(&q->out.ring->bytes_taken, q->out.bytes + 64 * k);
		break;
	case 3:
		atomic_store(&q->out.ring->is_full, (uint32_t)k);
		break;
	case 4:
		all.is_apart = true;
		all.cells = k;
		atomic_store(&q->in.ring->cell[what % P2P_CELLS].stamp, k);
		break;
	default:
		atomic_store(&q->bell->left, 1);
	}
}

/* ---- steps ---- */

static void look_at_group(const struct p2p_group *g)
{
	for (unsigned i = 0; g->pair && i < RANKS; i++) {
		const struct p2p_pair *x = &g->pair[i];

		must(!x->gone || all.may_lose[i] || g->over);
		must(x->gone ||
		     (x->heads_in <= P2P_HEADS && x->room_in <= P2P_ROOM_BYTES));
		must(x->heads_out <= P2P_HEADS && x->room_out <= P2P_ROOM_BYTES);
	}
	must(!g->over || all.may_end);
}

static void look_at_peers(void)
{
	const struct p2p_ring_end *out = &all.p->peer[RING].out;

	for (unsigned i = 0; i < RANKS; i++) {
		const struct p2p_peer *q = &all.p->peer[i];

		must(!q->gone || all.may_lose[i]);
		must(q->answers.n <= P2P_ANSWERS);
	}
	for (unsigned i = 0; i < GROUPS; i++)
		if (all.group[i])
			look_at_group(all.group[i]);
	must(all.p->peer[RING].gone || (out->cells - out->cells_taken <= P2P_CELLS &&
					out->bytes - out->bytes_taken <= out->size));
}

static void progress(bool time_passes)
{
	if (time_passes)
		all.p->tick_ns = all.p->watched_ns = 0;
	for (unsigned i = 0; time_passes && i < owns; i++)
		if (own[i].m.deadline_ns && own[i].posted && !own[i].done)
			all.p->deadline_ns = own[i].m.deadline_ns = 1;
	p2p_progress(all.p);
	look_at_peers();
}

static void end_last_group(bool aborts, bool leaves)
{
	struct p2p_group *g = all.group[LAST];

	all.may_end = true;
	if (!g)
		return;
	p2p_end(g, BERTH_ABORTED);
	if (aborts)
		p2p_abort(g, "fuzz");
	if (!leaves)
		return;
	p2p_leave(g);
	all.group[LAST] = NULL;
}

static void step(struct input *in)
{
	const uint8_t what = next(in);
	struct far_end *e = &all.far[what & 32 ? 1 : 0];
	const unsigned times = what & 64 ? next(in) : 1;

	switch (what % 16) {
	case 0:
	case 1:
		post_one(in, true);
		break;
	case 2:
	case 3:
		post_one(in, false);
		break;
	case 4:
		progress(true);
		break;
	case 5:
	case 6:
	case 7:
		say(in, e, times, 0);
		break;
	case 8:
		say(in, e, 1, 1 + next(in) % 2u);
		break;
	case 9:
		say_raw(in, e);
		break;
	case 10:
	case 11:
		say_in_ring(in, times);
		break;
	case 12:
		change_ring(in);
		break;
	case 13:
		hear(e);
		hear(&all.far[SILENT - 1]);
		break;
	case 14:
		all.is_lost[next(in) % 3u] = true;
		break;
	default:
		if (times % 2) {
			far_push(e, QUEUE_BYTES);
			far_close(e);
			break;
		}
		end_last_group(times & 2, times & 4);
	}
	all.may_lose[STREAM] |= (what % 16 >= 5 && what % 16 <= 9) || what % 16 >= 14;
	all.may_lose[RING] |= (what % 16 >= 10 && what % 16 <= 12) || what % 16 == 14;
	far_push(e, what & 16 ? number(in) : QUEUE_BYTES);
	if (!(what & 128))
		progress(false);
}

/* ---- one input ---- */

static void open_all(uint8_t how, uint64_t seed)
{
	static const unsigned rank[] = { 0, 1, 2, 3 }, host[] = { 1, 0, 0, 2 };
	static struct members members;
	const struct net_config n = { .rank = ME, .size = RANKS, .door = &door };
	struct p2p_config c = { .members = &members, .is_lost = is_lost, .cores = 2 };
	struct p2p_group_config g = { .members = &members, .aborted = aborted };
	char why[64];

	if (!members.n)
		must(!members_make(&members, rank, RANKS, host, ME));
	memset(&all, 0, sizeof all);
	all.net = net_open(&n, why, sizeof why);
	all.region = mmap(NULL, p2p_bytes(2), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(all.net && all.region != MAP_FAILED && !net_key_init());
	for (unsigned i = 0; i < 3; i++)
		all.far[i].fd = -1;
	if (!(how & 1))
		far_connect(&all.far[0], all.net, STREAM, 0, how & 4, seed);
	if (how & 3)
		far_connect(&all.far[1], all.net, STREAM, 1, how & 4, seed);
	far_connect(&all.far[SILENT - 1], all.net, SILENT, 0, how & 4, seed);
	c.net = all.net;
	c.region = all.region;
	all.p = p2p_open(&c);
	must(all.p != NULL);
	for (; g.number < GROUPS; g.number++) {
		all.group[g.number] = p2p_join(all.p, &g);
		must(all.group[g.number] != NULL);
	}
}

/* A rank that has said what cannot be is gone, once that has been read. */
static void look_at_liars(void)
{
	const struct p2p_peer *q = &all.p->peer[STREAM];

	for (unsigned i = 0; i < 2; i++)
		far_push(&all.far[i], QUEUE_BYTES);
	for (unsigned i = 0; i < 500 && p2p_progress(all.p); i++)
		look_at_peers();
	for (int i = 0; i < 2; i++)
		must(!all.far[i].ends || all.far[i].have || all.far[i].fd < 0 ||
		     q->gone || q->stream->hears == !i);
	must(!all.ring_ends || all.is_apart || all.p->peer[RING].gone);
}

/* None takes anything more, so nothing is waited for. */
static void close_all(void)
{
	for (unsigned i = 0; i < 3; i++) {
		hear(&all.far[i]);
		far_close(&all.far[i]);
	}
	for (unsigned i = 0; i < RANKS; i++) {
		all.may_lose[i] = true;
		p2p_lose(all.p, &all.p->peer[i]);
	}
	for (unsigned i = 0; i < GROUPS; i++)
		if (all.group[i])
			p2p_leave(all.group[i]);
	p2p_close(all.p);
	for (unsigned i = 0; i < 3; i++) {
		far_free(&all.far[i]);
	}
	munmap(all.region, p2p_bytes(2));
	forget_posts();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint64_t seed = size;

	/* guesses at MACs change them */
	for (size_t i = 0; i < size; i++)
		seed = (seed ^ data[i]) * 0x100000001b3u;
	open_all(next(&in), seed);
	for (unsigned steps = 0; in.left && steps < 300; steps++)
		step(&in);
	progress(true);
	look_at_liars();
	close_all();
	return 0;
}
