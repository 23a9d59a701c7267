/* flip.c - one bit of what ranks say to each other changes: is it ever taken?
 *
 *     build/helpers/flip PLACES [SEED [KIND [BYTES]]]
 *
 * Each world has 2 to 4 ranks, processes of this program, which take each other for
 * other hosts.  Their bootstrap is memory that all have; it tells each rank, in place
 * of another one's port, a port of this process, which carries what comes there both
 * ways.  So it needs no right.  It reads the heads, and knows which bytes are data.
 * Ranks have different sets of instructions, where the processor has several.
 *
 * A place is drawn evenly from all bytes of data that one operation says, and one bit
 * of it changes, once.  No rank may return BERTH_OK with a wrong result, one returns
 * BERTH_AUTH, and each other one the same, BERTH_ABORTED or BERTH_PEER_LOST, or
 * BERTH_OK with the right result if that does not depend on the byte.  None hangs.
 *
 * A row for each kind: places, operations that failed as they should, and ranks that
 * had the right result.  The first failures are told with what repeats them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/net/net_state.h"
#include "lib/p2p/p2p_frame.h"
#include "tests/helpers/own_ranks.h"

enum {
	RANKS_MOST = 4,
	LINKS_MOST = 256,
	PIECE = 256 << 10,
	LARGE_PART = 50, /* one of so many operations has more than 1 MiB */
	TAG_BYTES = 8,   /* behind data, if something is */
	DEADLINE_MS = 60000,
	TOLD_MOST = 10
};

/* ---- what the ranks share with this process ---- */

struct verdict {
	_Atomic int done;
	int result, wrong;
	char text[160];
};

static struct shared {
	_Atomic int armed; /* bytes of data count from here on */
	_Atomic int port[RANKS_MOST];
	pthread_barrier_t ready;
	struct verdict rank[RANKS_MOST];
} * shared;

/* ---- an operation ---- */

enum kind {
	IN_PLACE,
	ALLREDUCE,
	GROUPED,
	ALLGATHER,
	BROADCAST,
	REDUCE,
	REDUCESCATTER,
	ALLTOALL,
	GATHER,
	SCATTER,
	MESSAGES,
	KINDS
};

static const char *const kind_names[KINDS] = { "allreduce in place",
					       "allreduce",
					       "allreduces, grouped",
					       "allgather",
					       "broadcast",
					       "reduce",
					       "reducescatter",
					       "alltoall",
					       "gather",
					       "scatter",
					       "messages" };

struct job {
	enum kind kind;
	size_t bytes; /* of IN, a multiple of 8 * RANKS unless there are fewer */
	int ranks, hosts;
	int algorithm; /* of BERTH_ALGO; -1: the library's choice */
};

enum { GROUP = 5 };

static uint64_t value(const struct job *j, int rank, size_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)(rank + 1) << 40 ^
	       (uint64_t)j->kind << 20;
}

static uint64_t sum(const struct job *j, size_t i)
{
	uint64_t s = 0;

	for (int r = 0; r < j->ranks; r++)
		s += value(j, r, i);
	return s;
}

/* Element I of what RANK gets. */
static uint64_t wanted(const struct job *j, int rank, size_t i, size_t n)
{
	const size_t part = n / (size_t)j->ranks;

	switch (j->kind) {
	case ALLGATHER:
	case GATHER:
		return value(j, (int)(i / n), i % n);
	case BROADCAST:
		return value(j, 0, i);
	case REDUCESCATTER:
		return sum(j, (size_t)rank * part + i);
	case ALLTOALL:
		return value(j, (int)(i / part), (size_t)rank * part + i % part);
	case SCATTER:
		return value(j, 0, (size_t)rank * n + i);
	case MESSAGES:
		return value(j, (rank + j->ranks - 1) % j->ranks, i);
	default:
		return sum(j, i);
	}
}

struct buffers {
	uint64_t *in, *out;
	size_t n, in_n, out_n; /* elements: COUNT, and of both */
};

static struct buffers buffers_of(const struct job *j, int rank)
{
	const size_t ranks = (size_t)j->ranks;
	struct buffers b = { .n = j->bytes / 8 };

