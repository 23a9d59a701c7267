/* hostile_agent: an agent that does not keep to the protocol, for runner's
 * --launch-agent.
 *
 * HOSTILE names what it does, a row of the table below; HOSTILE_DIR a folder in which
 * the first agent of a job leaves a mark: that one is hostile, the others (another
 * host's, and the one that sweeps) become HOSTILE_REAL, the real one.  It behaves well
 * up to the stage of its row.  HOSTILE_SEED: for `random`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/job.h"
#include "common/wire.h"

#define NASTY                                                                          \
	"\x1b]0;owned\x07\x1b[2J\r\nrunner: all is well\x9b"                           \
	"31m\xc2\x9b"                                                                  \
	"31m"

static struct {
	struct buf in;
	uint32_t epoch, np, ranks[64];
	size_t n;
	uint64_t clock;
} job;

static void wait_forever(void)
{
	signal(SIGPIPE, SIG_IGN);
	for (;;)
		pause();
}

/* ---- the stream ---- */

static uint64_t dry_ns; /* when the act says nothing more; 0: never */

static void put(const void *data, size_t n)
{
	const char *p = data;
	ssize_t done;

	if (dry_ns && clock_ns() > dry_ns)
		wait_forever();
	for (; n; p += done, n -= (size_t)done)
		if ((done = write(1, p, n)) < 0)
			_exit(1);
}

static void put_buf(struct buf *b)
{
	put(buf_head(b), b->len);
	buf_free(b);
}

#define SAY(name, ...)                                                                 \
	do {                                                                           \
		struct buf b_ = { 0 };                                                 \
		struct wire_##name m_ = { __VA_ARGS__ };                               \
		wire_pack_##name(&b_, &m_);                                            \
		put_buf(&b_);                                                          \
	} while (0)

static void head(unsigned type, uint32_t n)
{
	struct buf b = { 0 };
	unsigned char t = (unsigned char)type;

	buf_u32(&b, n);
	buf_add(&b, &t, 1);
	put_buf(&b);
}

static void take_job(const struct wire_frame *f)
{
	struct wire_job m;

	if (wire_unpack_job(&m, f->payload, f->n, NULL))
		_exit(2);
	job.epoch = m.epoch;
	job.np = m.np;
	for (job.n = 0; job.n < m.ranks.n && job.n < 64; job.n++)
		job.ranks[job.n] = m.ranks.v[job.n];
	wire_free_job(&m);
}

/* Read until a message of TYPE has come; heartbeats are answered. */
static void await(unsigned type)
{
	struct wire_frame f;
	struct wire_heartbeat beat;
	unsigned got = 0;
	ssize_t n;
	long used;

	while (got != type) {
		used = wire_next_from(WIRE_LAUNCHER, &f, buf_head(&job.in), job.in.len,
				      NULL);
		if (!used) {
			n = read(0, buf_reserve(&job.in, 65536), 65536);
			if (n <= 0)
				_exit(0);
			job.in.len += (size_t)n;
			continue;
		}
		got = f.type;
		if (got == WIRE_job)
			take_job(&f);
		if (got == WIRE_heartbeat &&
		    !wire_unpack_heartbeat(&beat, f.payload, f.n, NULL))
			SAY(heartbeat, clock_ns(), beat.clock_ns);
		buf_drop(&job.in, (size_t)used);
	}
}

/* ---- behaving ---- */

static void hello(uint32_t cpus, uint32_t gpus, const char *address,
		  const char *version)
{
	SAY(hello, version, WIRE_VERSION, cpus, cpus, gpus, 1, 1, address, 0, "", "");
}

static void berth(uint32_t rank, const char *text)
{
	SAY(berth, job.epoch, rank, text, 0, text, "0", "0", { 0 }, text, text);
}

static void output(uint32_t epoch, uint32_t rank, uint32_t stream, size_t n)
{
	static const char room[WIRE_DATA_MAX] = "out\n";

	SAY(output, epoch, rank, stream, { room, n });
}

static void ended(uint32_t rank, uint64_t at_ns)
{
	SAY(exited, job.epoch, rank, 1, 0, at_ns, 0, 0, 0, 0, "", "");
}

static void all_ended(void)
{
	for (size_t i = 0; i < job.n; i++)
		ended(job.ranks[i], clock_ns());
}

