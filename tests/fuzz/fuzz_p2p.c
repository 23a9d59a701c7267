/* libFuzzer on lib/p2p: what ranks of other hosts may say about their messages.  Ranks
 * 0 and 2 of three have the job's key, and say anything: each frame has the right MAC,
 * but where the input spoils it.  Rank 1 sends and receives meanwhile.  Each byte is a
 * step.
 *
 * Each message ends once.  What one receives is of the rank that it names, and nothing
 * is written where BERTH_MISMATCH comes out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/net_state.h"
#include "lib/p2p/p2p_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	RANKS = 3,
	ME = 1,
	MESSAGES = 64,
	BODY_MOST = P2P_PIECE_BYTES,
	OUT_MOST = 40000,
	UNTOUCHED = 0xee
};

struct input {
	const uint8_t *p;
	size_t left;
};

static const unsigned char text_of[RANKS] = { 0xa0, 0x11, 0xc2 };

/* A rank that says anything. */
static struct liar {
	struct net_channel channel;
	int fd;
	bool cut; /* what it says is in pieces, which nobody need understand */
	bool lost;
} liar[RANKS];

static struct message {
	struct p2p_message m;
	unsigned char *data;
	size_t bytes;
	unsigned ends;
} message[MESSAGES];
static size_t nmessages;

static struct net_where where[RANKS];
static struct net_door door = { .rank = ME,
				.size = RANKS,
				.key = "fuzz",
				.peer = where,
				.lock = PTHREAD_MUTEX_INITIALIZER };
static struct net *net;
static struct p2p *p2p;