	if (j->kind == REDUCESCATTER || j->kind == ALLTOALL)
		b.n = (b.n + ranks - 1) / ranks * ranks;
	b.in_n = j->kind == SCATTER ? b.n * ranks : b.n;
	b.out_n = j->kind == ALLGATHER || j->kind == GATHER ? b.n * ranks
		  : j->kind == REDUCESCATTER                ? b.n / ranks
							    : b.n;
	b.in = malloc(b.in_n * 8);
	b.out = malloc(b.out_n * 8);
	if (!b.in || !b.out)
		abort();
	for (size_t i = 0; i < b.in_n; i++)
		b.in[i] = value(j, rank, i);
	memset(b.out, 0x55, b.out_n * 8);
	if (j->kind == IN_PLACE)
		memcpy(b.out, b.in, b.n * 8);
	return b;
}

static struct berth_desc desc_of(const struct job *j, const struct buffers *b)
{
	static const berth_kind kinds[KINDS] = {
		BERTH_ALLREDUCE, BERTH_ALLREDUCE, BERTH_ALLREDUCE,     BERTH_ALLGATHER,
		BERTH_BROADCAST, BERTH_REDUCE,    BERTH_REDUCESCATTER, BERTH_ALLTOALL,
		BERTH_GATHER,    BERTH_SCATTER,   BERTH_SEND
	};

	return (struct berth_desc)BERTH_DESC(.kind = kinds[j->kind], .type = BERTH_U64,
					     .op = BERTH_SUM,
					     .in = j->kind == IN_PLACE ? b->out : b->in,
					     .out = b->out, .count = b->n);
}

static berth_result submit(const struct berth_desc *d, size_t n)
{
	berth_request *r;
	const berth_result rc = berth_submit(d, n, &r);

	return rc ? rc : berth_wait(r, -1);
}

/* Parts of one array, which the library does together. */
static berth_result run_grouped(const struct buffers *b, struct berth_desc d)
{
	struct berth_desc group[GROUP];
	size_t at = 0, n = 0;

	while (at < b->n) {
		d.count = n == GROUP - 1 || b->n < GROUP ? b->n - at : b->n / GROUP;
		d.in = b->in + at;
		d.out = b->out + at;
		at += d.count;
		group[n++] = d;
	}
	return submit(group, n);
}

/* To the next rank, from the one before. */
static berth_result run_messages(const struct job *j, int rank, struct berth_desc d)
{
	struct berth_desc both[2] = { d, d };

	both[0].root = (rank + 1) % j->ranks;
	both[1].kind = BERTH_RECV;
	both[1].root = (rank + j->ranks - 1) % j->ranks;
	both[1].room = d.count;
	both[1].count = 0;
	return submit(both, 2);
}

static berth_result operate(const struct job *j, int rank, bool *wrong)
{
	const bool has_out = (j->kind != REDUCE && j->kind != GATHER) || rank == 0;
	struct buffers b = buffers_of(j, rank);
	const struct berth_desc d = desc_of(j, &b);
	const berth_result rc = j->kind == GROUPED    ? run_grouped(&b, d)
				: j->kind == MESSAGES ? run_messages(j, rank, d)
						      : berth_run(&d, -1, NULL);

	*wrong = false;
	if (j->kind == BROADCAST && rank == 0)
		memcpy(b.out, b.in, b.n * 8); /* what it gets is its own */
	for (size_t i = 0; !rc && has_out && i < b.out_n; i++)
		*wrong |= b.out[i] != wanted(j, rank, i, b.n);
	free(b.in);
	free(b.out);
	return rc;
}

/* ---- the bootstrap ---- */

static int relay_port[RANKS_MOST];

/* The fence's texts are addresses, "PORT ADDRESS/BITS": those of others become ours. */
static int gather(void *rank, const void *in, void *out, size_t bytes)
{
	enum { TEXTS = 3, CALL_AT = 8, TEXT_AT = 24 };
	const int me = *(int *)rank;
	unsigned char *said = out;
	uint32_t call;

	if (own_ranks_gather(rank, in, out, bytes))
		return 1;
	memcpy(&call, (const unsigned char *)in + CALL_AT, sizeof call);
	if (call != TEXTS)
		return 0;
	atomic_store(&shared->port[me],
		     (int)strtol((const char *)in + TEXT_AT, NULL, 10));
	for (int r = 0; r < own_ranks->n; r++, said += bytes)
		if (r != me)
			snprintf((char *)said + TEXT_AT, bytes - TEXT_AT,
				 "%d 127.0.0.1/8", relay_port[r]);
	return 0;
}