static void placed(const char *text)
{
	for (size_t i = 0; i < job.n; i++)
		berth(job.ranks[i], text);
	SAY(placed, job.epoch, text, text, "", "", "", job.ranks[0], 0, { 0 }, "");
}

static void started(void)
{
	for (size_t i = 0; i < job.n; i++)
		SAY(started, job.epoch, job.ranks[i], 1, "0");
}

/* ---- instead of a greeting ---- */

static void noise(void)
{
	static char room[65536];

	memset(room, 'x', sizeof room);
	for (;;)
		put(room, sizeof room);
}

static void zeros(void)
{
	static const char room[65536];

	for (;;)
		put(room, sizeof room);
}

static void silent(void)
{
	wait_forever();
}

static void half(void)
{
	put(WIRE_MAGIC "\x40\0\0", 11);
	wait_forever();
}

static void complains(void)
{
	static const char text[] = "cannot " NASTY "\n";

	if (write(2, text, sizeof text - 1) < 0)
		_exit(4);
	_exit(3);
}

static void complains_on(void)
{
	static const char text[] = NASTY;

	while (write(2, text, sizeof text - 1) > 0)
		;
	_exit(3);
}

/* A child holds the stream and floods it when the agent is gone. */
static void heir(void)
{
	put(WIRE_MAGIC, WIRE_MAGIC_BYTES);
	hello(1, 0, "", BERTH_VERSION);
	if (fork())
		_exit(0);
	for (;;)
		SAY(heartbeat, 1, 0);
}

/* ---- hello ---- */

static void hello_absurd(void)
{
	hello(UINT32_MAX, UINT32_MAX, "", BERTH_VERSION);
	wait_forever();
}

static void hello_gpus(void)
{
	hello(4, UINT32_MAX, "", BERTH_VERSION);
	wait_forever();
}

static void hello_address(void)
{
	hello(4, 0, "10.0.0.1\n$(reboot)", BERTH_VERSION);
	wait_forever();
}

static void hello_version(void)
{
	hello(4, 0, "", NASTY);
	wait_forever();
}

static void length_zero(void)
{
	head(WIRE_hello, 0);
	wait_forever();
}

static void length_over(void)
{
	head(WIRE_hello, 8193);
	for (;;)
		put(NASTY, 8);
}

static void length_most(void)
{
	head(WIRE_hello, UINT32_MAX);
	for (;;)
		put(NASTY, 8);
}

static void type_unknown(void)
{
	head(200, 10);
	wait_forever();
}

static void early_log(void)
{
	SAY(log, LOG_ERROR, NASTY, "no " NASTY, NASTY);
	wait_forever();
}

/* ---- after hello ---- */

static void hello_again(void)
{
	for (;;)
		hello(4, 0, "", BERTH_VERSION);
}

static void log_flood(void)
{
	for (;;)
		SAY(log, LOG_WARNING, "", NASTY, NASTY);
}

static void log_large(void)
{
	char *text = xmalloc(60000);

	memset(text, 'y', 59999);
	text[59999] = '\0';
	for (;;)
		SAY(log, LOG_WARNING, "", text, "");
}

static void runners_word(void)
{
	head(WIRE_app, 16777216);
	for (;;)
		put(NASTY, 8);
}

static void gone_at_once(void)
{
	await(WIRE_job);
	SAY(cleared, job.epoch, 0, 3, NASTY, 0, 0);
	wait_forever();
}

static void ended_at_once(void)
{
	await(WIRE_job);
	all_ended();
	wait_forever();
}

static void no_berth(void)
{
	await(WIRE_job);
	SAY(placed, job.epoch, "", "", "", "", "", job.ranks[0], 0, { 0 }, "");
	wait_forever();
}

static void berth_again(void)
{
	await(WIRE_job);
	for (;;)
		berth(job.ranks[0], "0");
}

static void berth_foreign(void)
{
	await(WIRE_job);
	for (uint32_t i = 0; i < job.np; i++)
		berth(i, "0");
	wait_forever();
}

static void placed_again(void)
{
	await(WIRE_job);
	placed("0");
	for (;;)
		SAY(placed, job.epoch, "0", "0", "", "", "", job.ranks[0], 0, { 0 },
		    "");
}