static void check(bool good)
{
	if (!good)
		abort();
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static uint8_t byte(struct input *in)
{
	return in->left ? in->left--, *in->p++ : 0;
}

static uint64_t any_bytes(struct input *in)
{
	static const uint64_t sizes[] = { NET_COVERED_BYTES,
					  NET_COVERED_BYTES + 1,
					  P2P_EAGER_BYTES,
					  P2P_EAGER_BYTES + 1,
					  20000,
					  P2P_DATA_BYTES,
					  P2P_PIECE_BYTES,
					  P2P_PIECE_BYTES + 1,
					  1ull << 32,
					  ~0ull };
	const uint8_t b = byte(in);

	return b < 0xe0 ? b : sizes[b % (sizeof sizes / sizeof *sizes)];
}

/* ---- the others ---- */

static bool is_lost(void *ctx, unsigned place)
{
	(void)ctx;
	return liar[place].lost;
}

static void note_abort(void *ctx, unsigned place, const char *text)
{
	(void)ctx;
	check(place < RANKS && place != ME && strlen(text) <= P2P_REASON_BYTES);
}

/* What this rank says goes nowhere. */
static void listen_to_it(struct liar *l)
{
	static unsigned char heard[1 << 16];

	while (l->fd >= 0 && recv(l->fd, heard, sizeof heard, MSG_DONTWAIT) > 0)
		;
}

static void say(struct liar *l, const void *data, size_t n)
{
	for (unsigned turns = 0; n && l->fd >= 0 && turns < 100; turns++) {
		ssize_t k = send(l->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k > 0) {
			data = (const uint8_t *)data + k;
			n -= (size_t)k;
			continue;
		}
		p2p_progress(p2p);
		listen_to_it(l);
	}
	l->cut |= n > 0;
}

static struct p2p_frame any_frame(struct input *in)
{
	struct p2p_frame f = { .kind = P2P_EAGER + byte(in) % 11, .signature = 7 };
	const uint8_t more = byte(in);

	f.id = more & 1 ? byte(in) : 0;
	f.to = more & 2 ? byte(in) : 0;
	f.tag = more & 4 ? byte(in) % 4 : 0;
	f.bytes = more & 8 ? any_bytes(in) : 10;
	f.heads = more & 16 ? byte(in) : 0;
	f.room = more & 32 ? (uint32_t)any_bytes(in) : 0;
	f.signature = more & 64 ? byte(in) : 7;
	if (more & 128) {
		const size_t n = least(in->left, sizeof f);

		memcpy(&f, in->p, n);
		in->p += n;
		in->left -= n;
	}
	return f;
}

/* A frame, and what is behind it; SPOILS: one bit of it is another one, or the last
 * bytes do not come. */
static void say_frame(struct liar *l, struct input *in, unsigned from, bool spoils)
{
	static unsigned char body[BODY_MOST];
	struct p2p_wire w = { .frame = any_frame(in) };
	uint64_t bytes;
	const bool good = p2p_frame_body(&w.frame, &bytes);
	const uint8_t how = spoils ? byte(in) : 0;

	bytes = good ? bytes : 0;
	memset(body, text_of[from], bytes);
	w.mark = net_mark(l->channel.out, &w.frame, body, bytes);
	l->channel.out->number++;
	if (spoils && how < sizeof w)
		((unsigned char *)&w)[how] ^= 1;
	else if (spoils && net_is_covered(bytes))
		body[how % bytes] ^= 1;
	else if (spoils && bytes)
		bytes -= 1 + how % bytes, l->cut = true;
	say(l, &w, sizeof w);
	say(l, body, bytes);
}

/* ---- this rank ---- */

static void done(struct p2p_message *m)
{
	struct message *x = m->ctx;
	size_t written = 0;

	check(!x->ends++ && m->rc != BERTH_BUSY);
	if (m->sends)
		return;
	for (size_t i = 0; i < x->bytes && x->data; i++)
		written += x->data[i] != UNTOUCHED;
	check(m->rc != BERTH_MISMATCH || !written);
	if (m->rc)
		return;
	check(m->from < RANKS && m->got <= x->bytes &&
	      (m->peer == P2P_ANY || m->peer == (int)m->from));
	for (size_t i = 0; i < x->bytes && x->data && !liar[m->from].cut; i++)
		check(x->data[i] == (i < m->got ? text_of[m->from] : UNTOUCHED));
}

static void *give_memory(void *ctx, uint64_t bytes)
{
	struct message *x = ctx;

	if (bytes > OUT_MOST || x->data)
		return NULL;
	x->data = malloc(bytes);
	x->bytes = bytes;
	memset(x->data, UNTOUCHED, bytes);
	return x->data;
}

static void begin_message(struct input *in, bool sends)
{
	const uint8_t how = byte(in);
	struct message *x = &message[nmessages];

	if (nmessages == MESSAGES)
		return;
	*x = (struct message){ .m = { .sends = sends,
				      .early = how & 1,
				      .peer = (how >> 1 & 3) - !sends,
				      .tag = how >> 3 & 3,
				      .signature = 7,
				      .done = done,
				      .ctx = x,
				      .rc = BERTH_BUSY } };
	if (sends && x->m.peer == RANKS)
		x->m.peer = 0;
	if (how & 32 && !sends) {
		x->m.alloc = give_memory;
		x->m.alloc_ctx = x;
		x->m.bytes = 1;
	} else {
		x->bytes = x->m.bytes = least(any_bytes(in), OUT_MOST);
		x->data = malloc(x->bytes);
		memset(x->data, sends ? text_of[ME] : UNTOUCHED, x->bytes);
		x->m.in = x->m.out = x->data;
	}
	x->m.deadline_ns = how & 64 ? 1 + (how & 128 ? clock_ns() : 0) : 0;
	if (p2p_post(p2p, &x->m, 1))
		free(x->data);
	else
		nmessages++;
}

static void look(void)
{
	p2p_progress(p2p);
	for (unsigned i = 0; i < RANKS; i++)
		if (i != ME)
			listen_to_it(&liar[i]);
	p2p_progress(p2p);
}

static void step(struct input *in)
{
	const uint8_t what = byte(in);
	const unsigned from = what & 16 ? 2 : 0;

	switch (what % 16) {
	case 0:
	case 1:
		begin_message(in, what % 16);
		break;
	case 2:
		say_frame(&liar[from], in, from, true);
		break;
	case 3:
		liar[from].lost ^= true;
		break;
	case 4:
		if (what > 0xc0)
			p2p_abort(p2p, "the fuzzer says so");
		break;
	case 5:
		if (what > 0xc0 && liar[from].fd >= 0) {
			close(liar[from].fd);
			liar[from].fd = -1;
		}
		break;
	case 6:
		p2p->tick_ns = p2p->watched_ns = 0; /* as if time went by */
		look();
		break;
	case 7:
	case 8:
		look();
		break;
	default:
		say_frame(&liar[from], in, from, false);
		if (what & 32)
			p2p_progress(p2p);
	}
}

/* ---- beginning and end ---- */

static void connect_to(unsigned from)
{
	struct net_hello h = {
		.from = from, .to = ME, .ranks = RANKS, .secure = NET_MAC
	};
	struct net_answer a = { .secure = NET_MAC };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) ||
	    net_channel_open(&net_link(net, from, 0)->channel, pair[0], door.key, &h,
			     &a, false) ||
	    net_channel_open(&liar[from].channel, -1, door.key, &h, &a, true))
		abort();
	liar[from].fd = pair[1];
	liar[from].cut = liar[from].lost = false;
}

static void begin(void)
{
	static const int local[RANKS] = { -1, 0, -1 };
	const struct net_config n = {
		.rank = ME, .size = RANKS, .door = &door, .spins = 1
	};
	struct p2p_config c = { .n = RANKS,
				.me = ME,
				.local = local,
				.nlocal = 1,
				.is_lost = is_lost,
				.aborted = note_abort,
				.cores = 2 };
	char why[64];

	net = net_open(&n, why, sizeof why);
	if (!net || net_key_init())
		abort();
	c.net = net;
	p2p = p2p_join(&c);
	check(p2p != NULL);
	connect_to(0);
	connect_to(2);
	nmessages = 0;
}

static void end(void)
{
	look();
	for (unsigned i = 0; i < RANKS; i++)
		if (i != ME && liar[i].fd >= 0)
			close(liar[i].fd);
	p2p_leave(p2p);
	for (unsigned i = 0; i < RANKS; i++)
		if (i != ME)
			net_channel_free(&liar[i].channel);
	for (size_t i = 0; i < nmessages; i++) {
		check(message[i].ends == 1);
		free(message[i].data);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	begin();
	while (in.left)
		step(&in);
	end();
	return 0;
}