static void rank_log(void *ctx, enum berth_log_level level, const char *text)
{
	(void)ctx;
	if (getenv("FLIP_VERBOSE"))
		fprintf(stderr, "%d: %s\n", (int)level, text);
}

static void join(const struct job *j, int *rank)
{
	char host[16];
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = *rank,
					   .ranks = j->ranks,
					   .allgather = gather,
					   .ctx = rank,
					   .host = host };
	const struct berth_config c = { .size = sizeof c,
					.log = rank_log,
					.bootstrap = &b };

	snprintf(host, sizeof host, "h%d", *rank * j->hosts / j->ranks);
	setenv("BERTH_NET", "127.0.0.0/8", 1);
	if (*rank % 3 > 0)
		setenv("BERTH_NO_AVX512", "1", 1);
	if (*rank % 3 > 1)
		setenv("BERTH_NO_AVX2", "1", 1);
	if (j->algorithm >= 0)
		setenv("BERTH_ALGO",
		       ((const char *[]){ "double", "halve", "direct" })[j->algorithm],
		       1);
	if (berth_init(&c)) {
		fprintf(stderr, "flip: %s\n", berth_last_error()->text);
		_exit(2);
	}
}

/* What the library measures at first, and what it sets up, is behind both when bytes
 * begin to count. */
static void run_rank(const struct job *j, int rank)
{
	struct verdict *v = &shared->rank[rank];
	bool wrong;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join(j, &rank);
	if (operate(j, rank, &wrong) || wrong || operate(j, rank, &wrong) || wrong) {
		fprintf(stderr, "flip: before a bit was changed: %s\n",
			wrong ? "wrong" : berth_last_error()->text);
		_exit(2);
	}
	pthread_barrier_wait(&shared->ready);
	atomic_store(&shared->armed, 1);
	v->result = operate(j, rank, &wrong);
	v->wrong = wrong;
	snprintf(v->text, sizeof v->text, "%s",
		 v->result ? berth_last_error()->text : "");
	atomic_store(&v->done, 1);
	berth_shutdown();
	_exit(0);
}

/* ---- the relay ---- */

/* What comes next: of the handshake, of a head, of its data; the first bytes behind
 * those, which begin a head or a tag; the rest of a tag. */
enum state { GREETING, HEAD, DATA, BEHIND, TAG };

/* One direction of a connection. */
struct way {
	int from, to;
	enum state state;
	size_t left; /* bytes of that */
	unsigned char head[sizeof(struct head)];
	size_t have; /* of it */
	unsigned char piece[PIECE];
	size_t at, n; /* what has gone of it, and what has come */
	bool ended;
};

static struct relay {
	struct way *way[LINKS_MOST][2];
	size_t links;
	int listener[RANKS_MOST];
	uint64_t seen;  /* bytes of data */
	uint64_t place; /* of the one to change; UINT64_MAX: none */
	unsigned bit;
	bool changed;
} relay;

/* How many bytes of data follow a head, of an exchange or of messages. */
static uint64_t data_behind(const unsigned char *head)
{
	struct p2p_frame f;
	struct head h;
	uint64_t bytes = 0;

	memcpy(&h, head, sizeof h);
	memcpy(&f, head, sizeof f);
	if (h.magic == HEAD_MAGIC)
		return h.bytes;
	return p2p_frame_body(&f, &bytes) ? bytes : 0;
}

/* What is behind data is a tag, or else the next head. */
static bool begins_head(const unsigned char *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof word);
	return word == HEAD_MAGIC || (word >= P2P_EAGER && word <= P2P_ABORT);
}

static void count_data(unsigned char *p, size_t n)
{
	if (!atomic_load(&shared->armed))
		return;
	if (relay.place >= relay.seen && relay.place - relay.seen < n) {
		p[relay.place - relay.seen] ^= (unsigned char)(1u << relay.bit);
		relay.changed = true;
	}
	relay.seen += n;
}