/* Nobody asked for ports. */
static void placed_ports(void)
{
	static const uint32_t port = 20000;

	await(WIRE_job);
	for (size_t i = 0; i < job.n; i++)
		berth(job.ranks[i], "0");
	SAY(placed, job.epoch, "0", "0", "", "", "", job.ranks[0], 0, { &port, 1 }, "");
	wait_forever();
}

static void berth_nasty(void)
{
	await(WIRE_job);
	placed(NASTY);
	await(WIRE_start);
	started();
	all_ended();
}

static void start_untold(void)
{
	await(WIRE_job);
	placed("0");
	started();
	wait_forever();
}

static void placed_lacking(const char *id)
{
	await(WIRE_job);
	for (size_t i = 0; i < job.n; i++)
		berth(job.ranks[i], "0");
	SAY(placed, job.epoch, "0", "0", id, NASTY, NASTY, job.ranks[0], 0, { 0 }, "");
	wait_forever();
}

static void lacks_nasty(void)
{
	placed_lacking("E_NOT_FOUND");
}

static void lacks_absurd(void)
{
	placed_lacking("E_OPTION");
}

static void check_untold(void)
{
	for (;;)
		SAY(check_result, job.epoch, CHECK_GPUS, CHECK_OK, "", "");
}

static void check_flood(void)
{
	await(WIRE_job);
	placed("0");
	await(WIRE_check);
	for (;;)
		SAY(check_result, job.epoch, CHECK_GPUS, CHECK_OK, NASTY, NASTY);
}

static void check_absurd(void)
{
	await(WIRE_job);
	placed("0");
	await(WIRE_check);
	SAY(check_result, job.epoch, CHECK_ROWS, CHECK_OK, "", "");
	wait_forever();
}

/* ---- ranks run ---- */

static void started_again(void)
{
	for (;;)
		started();
}

static void output_flood(void)
{
	for (;;)
		output(job.epoch, job.ranks[0], 1, WIRE_DATA_MAX);
}

static void output_small(void)
{
	for (;;)
		output(job.epoch, job.ranks[0], 1, 1);
}

static void output_foreign(void)
{
	for (uint32_t i = 0; i < job.np; i++)
		output(job.epoch, i, 1, 4);
	wait_forever();
}

static void output_nobody(void)
{
	output(job.epoch, UINT32_MAX, 1, 4);
	wait_forever();
}

static void output_stream(void)
{
	output(job.epoch, job.ranks[0], 3, 4);
	wait_forever();
}

static void output_epoch(void)
{
	output(job.epoch + 7, job.ranks[0], 1, 4);
	wait_forever();
}

/* Not of its own: they are lost with it, which is then the cause. */
static void ended_foreign(void)
{
	for (uint32_t i = 0; i < job.np; i++)
		if (i != job.ranks[0])
			ended(i, clock_ns());
	wait_forever();
}

static void ended_again(void)
{
	for (;;)
		all_ended();
}

static void ended_cut(void)
{
	head(WIRE_exited, 60000);
	_exit(0);
}

/* A string whose length says more than there is, and one without its NUL. */
static void ended_string(void)
{
	struct buf b = { 0 };

	wire_pack_exited(&b, &(struct wire_exited){ job.epoch, job.ranks[0], 1, 0, 1, 0,
						    0, 0, 0, "b", "c" });
	buf_head(&b)[b.len - 1] = 'x';
	put_buf(&b);
	wait_forever();
}

static void ended_nasty(void)
{
	SAY(exited, job.epoch, job.ranks[0], 0, 0x7f00, clock_ns(), 0, 0, 0, 0,
	    "no " NASTY, "try " NASTY);
	await(WIRE_stop);
	SAY(stop_ack, job.epoch);
	SAY(cleared, job.epoch, 0, 2, NASTY, 0, 0);
	await(WIRE_shutdown);
	_exit(0);
}

static void ending_untold(void)
{
	SAY(stop_ack, job.epoch);
	wait_forever();
}

static void gone_untold(void)
{
	SAY(cleared, job.epoch, 0, 0, "", 0, 0);
	wait_forever();
}

/* Asks, says at once that it has answered, and reads nothing.  It asks many times in
 * one write: on a slow machine, too, runner would soon have much to answer. */
static void asks_on(void)
{
	for (;;) {
		struct buf many = { 0 };

		for (int i = 0; i < 4096; i++) {
			wire_pack_missing_request(
				&many, &(struct wire_missing_request){ job.epoch,
								       job.ranks[0] });
			wire_pack_query_done(&many,
					     &(struct wire_query_done){ job.epoch });
		}
		put_buf(&many);
	}
}