static void await(struct way *w, enum state state, size_t bytes)
{
	w->state = state;
	w->left = bytes;
}

/* All of a part has come. */
static void next_part(struct way *w)
{
	uint64_t bytes;

	switch (w->state) {
	case DATA:
		w->have = 0;
		await(w, BEHIND, sizeof(uint32_t));
		return;
	case BEHIND:
		if (begins_head(w->head))
			await(w, HEAD, sizeof w->head - w->have);
		else
			await(w, TAG, TAG_BYTES - w->have);
		return;
	case HEAD:
		bytes = data_behind(w->head);
		w->have = 0;
		if (bytes)
			await(w, DATA, bytes);
		else
			await(w, HEAD, sizeof w->head);
		return;
	default:
		w->have = 0;
		await(w, HEAD, sizeof w->head);
	}
}

/* N bytes have come along W. */
static void follow(struct way *w, unsigned char *p, size_t n)
{
	size_t k;

	for (; n; p += k, n -= k) {
		k = n < w->left ? n : w->left;
		if (w->state == HEAD || w->state == BEHIND) {
			memcpy(w->head + w->have, p, k);
			w->have += k;
		} else if (w->state == DATA) {
			count_data(p, k);
		}
		w->left -= k;
		if (!w->left)
			next_part(w);
	}
}

static void close_link(size_t i)
{
	close(relay.way[i][0]->from);
	close(relay.way[i][0]->to);
	free(relay.way[i][0]);
	free(relay.way[i][1]);
	relay.links--;
	memcpy(relay.way[i], relay.way[relay.links], sizeof relay.way[i]);
}

/* FALSE: the connection is over. */
static bool carry(struct way *w, short come, short go)
{
	ssize_t k;

	if (come && w->at == w->n && !w->ended) {
		k = read(w->from, w->piece, sizeof w->piece);
		if (k < 0 && errno != EAGAIN)
			return false;
		if (!k) {
			w->ended = true;
			shutdown(w->to, SHUT_WR);
		}
		w->at = 0;
		w->n = k > 0 ? (size_t)k : 0;
		follow(w, w->piece, w->n);
		go = 1;
	}
	if (go && w->at < w->n) {
		k = send(w->to, w->piece + w->at, w->n - w->at, MSG_NOSIGNAL);
		if (k < 0 && errno != EAGAIN)
			return false;
		w->at += k > 0 ? (size_t)k : 0;
	}
	return true;
}

static void begin_link(int rank)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(
					  (uint16_t)atomic_load(&shared->port[rank])) };
	const int fd = accept4(relay.listener[rank], NULL, NULL, SOCK_CLOEXEC);
	const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;
	struct way **w = relay.way[relay.links];

	if (fd < 0 || relay.links == LINKS_MOST ||
	    connect(out, (struct sockaddr *)&to, sizeof to)) {
		close(fd);
		close(out);
		return;
	}
	for (int i = 0; i < 2; i++) {
		w[i] = calloc(1, sizeof *w[i]);
		if (!w[i])
			abort();
		w[i]->from = i ? out : fd;
		w[i]->to = i ? fd : out;
		w[i]->left = i ? sizeof(struct net_answer)
			       : sizeof(struct net_hello) + sizeof(struct net_seal);
		fcntl(w[i]->from, F_SETFL, O_NONBLOCK);
		setsockopt(w[i]->from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	}
	relay.links++;
}

/* What comes within MS. */
static void relay_turn(int ranks, int ms)
{
	struct pollfd p[RANKS_MOST + 2 * LINKS_MOST];
	const size_t links = relay.links;
	nfds_t n = 0;

	for (int r = 0; r < ranks; r++)
		p[n++] = (struct pollfd){ relay.listener[r], POLLIN, 0 };
	for (size_t i = 0; i < links; i++) {
		for (int k = 0; k < 2; k++) {
			const struct way *in = relay.way[i][k],
					 *back = relay.way[i][!k];

			p[n++] = (struct pollfd){
				in->ended && back->at == back->n ? -1 : in->from,
				(short)((in->at == in->n && !in->ended ? POLLIN : 0) |
					(back->at < back->n ? POLLOUT : 0)),
				0
			};
		}
	}
	if (poll(p, n, ms) <= 0)
		return;
	for (size_t i = links; i--;) {
		const struct pollfd *q = p + ranks + 2 * i;
		struct way *w = relay.way[i][0], *b = relay.way[i][1];

		if (!carry(w, q[0].revents, q[1].revents) ||
		    !carry(b, q[1].revents, q[0].revents) ||
		    (w->ended && b->ended && w->at == w->n && b->at == b->n))
			close_link(i);
	}
	for (int r = 0; r < ranks; r++)
		if (p[r].revents)
			begin_link(r);
}