/* Stalls, for which runner asks this agent, as well. */
static void stalls_on(void)
{
	char text[32];

	for (unsigned i = 0;; i++) {
		snprintf(text, sizeof text, "%u s in allreduce", i);
		SAY(stall, job.epoch, job.ranks[0], { job.ranks, 1 }, text);
		SAY(query_done, job.epoch);
	}
}

/* One init round after the other, whose answers it does not read. */
static void fences_on(void)
{
	char texts[WIRE_TEXT_MAX];

	memset(texts, 'x', sizeof texts - 1);
	texts[sizeof texts - 1] = '\0';
	SAY(host_map_request, job.epoch);
	for (uint32_t round = 1;; round++)
		SAY(exchange, job.epoch, EXCHANGE_INIT, { 0 }, round, 1,
		    { texts, sizeof texts });
}

enum { KEYS = 4096, NAMES = 16000 };

/* Lookups of as many names as runner takes, which wait. */
static void lookups_on(void)
{
	static const char *keys[KEYS];

	for (size_t i = 0; i < KEYS; i++)
		keys[i] = "x";
	for (uint32_t id = 1;; id++)
		SAY(lookup, job.epoch, job.ranks[0], id, 1, 0, { keys, KEYS });
}

/* Many names, then lookups of the first one, many times in each, which do not wait. */
static void names_on(void)
{
	static const char *keys[KEYS];
	const uint32_t size = 0;
	char key[16];

	for (uint32_t i = 0; i < NAMES; i++) {
		const char *k = key;

		snprintf(key, sizeof key, "%u", i);
		SAY(publish, job.epoch, job.ranks[0], i, 0, { &k, 1 }, { &size, 1 },
		    { "", 0 });
	}
	for (size_t i = 0; i < KEYS; i++)
		keys[i] = "0";
	for (uint32_t id = 1;; id++)
		SAY(lookup, job.epoch, job.ranks[0], id, 0, 0, { keys, KEYS });
}

/* Exchanges that are never complete. */
static void exchanges_on(void)
{
	static char data[65536];

	for (uint64_t n = 1;; n++)
		SAY(exchange, job.epoch, EXCHANGE_PMIX_FENCE, { 0 }, n, 0,
		    { data, sizeof data });
}

/* Events for all other hosts. */
static void events_on(void)
{
	static char data[100000];

	for (uint64_t n = 1;; n++)
		SAY(event, job.epoch, job.ranks[0], 1, 1, { data, sizeof data });
}

/* Ranks that wait for the next world of the library. */
static void change_foreign(void)
{
	SAY(change, job.epoch, 1 - job.ranks[0], 0);
	wait_forever();
}

static void change_number(void)
{
	SAY(change, job.epoch, job.ranks[0], INT32_MAX);
	wait_forever();
}

/* One world after the other, of which it does not hear. */
static void changes_on(void)
{
	for (uint32_t number = 0;; number = (number + 1) % INT32_MAX)
		SAY(change, job.epoch, job.ranks[0], number);
}

static void credit_flood(void)
{
	for (;;)
		SAY(credit, job.epoch, UINT32_MAX);
}

static void credit_steps(void)
{
	for (;;)
		SAY(credit, job.epoch, 1000);
}

/* Takes the input that it asked for from runner, and reads not a byte of it. */
static void deaf(void)
{
	SAY(credit, job.epoch, WIRE_INPUT_MAX);
	for (;;) {
		SAY(heartbeat, 1, 0);
		usleep(10000);
	}
}

static void beats(void)
{
	for (;;)
		SAY(heartbeat, clock_ns(), 0);
}

static void quiet(void)
{
	wait_forever();
}

/* Clocks from nowhere, and an ending before all time. */
static void clocks(void)
{
	static const uint64_t times[] = { 0, 1, INT64_MAX, UINT64_MAX,
					  UINT64_MAX / 2 + 7 };

	for (size_t i = 0; i < 5; i++)
		for (size_t k = 0; k < 5; k++)
			SAY(heartbeat, times[i], times[k]);
	SAY(exited, job.epoch, job.ranks[0], 1, 0x300, UINT64_MAX, UINT64_MAX, 0,
	    UINT64_MAX, UINT64_MAX, "", "");
}