static void relay_open(void)
{
	for (int r = 0; r < RANKS_MOST; r++) {
		struct sockaddr_in at = { .sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t size = sizeof at;
		const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) ||
		    listen(fd, 64) || getsockname(fd, (struct sockaddr *)&at, &size)) {
			perror("flip: listen");
			exit(2);
		}
		fcntl(fd, F_SETFL, O_NONBLOCK);
		relay.listener[r] = fd;
		relay_port[r] = ntohs(at.sin_port);
	}
}

/* ---- one world ---- */

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

static void prepare(const struct job *j)
{
	pthread_barrierattr_t attr;

	if (own_ranks)
		munmap(own_ranks, sizeof *own_ranks);
	own_ranks_prepare(j->ranks);
	memset(shared, 0, sizeof *shared);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->ready, &attr, (unsigned)j->ranks);
	relay.seen = 0;
	relay.changed = false;
}

/* How many of N have ended; *BAD: one of them as it should not. */
static int reap(pid_t *pid, int n, bool *bad)
{
	int ended = 0, status;

	for (int r = 0; r < n; r++) {
		if (pid[r] && waitpid(pid[r], &status, WNOHANG) == pid[r]) {
			pid[r] = 0;
			*bad |= status != 0;
		}
		ended += !pid[r];
	}
	return ended;
}

/* FALSE: a rank hung, or ended by itself. */
static bool run_world(const struct job *j)
{
	const uint64_t until = now_ms() + DEADLINE_MS;
	pid_t pid[RANKS_MOST];
	bool bad = false;

	prepare(j);
	for (int r = 0; r < j->ranks; r++) {
		pid[r] = fork();
		if (!pid[r])
			run_rank(j, r);
	}
	while (reap(pid, j->ranks, &bad) < j->ranks && !bad && now_ms() < until)
		relay_turn(j->ranks, 5);
	for (int r = 0; r < j->ranks; r++) {
		if (!pid[r])
			continue;
		bad = true;
		kill(pid[r], SIGKILL);
		waitpid(pid[r], NULL, 0);
	}
	while (relay.links)
		close_link(0);
	return !bad;
}

/* ---- places ---- */

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
	random_state += 0x9e3779b97f4a7c15;
	uint64_t z = random_state;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

static struct count {
	unsigned places, large, failed, right, not_reached;
} counts[KINDS];
static unsigned told;

static void tell(const struct job *j, const char *what)
{
	if (told++ >= TOLD_MOST)
		return;
	printf("WRONG: %s: %s, %zu bytes, %d ranks on %d hosts, algorithm %d, bit %u "
	       "of "
	       "byte %llu\n",
	       what, kind_names[j->kind], j->bytes, j->ranks, j->hosts, j->algorithm,
	       relay.bit, (unsigned long long)relay.place);
	for (int r = 0; r < j->ranks; r++)
		printf("  rank %d: %s%s %s\n", r,
		       shared->rank[r].done
			       ? berth_result_text((berth_result)shared->rank[r].result)
			       : "not done",
		       shared->rank[r].wrong ? ", WRONG" : "", shared->rank[r].text);
}

/* NULL, or what is wrong. */
static const char *judge(const struct job *j, struct count *c)
{
	unsigned auth = 0, right = 0;

	for (int r = 0; r < j->ranks; r++) {
		const struct verdict *v = &shared->rank[r];

		if (!v->done)
			return "a rank hung";
		if (v->wrong)
			return "a wrong result was taken";
		auth += v->result == BERTH_AUTH;
		right += v->result == BERTH_OK;
		if (v->result != BERTH_OK && v->result != BERTH_AUTH &&
		    v->result != BERTH_ABORTED && v->result != BERTH_PEER_LOST)
			return "another error";
	}
	c->right += right;
	c->failed += auth > 0;
	return auth ? NULL : "no rank has seen it";
}