/* ---- looks at its ranks ---- */

/* They are in LIFE, and stopped; the lists have N more than there are ranks. */
static void looked(uint32_t epoch, uint32_t life, size_t more)
{
	static uint32_t lives[64], states[64], none[64], late[64];
	const size_t n = job.n + more < 64 ? job.n + more : 64;

	for (size_t i = 0; i < n; i++) {
		lives[i] = life;
		states[i] = 'T';
		late[i] += UINT32_MAX / 3; /* more than the time that has passed */
	}
	SAY(looked, epoch, { lives, n }, { states, n }, { none, n }, { none, n },
	    { none, n }, { none, n }, { late, n });
}

static void looked_long(void)
{
	looked(job.epoch, 1, 1);
	wait_forever();
}

static void looked_epoch(void)
{
	looked(job.epoch + 7, 1, 0);
	wait_forever();
}

/* For which nobody asked. */
static void looked_on(void)
{
	for (;;)
		looked(job.epoch, 1, 0);
}

/* Each answer, twice, is of a life that is over or to come. */
static void looked_life(void)
{
	for (uint32_t life = 0;; life = 2 - life) {
		await(WIRE_query);
		looked(job.epoch, life, 0);
		looked(job.epoch, life, 0);
		SAY(query_done, job.epoch);
	}
}

static void healthy_untold(void)
{
	SAY(healthy, "it is ill");
	wait_forever();
}

static void dumped_foreign(void)
{
	SAY(dumped, job.epoch, 1 - job.ranks[0], 1, 'S', "", "a.py:1 f\n", "");
	wait_forever();
}

/* Its rank is stopped, so it is asked where that is; it tells it twice, and before. */
static void dumped_nasty(void)
{
	for (;;) {
		await(WIRE_query);
		looked(job.epoch, 1, 0);
		SAY(query_done, job.epoch);
		for (int i = 0; i < 2; i++)
			SAY(dumped, job.epoch, job.ranks[0], 1, 0x1b, "\033]0;owned\a",
			    "\n\n\033]0;owned\a:1 \033[2J\nno line", "\033[2J");
	}
}

/* What a background child may do: no fault. */
static void output_after(void)
{
	all_ended();
	output(job.epoch, job.ranks[0], 1, 4);
}

/* Any messages with any numbers. */
static void anything(void)
{
	const char *seed = getenv("HOSTILE_SEED");
	uint64_t x = seed ? strtoull(seed, NULL, 10) * 2654435761u + 1 : 1;
	static const uint32_t odd[] = { 0, 1, 2, 3, 64, 65536, INT32_MAX, UINT32_MAX };
	struct buf b = { 0 };

	for (int i = 0; i < 2000; i++) {
		uint32_t v[4];

		for (int k = 0; k < 4; k++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			v[k] = (x >> 40) % 3 ? (uint32_t)(x >> 60) % 2
					     : odd[(x >> 50) % 8];
		}
		v[0] = v[0] > 1 ? v[0] : job.epoch;
		switch ((x >> 33) % 12) {
		case 0:
			SAY(output, v[0], v[1], v[2] % 2 + 1, { "x\n", 2 });
			break;
		case 1:
			SAY(exited, v[0], v[1], v[2], v[3], x, x, v[2], x, x, "t", "");
			break;
		case 2:
			SAY(started, v[0], v[1], v[2], "1");
			break;
		case 3:
			SAY(credit, v[0], v[1]);
			break;
		case 4:
			SAY(heartbeat, x, x >> 1);
			break;
		case 5:
			SAY(log, v[1] % 3, "", "t", "");
			break;
		case 6:
			SAY(cleared, v[0], 0, v[1], "w", 0, 0);
			break;
		case 7:
			SAY(stop_ack, v[0]);
			break;
		case 8:
			SAY(placed, v[0], "", "", "", "", "", 0, 0, { 0 }, "");
			break;
		case 9:
			berth(v[1], "b");
			break;
		case 10:
			SAY(looked, v[0], { v, 1 }, { v, 1 }, { v + 1, 1 }, { v, 1 },
			    { v, 1 }, { v, 1 + x / 2 % 2 }, { v + 2, 1 + x / 4 % 2 });
			break;
		default:
			wire_pack_exited(&b, &(struct wire_exited){ v[0], v[1], v[2],
								    v[3], x, 0, 0, 0, 0,
								    "", "" });
			buf_head(&b)[(x >> 20) % b.len] ^= (unsigned char)(x >> 12);
			put_buf(&b);
		}
	}
	wait_forever();
}