static struct job draw_job(int kind, size_t bytes)
{
	static const size_t sizes[] = { 8,    64,    200,   1024,   1032,
					4096, 20000, 65536, 262144, 1 << 20 },
			    large_sizes[] = { 4 << 20, 16 << 20, 64 << 20 };
	struct job j = { .kind = kind >= 0 ? (enum kind)kind : (enum kind)draw(KINDS),
			 .algorithm = (int)draw(4) - 1 };

	j.ranks = 2 + (draw(3) == 0) + (draw(6) == 0);
	j.hosts = j.ranks > 2 && draw(3) == 0 ? 2 : j.ranks;
	j.bytes = bytes ? bytes : sizes[draw(10)];
	if (!bytes && draw(LARGE_PART) == 0)
		j.bytes = large_sizes[draw(8) ? draw(2) : 2];
	if (j.bytes > 1 << 20) {
		if (j.kind == ALLGATHER || j.kind == GATHER || j.kind == SCATTER)
			j.bytes /= (size_t)j.ranks;
		j.bytes = j.bytes / 64 * 64;
	}
	return j;
}

static bool is_same(const struct job *a, const struct job *b)
{
	return a->kind == b->kind && a->bytes == b->bytes && a->ranks == b->ranks &&
	       a->hosts == b->hosts && a->algorithm == b->algorithm;
}

/* How many bytes of data J says. */
static uint64_t measure(const struct job *j)
{
	enum { KNOWN_MOST = 1024 };
	static struct {
		struct job j;
		uint64_t bytes;
	} known[KNOWN_MOST];
	static size_t n;

	for (size_t i = 0; i < n; i++)
		if (is_same(&known[i].j, j))
			return known[i].bytes;
	relay.place = UINT64_MAX;
	if (!run_world(j)) {
		tell(j, "no bit was changed, and it failed");
		return 0;
	}
	if (n < KNOWN_MOST) {
		known[n].j = *j;
		known[n++].bytes = relay.seen;
	}
	return relay.seen;
}

/* FALSE: this one is to be drawn again. */
static bool try_place(const struct job *j)
{
	struct count *c = &counts[j->kind];
	const uint64_t bytes = measure(j);
	const char *wrong;
	bool well;

	if (!bytes)
		return false;
	relay.place = draw(bytes);
	relay.bit = (unsigned)draw(8);
	well = run_world(j);
	if (well && !relay.changed) {
		c->not_reached++; /* fewer bytes than before */
		return false;
	}
	c->places++;
	c->large += j->bytes > 1 << 20;
	wrong = well ? judge(j, c) : "a rank hung, or ended by itself";
	if (wrong)
		tell(j, wrong);
	return true;
}

/* How many places there were. */
static unsigned report(uint64_t seed)
{
	unsigned places = 0, large = 0, missed = 0;

	printf("%-20s %7s %7s %12s\n", "", "places", "failed", "ranks right");
	for (int k = 0; k < KINDS; k++) {
		const struct count *c = &counts[k];

		if (c->places)
			printf("%-20s %7u %7u %12u\n", kind_names[k], c->places,
			       c->failed, c->right);
		places += c->places;
		large += c->large;
		missed += c->not_reached;
	}
	printf("%u places, %u of them in more than 1 MiB, %u wrong; %u that no byte "
	       "came "
	       "to; seed %llu\n",
	       places, large, told, missed, (unsigned long long)seed);
	return places;
}

int main(int argc, char **argv)
{
	const unsigned long places = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	const int kind = argc > 3 ? (int)strtol(argv[3], NULL, 10) : -1;
	const size_t bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	unsigned long tries = 0;

	if (!places || kind >= KINDS) {
		fprintf(stderr, "usage: flip PLACES [SEED [KIND [BYTES]]]\n");
		return 2;
	}
	random_state = seed;
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	relay_open();
	for (unsigned long i = 0; i < places && tries < 2 * places + 100; tries++) {
		const struct job j = draw_job(kind, bytes);

		i += try_place(&j);
	}
	return report(seed) < places || told;
}