/* ---- the end ---- */

static void never_gone(void)
{
	await(WIRE_stop);
	SAY(stop_ack, job.epoch);
	for (;;) {
		SAY(heartbeat, 1, 0);
		usleep(100000);
	}
}

static void never_leaves(void)
{
	all_ended();
	await(WIRE_stop);
	SAY(stop_ack, job.epoch);
	SAY(cleared, job.epoch, 0, 0, "", 0, 0);
	signal(SIGTERM, SIG_IGN);
	wait_forever();
}

static void ending_flood(void)
{
	await(WIRE_stop);
	for (;;)
		SAY(stop_ack, job.epoch);
}

static void gone_port(void)
{
	all_ended();
	await(WIRE_stop);
	SAY(stop_ack, job.epoch);
	SAY(cleared, job.epoch, 65536, 0, "", 0, 0);
	wait_forever();
}

static void gone_again(void)
{
	await(WIRE_stop);
	SAY(stop_ack, job.epoch);
	for (;;)
		SAY(cleared, job.epoch, 0, 1, NASTY, 0, 0);
}

/* As much output as is granted, for ever. */
static void output_on(void)
{
	struct wire_frame f;
	struct wire_credit m;
	long used;
	ssize_t n;

	all_ended();
	for (;;) {
		used = wire_next_from(WIRE_LAUNCHER, &f, buf_head(&job.in), job.in.len,
				      NULL);
		if (used > 0) {
			if (f.type == WIRE_stop)
				SAY(stop_ack, job.epoch);
			if (f.type == WIRE_credit &&
			    !wire_unpack_credit(&m, f.payload, f.n, NULL))
				for (; m.bytes >= 4096; m.bytes -= 4096)
					output(job.epoch, job.ranks[0], 1, 4096);
			buf_drop(&job.in, (size_t)used);
			continue;
		}
		n = read(0, buf_reserve(&job.in, 65536), 65536);
		if (n <= 0)
			_exit(0);
		job.in.len += (size_t)n;
	}
}

static void output_on_begin(void)
{
	for (int i = 0; i < 240; i++)
		output(job.epoch, job.ranks[0], 1, 4096);
	output_on();
}

enum stage { GREETING, HELLO, PLACING, RUNNING };

static const struct {
	const char *name;
	enum stage stage;
	void (*act)(void);
} acts[] = {
	{ "noise", GREETING, noise },
	{ "zeros", GREETING, zeros },
	{ "silent", GREETING, silent },
	{ "half", GREETING, half },
	{ "complains", GREETING, complains },
	{ "complains-on", GREETING, complains_on },
	{ "heir", GREETING, heir },
	{ "hello-absurd", HELLO, hello_absurd },
	{ "hello-gpus", HELLO, hello_gpus },
	{ "hello-address", HELLO, hello_address },
	{ "hello-version", HELLO, hello_version },
	{ "length-zero", HELLO, length_zero },
	{ "length-over", HELLO, length_over },
	{ "length-most", HELLO, length_most },
	{ "type-unknown", HELLO, type_unknown },
	{ "early-log", HELLO, early_log },
	{ "hello-again", PLACING, hello_again },
	{ "log-flood", PLACING, log_flood },
	{ "log-large", PLACING, log_large },
	{ "runners-word", PLACING, runners_word },
	{ "gone-at-once", PLACING, gone_at_once },
	{ "ended-at-once", PLACING, ended_at_once },
	{ "no-berth", PLACING, no_berth },
	{ "berth-again", PLACING, berth_again },
	{ "berth-foreign", PLACING, berth_foreign },
	{ "berth-nasty", PLACING, berth_nasty },
	{ "placed-again", PLACING, placed_again },
	{ "placed-ports", PLACING, placed_ports },
	{ "start-untold", PLACING, start_untold },
	{ "lacks-nasty", PLACING, lacks_nasty },
	{ "lacks-absurd", PLACING, lacks_absurd },
	{ "check-untold", RUNNING, check_untold },
	{ "check-flood", PLACING, check_flood },
	{ "check-absurd", PLACING, check_absurd },
	{ "started-again", RUNNING, started_again },
	{ "output-flood", RUNNING, output_flood },
	{ "output-small", RUNNING, output_small },
	{ "output-foreign", RUNNING, output_foreign },
	{ "output-nobody", RUNNING, output_nobody },
	{ "output-stream", RUNNING, output_stream },
	{ "output-epoch", RUNNING, output_epoch },
	{ "output-after", RUNNING, output_after },
	{ "output-on", RUNNING, output_on_begin },
	{ "ended-foreign", RUNNING, ended_foreign },
	{ "ended-again", RUNNING, ended_again },
	{ "ended-cut", RUNNING, ended_cut },
	{ "ended-string", RUNNING, ended_string },
	{ "ended-nasty", RUNNING, ended_nasty },
	{ "ending-untold", RUNNING, ending_untold },
	{ "ending-flood", RUNNING, ending_flood },
	{ "gone-untold", RUNNING, gone_untold },
	{ "gone-again", RUNNING, gone_again },
	{ "gone-port", RUNNING, gone_port },
	{ "asks-on", RUNNING, asks_on },
	{ "stalls-on", RUNNING, stalls_on },
	{ "fences-on", RUNNING, fences_on },
	{ "lookups-on", RUNNING, lookups_on },
	{ "names-on", RUNNING, names_on },
	{ "exchanges-on", RUNNING, exchanges_on },
	{ "events-on", RUNNING, events_on },
	{ "change-foreign", RUNNING, change_foreign },
	{ "change-number", RUNNING, change_number },
	{ "changes-on", RUNNING, changes_on },
	{ "healthy-untold", RUNNING, healthy_untold },
	{ "looked-long", RUNNING, looked_long },
	{ "looked-epoch", RUNNING, looked_epoch },
	{ "looked-on", RUNNING, looked_on },
	{ "looked-life", RUNNING, looked_life },
	{ "dumped-foreign", RUNNING, dumped_foreign },
	{ "dumped-nasty", RUNNING, dumped_nasty },
	{ "credit-flood", RUNNING, credit_flood },
	{ "credit-steps", RUNNING, credit_steps },
	{ "deaf", RUNNING, deaf },
	{ "beats", RUNNING, beats },
	{ "quiet", RUNNING, quiet },
	{ "clocks", RUNNING, clocks },
	{ "random", RUNNING, anything },
	{ "never-gone", RUNNING, never_gone },
	{ "never-leaves", RUNNING, never_leaves },
};

static size_t act_of(const char *name)
{
	for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
		if (name && !strcmp(acts[i].name, name))
			return i;
	fprintf(stderr, "hostile_agent: no act '%s'\n", name ? name : "");
	_exit(9);
}

static bool first_of_the_job(void)
{
	char *mark = xasprintf("%s/hostile", getenv("HOSTILE_DIR"));
	int fd = open(mark, O_CREAT | O_EXCL | O_WRONLY, 0600);

	free(mark);
	return fd >= 0;
}

/* HOSTILE_FLOOD_S: a flood ends after so long, since it takes all of a core.  Without
 * it a flood has no end. */
static void act(size_t i)
{
	const char *seconds = getenv("HOSTILE_FLOOD_S");

	if (seconds)
		dry_ns = clock_ns() + strtoull(seconds, NULL, 10) * 1000000000;
	acts[i].act();
	dry_ns = 0;
}

int main(int argc, char **argv)
{
	const char *real = getenv("HOSTILE_REAL");
	size_t i;

	if (argc > 1 || !first_of_the_job()) {
		execv(real, argv);
		return 127;
	}
	i = act_of(getenv("HOSTILE"));
	if (acts[i].stage == GREETING)
		act(i);
	put(WIRE_MAGIC, WIRE_MAGIC_BYTES);
	if (acts[i].stage == HELLO)
		act(i);
	hello(4, 0, "", BERTH_VERSION);
	if (acts[i].stage == PLACING) {
		act(i);
	} else {
		await(WIRE_job);
		placed("0");
		await(WIRE_start);
		started();
		act(i);
	}
	await(WIRE_stop);
	SAY(stop_ack, job.epoch);
	SAY(cleared, job.epoch, 0, 0, "", 0, 0);
	await(WIRE_shutdown);
	return 0;
}
