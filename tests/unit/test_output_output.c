/* output.h: what ranks write, on its way to pipes, files, sockets and terminals.
 *
 * Descriptors 1 and 2 are ours only between rig_open() and rig_close(); what is to be
 * compared is kept until then, so that a test that fails has its own stdout back.
 * limit_s: 180
 * takes_s: 3 */
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "common/wire.h"
#include "launcher/output/out_queue.h"
#include "launcher/output/output.h"

enum { HOSTS = 4, LINE_MAX_BYTES = 65536, LABEL_BYTES = 12 };

enum where { PIPES, ONE_PIPE, SOCKETS, TERMINAL, FILES, SHARED_PIPES, NOWHERE };

struct rig {
	struct request r;
	struct event_base *base;
	struct output *o;
	int saved[2], in[2]; /* reading ends */
	struct str got[2];
	size_t sent[HOSTS], left[HOSTS];
	int unread, disks, rc;
	char disk_path[256];
	struct rlimit files;
	struct err err;
};

/* ---- the rig ---- */

/* Time stands still from rig_open() on, but where a test lets it go: on a machine that
 * is slow enough a '\r' is shown before the '\n' that follows has come. */
static uint64_t frozen_ms;
uint64_t __real_clock_ms(void);

uint64_t __wrap_clock_ms(void)
{
	return frozen_ms ? frozen_ms : __real_clock_ms();
}

static void on_left(void *ctx, uint32_t host, size_t n)
{
	((struct rig *)ctx)->left[host] += n;
}

static void on_unread(void *ctx, const char *which, int error)
{
	(void)which;
	(void)error;
	((struct rig *)ctx)->unread++;
}

static void on_disk(void *ctx, const char *path, int error)
{
	struct rig *g = ctx;

	g->disks += error != 0;
	snprintf(g->disk_path, sizeof g->disk_path, "%s", path);
}

static void open_terminal(int p[2])
{
	struct termios t;

	p[0] = posix_openpt(O_RDWR | O_NOCTTY);
	if (grantpt(p[0]) || unlockpt(p[0]))
		abort();
	p[1] = open(ptsname(p[0]), O_RDWR | O_NOCTTY);
	tcgetattr(p[1], &t);
	cfmakeraw(&t);
	tcsetattr(p[1], TCSANOW, &t);
}

static void open_file(int p[2])
{
	char file[] = "/tmp/berth-output-XXXXXX";

	p[1] = mkstemp(file);
	p[0] = open(file, O_RDONLY);
	unlink(file);
}

static void open_pair(enum where where, int p[2])
{
	if (where == SOCKETS && socketpair(AF_UNIX, SOCK_STREAM, 0, p))
		abort();
	if (where == TERMINAL)
		open_terminal(p);
	if (where == FILES)
		open_file(p);
	if ((where == PIPES || where == ONE_PIPE || where == SHARED_PIPES) && pipe(p))
		abort();
	if (where == NOWHERE)
		p[0] = p[1] = -1;
	else
		fcntl(p[0], F_SETFL, O_NONBLOCK);
}

static void put_fds(struct rig *g, enum where where)
{
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		int p[2];

		g->saved[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 100);
		g->in[i] = -1;
		if (i && where == ONE_PIPE) {
			dup2(1, 2);
			continue;
		}
		open_pair(where, p);
		g->in[i] = p[0];
		if (p[1] < 0)
			close(i + 1);
		else
			dup2(p[1], i + 1);
		if (p[1] >= 0)
			close(p[1]);
	}
}

/* No descriptor to be had: a pipe can't be opened anew, files can't be kept open. */
static void few_files(struct rig *g, bool few)
{
	struct rlimit l;

	if (few) {
		getrlimit(RLIMIT_NOFILE, &g->files);
		l = (struct rlimit){ 3, g->files.rlim_max };
		setrlimit(RLIMIT_NOFILE, &l);
	} else {
		setrlimit(RLIMIT_NOFILE, &g->files);
	}
}

static const char *rig_env = "xterm", *rig_no_color = "1"; /* TERM, NO_COLOR */

static const char *host_name(void *ctx, uint32_t host)
{
	(void)ctx;
	return host ? "n2" : "n1";
}

/* G->r may be filled before; shows all unless a set is there. */
static void rig_open(struct rig *g, enum where where, uint32_t np)
{
	static const struct output_events events = { on_left, on_unread, on_disk,
						     host_name };
	struct log_rank *rank;

	frozen_ms = 1;
	setenv("TERM", rig_env, 1);
	setenv("NO_COLOR", rig_no_color, 1);
	signal(SIGPIPE, SIG_IGN);
	g->r.output.show.all = !g->r.output.show.bits && !g->r.output.show_errors;
	g->base = event_base_new();
	put_fds(g, where);
	if (where == SHARED_PIPES)
		few_files(g, true);
	rank = xcalloc(np, sizeof *rank);
	for (uint32_t i = 0; i < np; i++)
		rank[i] = (struct log_rank){ i % 2 ? "odd" : "even", i / 2, 0 };
	g->rc = output_open(&g->o, g->base, &g->r, np, rank, "c00kie", &events, g,
			    &g->err);
	free(rank);
	if (where == SHARED_PIPES)
		few_files(g, false);
}

/* Read at most MOST bytes of each; true when there was something. */
static bool rig_read(struct rig *g, size_t most)
{
	static char block[1 << 16];
	bool some = false;

	for (int i = 0; i < 2; i++) {
		size_t room = most;
		ssize_t n;

		while (room && g->in[i] >= 0 &&
		       (n = read(g->in[i], block,
				 room < sizeof block ? room : sizeof block)) > 0) {
			str_addn(&g->got[i], block, (size_t)n);
			room -= (size_t)n;
			some = true;
		}
	}
	return some;
}

static void rig_turn(struct rig *g)
{
	event_base_loop(g->base, EVLOOP_NONBLOCK);
}

static void rig_settle(struct rig *g)
{
	do
		rig_turn(g);
	while (rig_read(g, SIZE_MAX));
}

static void rig_send(struct rig *g, uint32_t host, uint32_t rank, unsigned stream,
		     const char *p, size_t n)
{
	char *tight = xmalloc(n); /* its end is the sanitizer's */

	memcpy(tight, p, n);
	g->sent[host] += n + WIRE_OUTPUT_HEAD_BYTES;
	output_data(g->o, host, rank, stream, tight, n);
	free(tight);
}

static void rig_text(struct rig *g, uint32_t rank, unsigned stream, const char *text)
{
	rig_send(g, 0, rank, stream, text, strlen(text));
}

/* Before output_free() for what is still wanted of it; then rig_close(). */
static void rig_finish(struct rig *g)
{
	output_finish(g->o);
	rig_settle(g);
}

static void rig_close(struct rig *g)
{
	size_t waiting = output_waiting(g->o);

	output_free(g->o);
	event_base_free(g->base);
	for (int i = 0; i < 2; i++) {
		dup2(g->saved[i], i + 1);
		close(g->saved[i]);
	}
	rig_read(g, SIZE_MAX);
	for (int i = 0; i < 2; i++)
		if (g->in[i] >= 0)
			close(g->in[i]);
	ck_assert_uint_eq(waiting, 0);
	for (int i = 0; i < HOSTS; i++)
		ck_assert_uint_eq(g->left[i],
				  g->sent[i]); /* each byte's credit, once */
}

/* The end of most tests: what came on stdout and stderr; G is {0} again. */
static void rig_expect(struct rig *g, const char *out, const char *err)
{
	rig_finish(g);
	rig_close(g);
	ck_assert_str_eq(str_text(&g->got[0]), out);
	ck_assert_str_eq(str_text(&g->got[1]), err);
	str_free(&g->got[0]);
	str_free(&g->got[1]);
	*g = (struct rig){ .r.output.tag_style = g->r.output.tag_style };
}

static void same_bytes(const struct str *got, const struct str *want, const char *what)
{
	size_t n = got->len < want->len ? got->len : want->len, at = 0;

	while (at < n && got->s[at] == want->s[at])
		at++;
	ck_assert_msg(
		at == got->len && at == want->len,
		"%s: differs at byte %zu (%zu bytes, %zu wanted): '%.40s', not '%.40s'",
		what, at, got->len, want->len, got->s ? got->s + at : "",
		want->s ? want->s + at : "");
}

static uint32_t seed;

static uint32_t roll(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* ---- lines and labels ---- */

#define O(rank) "[" #rank "]<stdout>:"
#define E(rank) "[" #rank "]<stderr>:"

/* clang-format off */
static const struct {
	const char *what;
	uint32_t np;
	bool tag;
	/* "0o" rank 0, stdout; then the bytes */
	const char *frame[6];
	const char *out, *err;
} texts[] = {
	{ "nothing", 2, true, { NULL }, "", "" },
	{ "a line", 2, true, { "0oa\n" }, O(0) "a\n", "" },
	{ "np 1 has labels too", 1, true, { "0oa\n" }, O(0) "a\n", "" },
	{ "--tag", 1, true, { "0oa\n" }, O(0) "a\n", "" },
	{ "lines in one frame", 2, true, { "1oa\nb\n\nc\n" },
	  O(1) "a\n" O(1) "b\n" O(1) "\n" O(1) "c\n", "" },
	{ "a line in pieces", 2, true, { "0oa", "0ob", "0oc\n" },
	  O(0) "abc\n", "" },
	{ "an end and a begin", 2, true, { "0oa", "0ob\nc", "0od\n" },
	  O(0) "ab\n" O(0) "cd\n", "" },
	{ "pieces of two", 2, true, { "0oa", "1ob\n", "0oc\n" },
	  O(1) "b\n" O(0) "ac\n", "" },
	{ "both streams", 2, true, { "0oa\n", "0eb\n", "1ec\n" },
	  O(0) "a\n", E(0) "b\n" E(1) "c\n" },
	{ "streams do not mix", 2, true, { "0oa", "0eb\n", "0oc\n" },
	  O(0) "ac\n", E(0) "b\n" },
	{ "no end", 2, true, { "0oa" }, O(0) "a", "" },
	{ "no end of two", 2, true, { "0oa", "1ob" }, O(0) "a\n" O(1) "b", "" },
	{ "no end of both streams", 1, true, { "0oa", "0eb" },
	  O(0) "a", E(0) "b" },
	{ "end, then no end", 2, true, { "0oa\nb", "1oc\n" },
	  O(0) "a\n" O(1) "c\n" O(0) "b", "" },
	{ "empty frame", 2, true, { "0o", "0oa\n", "0o" }, O(0) "a\n", "" },
	{ "updates, then a line", 2, true, { "0o1%\r2%\r3%\n" },
	  O(0) "2%\n" O(0) "3%\n", "" },
	{ "updates, then a line end", 2, true, { "0o1%\r2%\r3%\r\n" },
	  O(0) "2%\n" O(0) "3%\r\n", "" },
	{ "progress as tqdm's", 2, true, { "0e\r1%", "0e\r2%", "0e\n" }, "", E(0) "1%\n" E(0) "2%\n" },
	{ "an update of each", 2, true, { "0o1%\r", "1o2%\r", "0o3%\r", "1o4%\r" },
	  O(0) "3%\n" O(1) "4%\n", "" },
	{ "an update and another's line", 2, true, { "0o1%\r2%", "1oa\n", "0o\r\n" },
	  O(1) "a\n" O(0) "1%\n" O(0) "2%\r\n", "" },
	{ "an update of no end", 2, true, { "0o1%\r2%" }, O(0) "2%\n", "" },
	{ "an update of no end, and \\r", 2, true, { "0o1%\r2%\r" }, O(0) "2%\n", "" },
	{ "erased", 2, true, { "0o99%\r   \r", "0oa\n" }, O(0) "a\n", "" },
	{ "erased by a sequence", 2, true, { "0o99%\r\x1b[2K\r", "0oa\n" }, O(0) "a\n", "" },
	{ "\\r\\n", 2, true, { "0oa\r\nb\r\n" }, O(0) "a\r\n" O(0) "b\r\n", "" },
	{ "\\r | \\n", 2, true, { "0oa\r", "0o\nb\n" },
	  O(0) "a\r\n" O(0) "b\n", "" },
	{ "\\r | b", 2, true, { "0oa\r", "0ob\n" }, O(0) "a\n" O(0) "b\n", "" },
	{ "\\r | \\r | \\n", 2, true, { "0o\r", "0o\r", "0o\n" }, O(0) "\r\n", "" },
	{ "\\r\\r\\n", 2, true, { "0oa\r\r\n" }, O(0) "a\r\n", "" },
	{ "\\r\\r\\n, b", 2, true, { "0oa\r\r\nb\n\n" }, O(0) "a\r\n" O(0) "b\n" O(0) "\n", "" },
	{ "\\n\\r", 2, true, { "0oa\n\rb\n" }, O(0) "a\n" O(0) "b\n", "" },
	{ "\\r at the end", 2, true, { "0oa\r" }, O(0) "a\n", "" },
	{ "\\r, held, \\n", 2, true, { "0oa", "0ob\rc\rd", "0oe\rf\n" },
	  O(0) "de\n" O(0) "f\n", "" },
	{ "--no-tag", 2, false, { "0oa", "1ob\n", "0oc\n", "1ed" }, "b\nac\n", "d" },
	{ "--no-tag, no end of two", 2, false, { "0oa", "1ob" }, "a\nb", "" },
	{ "raw", 1, false, { "0oa", "0o\r", "0o\nb", "0ec" }, "a\r\nb", "c" },
	{ "no such rank, no such stream", 2, true,
	  { "2oa\n", "9oa\n", "0?a\n", "0ob\n" }, O(0) "b\n", "" },
};
/* clang-format on */

START_TEST(labels)
{
	struct rig g = { .r.output.tag_style = texts[_i].tag ? TAG_LONG : TAG_NONE };

	rig_open(&g, PIPES, texts[_i].np);
	for (int i = 0; i < 6 && texts[_i].frame[i]; i++) {
		const char *f = texts[_i].frame[i];
		uint32_t rank = (uint32_t)(f[0] - '0');

		rig_text(&g, rank, f[1] == 'o' ? 1 : f[1] == 'e' ? 2 : 3, f + 2);
		if (rank >= texts[_i].np || f[1] == '?')
			g.sent[0] -= strlen(f + 2) + WIRE_OUTPUT_HEAD_BYTES;
		rig_settle(&g);
	}
	rig_expect(&g, texts[_i].out, texts[_i].err);
}
END_TEST

START_TEST(passed_on_at_once)
{
	struct rig g = { 0 };
	char *line, *raw;

	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 1, "a\nb");
	rig_settle(&g);
	line = xstrdup(str_text(&g.got[0]));
	rig_expect(&g, O(0) "a\n" O(0) "b", "");
	ck_assert_str_eq(line, O(0) "a\n");
	free(line);

	g.r.output.tag_style = TAG_NONE;
	rig_open(&g, PIPES, 1);
	rig_text(&g, 0, 1, "name? ");
	rig_settle(&g);
	raw = xstrdup(str_text(&g.got[0]));
	rig_expect(&g, "name? ", "");
	ck_assert_str_eq(raw, "name? ");
	free(raw);
}
END_TEST

START_TEST(timestamps)
{
	struct rig g = { .r.output.timestamps = true };
	char *text, *label;

	rig_open(&g, PIPES, 2);
	rig_text(&g, 1, 1, "a\n");
	rig_finish(&g);
	rig_close(&g);
	text = str_take(&g.got[0]);
	label = strstr(text, O(1) "a\n");
	ck_assert(label && label - text == 30); /* 2026-11-22T08:24:33.123+01:00 */
	for (int i = 0; i < 30; i++)
		ck_assert_msg("dddd-dd-ddTdd:dd:dd.dddsdd:dd "[i] == 'd'
				      ? text[i] >= '0' && text[i] <= '9'
			      : "dddd-dd-ddTdd:dd:dd.dddsdd:dd "[i] == 's'
				      ? text[i] == '+' || text[i] == '-'
				      : text[i] == "dddd-dd-ddTdd:dd:dd.dddsdd:dd "[i],
			      "%s", text);
	free(text);
}
END_TEST

/* ---- any frames against a slow and simple model ---- */

struct model {
	struct str held[8], update[8], out[2];
	bool after[8];
};

/* The N bytes at P as a line, or its begin. */
static void model_line(struct model *m, int self, const char *p, size_t n)
{
	struct str *out = &m->out[self % 2];

	str_addf(out, "[%d]<%s>:", self / 2, self % 2 ? "stderr" : "stdout");
	str_addn(out, p, n);
}

static void model_last_update(struct model *m, int self, const char *end, size_t n)
{
	if (!m->update[self].len)
		return;
	model_line(m, self, m->update[self].s, m->update[self].len);
	str_addn(&m->out[self % 2], end, n);
	m->update[self].len = 0;
}

/* One byte more; with it an update before it may be whole. */
static void model_byte(struct model *m, int self, char c)
{
	struct str *held = &m->held[self], *update = &m->update[self];
	bool alone;

	if (held->len && held->s[held->len - 1] == '\r' && c != '\n') {
		if (held->len > 1) {
			update->len = 0;
			str_addn(update, held->s, held->len - 1);
		}
		held->len = 0;
		m->after[self] = true;
	}
	str_addn(held, &c, 1);
	if (c != '\n')
		return;
	alone = held->len == 1 || (held->len == 2 && *held->s == '\r');
	if (alone && update->len) {
		model_last_update(m, self, held->s, held->len);
	} else {
		model_last_update(m, self, "\n", 1);
		model_line(m, self, held->s, held->len);
	}
	held->len = 0;
	m->after[self] = false;
}

/* An update without its end counts as one. */
static void model_finish(struct model *m)
{
	bool open[2] = { false };

	for (int self = 0; self < 8; self++) {
		struct str *held = &m->held[self], *update = &m->update[self];
		bool cr = held->len && held->s[held->len - 1] == '\r';

		if (open[self % 2] && (held->len > cr || update->len)) {
			str_add(&m->out[self % 2], "\n");
			open[self % 2] = false;
		}
		if (cr || m->after[self]) {
			if (held->len > cr) {
				update->len = 0;
				str_addn(update, held->s, held->len - cr);
			}
			held->len = 0;
		}
		model_last_update(m, self, "\n", 1);
		if (held->len)
			model_line(m, self, held->s, held->len);
		open[self % 2] |= held->len;
	}
}

START_TEST(any_frames)
{
	static const char alphabet[] = "ab\r\n\r\nxyz\0\xff";
	struct rig g = { 0 };
	struct model m = { 0 };

	seed = (uint32_t)_i + 1;
	rig_open(&g, PIPES, 4);
	for (int i = 0; i < 3000; i++) {
		uint32_t self = roll(8), n = roll(roll(4) ? 6 : 400);
		char frame[400];

		for (uint32_t k = 0; k < n; k++) {
			frame[k] = alphabet[roll(sizeof alphabet - 1)];
			model_byte(&m, (int)self, frame[k]);
		}
		rig_send(&g, roll(HOSTS), self / 2, self % 2 + 1, frame, n);
		if (roll(8) == 0)
			rig_settle(&g);
	}
	model_finish(&m);
	rig_finish(&g);
	rig_close(&g);
	same_bytes(&g.got[0], &m.out[0], "stdout");
	same_bytes(&g.got[1], &m.out[1], "stderr");
	for (int i = 0; i < 8; i++) {
		str_free(&m.held[i]);
		str_free(&m.update[i]);
	}
	for (int i = 0; i < 2; i++) {
		str_free(&m.out[i]);
		str_free(&g.got[i]);
	}
}
END_TEST

/* ---- lines without an end in sight ---- */

static const struct {
	size_t line, frame;
} longs[] = {
	{ 65535, 65536 }, { 65536, 65536 },  { 65537, 65536 },  { 65536, 1000 },
	{ 200000, 1000 }, { 200000, 65536 }, { 1000000, 4096 },
};

static char *long_line(size_t n)
{
	char *s = xmalloc(n + 1);

	for (size_t i = 0; i < n; i++)
		s[i] = (char)('a' + i % 26);
	s[n - 1] = '\n';
	s[n] = '\0';
	return s;
}

START_TEST(long_line_has_one_label)
{
	char *line = long_line(longs[_i].line);
	struct rig g = { 0 };
	struct str want = { 0 };

	rig_open(&g, PIPES, 2);
	for (size_t at = 0; at < longs[_i].line; at += longs[_i].frame) {
		size_t n = longs[_i].line - at;

		rig_send(&g, 0, 0, 1, line + at,
			 n < longs[_i].frame ? n : longs[_i].frame);
		rig_settle(&g);
	}
	rig_text(&g, 0, 1, "next\n");
	rig_finish(&g);
	rig_close(&g);
	str_addf(&want, O(0) "%s" O(0) "next\n", line);
	same_bytes(&g.got[0], &want, "line");
	free(line);
	str_free(&want);
	str_free(&g.got[0]);
}
END_TEST

/* A long line is passed on in pieces, and another rank's line does not run into it. */
START_TEST(long_lines_of_two)
{
	struct rig g = { 0 };
	struct str want = { 0 };
	char *x = long_line(70000);

	x[69999] = 'x';
	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 1, x);
	rig_text(&g, 1, 1, "other\n");
	rig_text(&g, 0, 1, "end\n");
	rig_finish(&g);
	rig_close(&g);
	str_addf(&want, O(0) "%s\n" O(1) "other\n" O(0) "end\n", x);
	same_bytes(&g.got[0], &want, "lines");
	free(x);
	str_free(&want);
	str_free(&g.got[0]);
}
END_TEST

/* The \r of a long line's \r\n may be the last byte of a piece. */
START_TEST(long_line_cut_in_its_end)
{
	struct rig g = { 0 };
	struct str want = { 0 };
	char *x = long_line(LINE_MAX_BYTES + 2);

	x[LINE_MAX_BYTES + 1] = '\r';
	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 1, x);
	rig_text(&g, 0, 1, "\nnext\n");
	rig_finish(&g);
	rig_close(&g);
	str_addf(&want, O(0) "%s\n" O(0) "next\n", x);
	same_bytes(&g.got[0], &want, "line");
	free(x);
	str_free(&want);
	str_free(&g.got[0]);
}
END_TEST

/* ---- any bytes, to every kind of descriptor ---- */

static const enum where places[] = { PIPES, SOCKETS, TERMINAL, FILES, SHARED_PIPES };

START_TEST(any_bytes_raw)
{
	enum where where = places[_i];
	struct rig g = { .r.output.tag_style = TAG_NONE };
	struct str want[2] = { 0 };

	seed = 9;
	rig_open(&g, where, 1);
	for (int i = 0; i < 200; i++) {
		unsigned stream = roll(2);
		uint32_t n = roll(20000);
		char frame[20000];

		for (uint32_t k = 0; k < n; k++)
			frame[k] = (char)roll(256);
		str_addn(&want[stream], frame, n);
		rig_send(&g, 0, 0, stream + 1, frame, n);
		if (roll(3))
			rig_read(&g, roll(30000));
		rig_turn(&g);
	}
	rig_finish(&g);
	rig_close(&g);
	for (int i = 0; i < 2; i++) {
		same_bytes(&g.got[i], &want[i], i ? "stderr" : "stdout");
		str_free(&g.got[i]);
		str_free(&want[i]);
	}
}
END_TEST

START_TEST(closed_descriptors)
{
	struct rig g = { 0 };

	rig_open(&g, NOWHERE, 2);
	rig_text(&g, 0, 1, "a\n");
	rig_text(&g, 0, 2, "b");
	output_note(g.o, "runner: note");
	rig_expect(&g, "", "");
}
END_TEST

/* ---- order ---- */

START_TEST(one_pipe_for_both)
{
	struct rig g = { 0 };

	rig_open(&g, ONE_PIPE, 2);
	rig_text(&g, 0, 1, "a\n");
	rig_text(&g, 0, 2, "b\n");
	rig_text(&g, 1, 1, "c\nx");
	output_note(g.o, "runner: note");
	rig_text(&g, 0, 1, "d\n");
	rig_text(&g, 1, 1, "y\n");
	rig_expect(
		&g,
		O(0) "a\n" E(0) "b\n" O(1) "c\nrunner: note\n" O(0) "d\n" O(1) "xy\n",
		"");
}
END_TEST

START_TEST(note_begins_a_line)
{
	struct str want = { 0 };
	struct rig g = { 0 };
	char *x = long_line(70000);

	x[69999] = 'x';
	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 2, x);
	output_note(g.o, "runner: %s", "note");
	rig_text(&g, 0, 2, "end\n");
	output_note(g.o, "two\nlines");
	rig_finish(&g);
	rig_close(&g);
	str_addf(&want, E(0) "%s\nrunner: note\n" E(0) "end\ntwo\nlines\n", x);
	same_bytes(&g.got[1], &want, "stderr");
	free(x);
	str_free(&want);
	str_free(&g.got[1]);
}
END_TEST

START_TEST(note_begins_a_line_raw)
{
	struct rig g = { .r.output.tag_style = TAG_NONE };

	rig_open(&g, PIPES, 1);
	rig_text(&g, 0, 2, "half");
	output_note(g.o, "runner: note");
	rig_text(&g, 0, 2, "rest\n");
	output_note(g.o, "runner: note");
	rig_expect(&g, "", "half\nrunner: note\nrest\nrunner: note\n");
}
END_TEST

/* ---- a reader that is slow, or goes away ---- */

static size_t total(const size_t v[HOSTS])
{
	return v[0] + v[1] + v[2] + v[3];
}

static size_t in_pipe(const struct rig *g)
{
	int n = 0;

	ioctl(g->in[0], FIONREAD, &n);
	return (size_t)n;
}

/* Hosts with a window of credit each write whole lines as fast as they may; the reader
 * takes a little at a time. */
START_TEST(slow_reader)
{
	/* more than the largest pipe takes */
	enum { WINDOW = 700000, LINES = 60000, BYTES = 60 };
	enum { COST = BYTES + WIRE_OUTPUT_HEAD_BYTES };
	struct rig g = { .r.output.tag_style = TAG_NONE }; /* a byte in is a byte out */
	size_t most = 0, early = 0;
	uint32_t sent = 0;
	char line[128];

	seed = 11;
	rig_open(&g, (enum where)_i, HOSTS);
	for (int idle = 0; idle < 1000 && (sent < LINES || output_waiting(g.o));
	     idle++) {
		for (uint32_t h = 0; h < HOSTS; h++) {
			while (sent < LINES && g.sent[h] - g.left[h] < WINDOW - COST &&
			       roll(50)) {
				snprintf(line, sizeof line, "%06u %*d\n", sent++,
					 BYTES - 8, (int)roll(1000));
				rig_send(&g, h, h, 1, line, BYTES);
			}
		}
		rig_turn(&g);
		if (output_waiting(g.o) > most)
			most = output_waiting(g.o);
		early += total(g.left) / COST * BYTES > g.got[0].len + in_pipe(&g);
		if (rig_read(&g, 3000))
			idle = 0;
	}
	rig_finish(&g);
	rig_close(&g);
	ck_assert_uint_eq(sent, LINES);
	ck_assert_uint_eq(early, 0); /* no credit for what was not written */
	ck_assert_uint_gt(most, WINDOW);
	ck_assert_uint_lt(most, HOSTS * WINDOW);
	ck_assert_uint_eq(g.got[0].len, LINES * BYTES);
	for (uint32_t i = 0; i < LINES; i++)
		ck_assert_int_eq(strtol(g.got[0].s + (size_t)i * BYTES, NULL, 10), i);
	str_free(&g.got[0]);
}
END_TEST

/* Credit goes back while bytes leave, not only when all have left: else a host waits
 * for a round trip each time its window is through. */
START_TEST(credit_comes_back_by_and_by)
{
	enum { WINDOW = 1 << 20 };
	char *line = long_line(1024);
	struct rig g = { 0 };
	size_t half;

	rig_open(&g, PIPES, 1);
	while (g.sent[0] < WINDOW) {
		rig_send(&g, 0, 0, 1, line, 1024);
		rig_turn(&g);
	}
	while (g.got[0].len < WINDOW / 2) {
		rig_read(&g, 16384);
		rig_turn(&g);
	}
	half = g.left[0];
	rig_finish(&g);
	rig_close(&g);
	free(line);
	str_free(&g.got[0]);
	ck_assert_uint_ge(half, WINDOW / 4);
	ck_assert_uint_le(half, g.sent[0]);
}
END_TEST

/* A line of one byte has a label of 12: what waits for a slow reader takes no more room
 * than what the hosts sent, and comes out whole.  First with one rank, whose frames
 * merge, then with four whose frames do not. */
START_TEST(short_lines_wait_unlabelled)
{
	enum { ALL = 1 << 20, FRAME = 4096 };
	size_t ranks = _i ? 4 : 1, most = 0, n = _i ? 1 : FRAME;
	struct rig g = { 0 };
	struct str want = { 0 };
	char lines[FRAME];

	memset(lines, '\n', sizeof lines);
	rig_open(&g, PIPES, 4);
	for (size_t sent = 0; sent < ALL / 4; sent += n) {
		uint32_t rank = (uint32_t)(sent / n % ranks);

		rig_send(&g, rank, rank, 1, lines, n);
		for (size_t i = 0; i < n; i++)
			str_addf(&want, "[%u]<stdout>:\n", rank);
		rig_turn(&g);
		if (output_waiting(g.o) > most)
			most = output_waiting(g.o);
	}
	output_note(g.o, "runner: the end"); /* not in this lane */
	rig_finish(&g);
	rig_close(&g);
	same_bytes(&g.got[0], &want, "lines");
	ck_assert_uint_gt(most, OUT_QUEUE_BYTES);
	ck_assert_uint_lt(most, ALL / 4 + 2 * OUT_QUEUE_BYTES);
	str_free(&want);
	str_free(&g.got[0]);
	str_free(&g.got[1]);
}
END_TEST

/* runner's own words wait for their turn among what ranks wrote to the same place. */
START_TEST(note_waits_for_its_turn)
{
	enum { LINES = 40000 };
	struct rig g = { 0 };
	struct str want = { 0 };

	rig_open(&g, ONE_PIPE, 2);
	for (int i = 0; i < LINES; i++) {
		rig_text(&g, 0, 1 + (unsigned)(i & 1), "0123456789\n");
		str_addf(&want, "%s0123456789\n", i & 1 ? E(0) : O(0));
		if (i % 10000 == 5000) {
			rig_text(&g, 1, 1, "half");
			output_note(g.o, "runner: note %d", i);
			str_addf(&want, "runner: note %d\n", i);
			rig_text(&g, 1, 1, "\n");
			str_add(&want, O(1) "half\n");
			rig_turn(&g);
		}
	}
	rig_finish(&g);
	rig_close(&g);
	same_bytes(&g.got[0], &want, "lines and notes");
	str_free(&want);
	str_free(&g.got[0]);
}
END_TEST

/* Lines without an end of many ranks: together no more than 4 MiB are held. */
START_TEST(lines_without_end_of_many)
{
	enum { NP = 200, BYTES = 60000 };
	struct rig g = { 0 };
	char *x = long_line(BYTES + 1);
	size_t shown = 0, bytes = 0;

	rig_open(&g, PIPES, NP);
	for (uint32_t rank = 0; rank < NP; rank++)
		rig_send(&g, rank % HOSTS, rank, 1, x, BYTES);
	rig_settle(&g);
	shown = g.got[0].len;
	rig_finish(&g);
	rig_close(&g);
	ck_assert_uint_gt(shown, (size_t)NP * BYTES - (4 << 20) - 1);
	ck_assert_uint_lt(shown, (size_t)NP * (BYTES + 20) - (4 << 20) + BYTES);
	for (size_t i = 0; i < g.got[0].len; i++)
		bytes += g.got[0].s[i] == 'z';
	ck_assert_uint_ge(bytes, (size_t)NP * (BYTES / 26));
	free(x);
	str_free(&g.got[0]);
}
END_TEST

/* Turn until OUT has come, 30 s at most. */
static bool rig_until(struct rig *g, int stream, const char *out)
{
	uint64_t end = clock_ms() + 30000;

	while (strcmp(str_text(&g->got[stream]), out) && clock_ms() < end) {
		event_base_loop(g->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
		rig_read(g, SIZE_MAX);
	}
	return !strcmp(str_text(&g->got[stream]), out);
}

#define ERASE "\r\x1b[K"
#define BAR(text) "\x1b[?7l" text "\x1b[?7h"

/* As tqdm writes it: on a terminal an update is shown at once, with or without its end,
 * and the last one again below another rank's line. */
START_TEST(update_on_a_terminal)
{
	struct rig g = { 0 };
	const char *bar = BAR(E(0) " 10%"), *two = BAR(E(1) " 11%");
	struct str want = { 0 };

	rig_open(&g, TERMINAL, 2);
	rig_text(&g, 0, 2, "\r 10%");
	rig_settle(&g);
	rig_text(&g, 1, 2, " 11%\r");
	rig_settle(&g);
	rig_text(&g, 0, 2, "\nline\n");
	rig_settle(&g);
	str_addf(&want,
		 "%s" ERASE
		 "%s" ERASE E(0) " 10%%\n" E(0) "line\n%s" ERASE E(1) " 11%%\n",
		 bar, two, two);
	rig_expect(&g, "", want.s);
	str_free(&want);
}
END_TEST

/* Text without an end is shown on a terminal, after a while, and its rest behind it. */
START_TEST(half_a_line_on_a_terminal)
{
	struct rig g = { 0 };
	bool none, half;

	rig_open(&g, TERMINAL, 2);
	rig_text(&g, 0, 1, "name");
	rig_text(&g, 0, 1, "? ");
	rig_settle(&g);
	none = !g.got[0].len;
	frozen_ms = 0;
	half = rig_until(&g, 0, O(0) "name? ");
	rig_text(&g, 0, 1, "Ada\n");
	rig_expect(&g, O(0) "name? Ada\n", "");
	ck_assert(none && half);
}
END_TEST

/* In a pipe a line without '\r' waits for its end, however long. */
START_TEST(half_a_line_waits_in_a_pipe)
{
	struct rig g = { 0 };
	uint64_t until;
	size_t shown;

	rig_open(&g, PIPES, 2);
	frozen_ms = 0;
	until = clock_ms() + 300;
	rig_text(&g, 0, 1, "half");
	while (clock_ms() < until) {
		rig_turn(&g);
		rig_read(&g, SIZE_MAX);
	}
	shown = g.got[0].len;
	rig_text(&g, 0, 1, "\n");
	rig_expect(&g, O(0) "half\n", "");
	ck_assert_uint_eq(shown, 0);
}
END_TEST

static const struct {
	enum colour_when when;
	const char *no_color, *term;
	enum tag_style style;
	enum where where;
	const char *out;
} colours[] = {
	{ COLOUR_AUTO, "", "xterm", TAG_LONG, TERMINAL, "\x1b[36m" O(0) "\x1b[0ma\n" },
	{ COLOUR_AUTO, "", "xterm", TAG_SHORT, TERMINAL, "\x1b[36m[0]\x1b[0m a\n" },
	{ COLOUR_AUTO, "", "xterm", TAG_NONE, TERMINAL, "a\n" },
	{ COLOUR_AUTO, "", "xterm", TAG_SHORT, PIPES, "[0] a\n" },
	{ COLOUR_AUTO, "", "dumb", TAG_LONG, TERMINAL, O(0) "a\n" },
	{ COLOUR_AUTO, "1", "xterm", TAG_LONG, TERMINAL, O(0) "a\n" },
	{ COLOUR_NEVER, "", "xterm", TAG_LONG, TERMINAL, O(0) "a\n" },
	{ COLOUR_ALWAYS, "1", "xterm", TAG_LONG, PIPES, "\x1b[36m" O(0) "\x1b[0ma\n" },
	{ COLOUR_AUTO, "", "xterm", TAG_LONG, FILES, O(0) "a\n" },
};

START_TEST(colour)
{
	struct rig g = { .r.output.colour = colours[_i].when,
			 .r.output.tag_style = colours[_i].style };

	rig_env = colours[_i].term;
	rig_no_color = colours[_i].no_color;
	rig_open(&g, colours[_i].where, 2);
	rig_text(&g, 0, 1, "a\n");
	rig_expect(&g, colours[_i].out, "");
}
END_TEST

/* A line longer than the credit must not wait for its own end. */
START_TEST(held_bytes_give_their_credit)
{
	struct rig g = { 0 };
	size_t left;

	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 1, "no end");
	rig_settle(&g);
	left = g.left[0];
	rig_expect(&g, O(0) "no end", "");
	ck_assert_uint_eq(left, 6 + WIRE_OUTPUT_HEAD_BYTES);
}
END_TEST

START_TEST(reader_goes_away)
{
	struct rig g = { 0 };
	char *x = long_line(60000);
	int unread[3];

	rig_open(&g, (enum where)_i, 2);
	for (int i = 0; i < 20; i++) /* more than any pipe takes */
		rig_send(&g, (uint32_t)i % HOSTS, 0, 1, x, 60000);
	rig_turn(&g);
	unread[0] = g.unread;
	close(g.in[0]);
	g.in[0] = -1;
	rig_turn(&g);
	rig_send(&g, 1, 1, 1, "more\n", 5);
	rig_turn(&g);
	unread[1] = g.unread;
	rig_text(&g, 1, 2, "stderr is there\n");
	output_note(g.o, "runner: note");
	rig_settle(&g);
	output_mute(g.o);
	rig_send(&g, 2, 1, 2, "muted\n", 6);
	rig_send(&g, 2, 1, 1, "muted", 5);
	unread[2] = g.unread;
	free(x);
	rig_expect(&g, "", E(1) "stderr is there\nrunner: note\n");
	ck_assert(unread[0] == 0 && unread[1] == 1 && unread[2] == 1);
}
END_TEST

START_TEST(no_reader_from_the_start)
{
	struct rig g = { 0 };
	int unread;

	rig_open(&g, ONE_PIPE, 2);
	close(g.in[0]);
	g.in[0] = -1;
	rig_text(&g, 0, 1, "a\nb");
	rig_turn(&g);
	rig_text(&g, 0, 2, "c\n");
	rig_turn(&g);
	unread = g.unread;
	rig_expect(&g, "", "");
	ck_assert_int_eq(unread, 1);
}
END_TEST

/* ---- --show ---- */

START_TEST(show)
{
	uint64_t bits[2] = { 1u << 3, 1 };
	struct rig g = { .r.output.show = { .bits = bits, .nwords = 2 },
			 .r.output.show_errors = _i };

	rig_open(&g, PIPES, 200);
	for (uint32_t rank = 0; rank < 200; rank++) {
		rig_text(&g, rank, 1, "o\n");
		if (rank < 5)
			rig_text(&g, rank, 2, "e\n");
	}
	rig_text(&g, 7, 1, "hidden, no end");
	rig_expect(&g, O(3) "o\n" O(64) "o\n",
		   _i ? E(0) "e\n" E(1) "e\n" E(2) "e\n" E(3) "e\n" E(4) "e\n"
		      : E(3) "e\n");
}
END_TEST

START_TEST(show_none_and_errors)
{
	struct rig g = { .r.output.show_errors = true };

	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 1, "o\n");
	rig_text(&g, 1, 2, "e\n");
	rig_expect(&g, "", E(1) "e\n");
}
END_TEST

/* ---- files ---- */

static char folder[40];

static void make_folder(void)
{
	snprintf(folder, sizeof folder, "/tmp/berth-output-XXXXXX");
	if (!mkdtemp(folder))
		abort();
}

/* FOLDER/PATH's bytes; the caller's. */
static char *slurp(const char *path)
{
	char *file = xasprintf("%s/%s", folder, path), block[4096];
	struct str s = { 0 };
	int fd = open(file, O_RDONLY);
	ssize_t n;

	ck_assert_msg(fd >= 0, "%s: %s", file, strerror(errno));
	while ((n = read(fd, block, sizeof block)) > 0)
		str_addn(&s, block, (size_t)n);
	close(fd);
	unlink(file);
	*strrchr(file, '/') = '\0';
	rmdir(file);
	free(file);
	return str_take(&s);
}

static void file_is(const char *path, const char *want)
{
	char *got = slurp(path);

	ck_assert_msg(!strcmp(got, want), "%s: '%s'", path, got);
	free(got);
}

static const struct {
	uint32_t np, rank;
	const char *dir;
} padded[] = {
	{ 1, 0, "rank.0" },     { 2, 1, "rank.1" },       { 10, 9, "rank.9" },
	{ 11, 2, "rank.02" },   { 11, 10, "rank.10" },    { 100, 7, "rank.07" },
	{ 101, 7, "rank.007" }, { 101, 100, "rank.100" },
};

/* The whole folder goes, whatever is in it. */
static void remove_folder(uint32_t np)
{
	static const char *const names[] = { "/stdout", "/stderr", "" };

	for (uint32_t rank = 0; rank < np; rank++)
		for (int digits = 1; digits <= 3; digits++)
			for (int i = 0; i < 3; i++) {
				char *path = xasprintf("%s/rank.%0*u%s", folder, digits,
						       rank, names[i]);

				remove(path);
				free(path);
			}
	ck_assert_int_eq(rmdir(folder), 0); /* nothing of another name was made */
}

START_TEST(folder_names)
{
	struct rig g = { 0 };
	char *path;

	make_folder();
	g.r.output.dir = folder;
	rig_open(&g, PIPES, padded[_i].np);
	rig_text(&g, padded[_i].rank, 1, "a");
	rig_text(&g, padded[_i].rank, 2, "b");
	rig_finish(&g);
	rig_close(&g);
	str_free(&g.got[0]);
	str_free(&g.got[1]);
	path = xasprintf("%s/stderr", padded[_i].dir);
	file_is(path, "b");
	free(path);
	path = xasprintf("%s/stdout", padded[_i].dir);
	file_is(path, "a");
	free(path);
	remove_folder(padded[_i].np);
}
END_TEST

/* Raw bytes, no labels, hidden ranks too, a muted terminal too; old ones are moved.
 * Once with files kept open and once without (SHARED_PIPES: no descriptors to spare).
 */
START_TEST(files_get_everything)
{
	uint64_t bits[1] = { 1 };
	struct rig g = { .r.output.show = { .bits = bits, .nwords = 1 } };

	char *path;

	make_folder();
	g.r.output.dir = folder;
	for (int round = 0; round < 2; round++) {
		struct rlimit low, old;
		char *note;

		getrlimit(RLIMIT_NOFILE, &old);
		low = (struct rlimit){ _i ? 200 : old.rlim_cur, old.rlim_max };
		setrlimit(RLIMIT_NOFILE, &low);
		g.r = (struct request){ .output.show = { .bits = bits, .nwords = 1 },
					.output.dir = folder };
		rig_open(&g, PIPES, 2);
		setrlimit(RLIMIT_NOFILE, &old);
		rig_text(&g, 0, 1, "a\r");
		rig_text(&g, 0, 1, "\nb");
		rig_text(&g, 1, 1, "hidden");
		rig_text(&g, 1, 2, "err\n");
		output_mute(g.o);
		rig_text(&g, 1, 2, "muted");
		note = xasprintf("runner: --output-filename: the files of an earlier "
				 "run are now in '%s/run.1'\n",
				 folder);
		rig_expect(&g, O(0) "a\r\n", round ? note : "");
		free(note);
	}
	file_is("run.1/rank.1/stdout", "hidden");
	file_is("run.1/rank.1/stderr", "err\nmuted");
	file_is("run.1/rank.0/stdout", "a\r\nb");
	file_is("run.1/rank.0/stderr", "");
	path = xasprintf("%s/run.1", folder);
	rmdir(path);
	free(path);
	file_is("rank.0/stdout", "a\r\nb");
	file_is("rank.0/stderr", "");
	file_is("rank.1/stdout", "hidden");
	file_is("rank.1/stderr", "err\nmuted");
	remove_folder(2);
}
END_TEST

START_TEST(folder_in_folders)
{
	struct rig g = { 0 };
	char dir[128], path[128];

	make_folder();
	snprintf(dir, sizeof dir, "%s/x/y//z/", folder);
	g.r.output.dir = dir;
	rig_open(&g, PIPES, 1);
	rig_text(&g, 0, 1, "a\n");
	rig_expect(&g, O(0) "a\n", "");
	file_is("x/y/z/rank.0/stdout", "a\n");
	file_is("x/y/z/rank.0/stderr", "");
	snprintf(path, sizeof path, "%s/x/y/z", folder);
	for (int i = 0; i < 4; i++) {
		rmdir(path);
		*strrchr(path, '/') = '\0';
	}
}
END_TEST

START_TEST(no_folder)
{
	struct rig g = { .r.output.dir = (char *)"/dev/null/x" };
	int rc;
	struct err e;

	rig_open(&g, PIPES, 2);
	rc = g.rc;
	e = g.err;
	rig_expect(&g, "", "");
	ck_assert_int_eq(rc, -1);
	ck_assert_int_eq(e.id, E_LOG_DIR);
	ck_assert_ptr_nonnull(strstr(e.text, "'/dev/null/x'"));
	ck_assert_ptr_nonnull(strstr(e.text, "Not a directory"));
}
END_TEST

/* A full disk is said once; the terminal gets everything. */
START_TEST(disk_full)
{
	struct rig g = { 0 };
	struct rlimit full = { 1, RLIM_INFINITY }, old;
	char path[128], *said;
	int disks;

	make_folder();
	snprintf(path, sizeof path, "%s/rank.0/stdout", folder);
	g.r.output.dir = folder;
	rig_open(&g, PIPES, 2);
	getrlimit(RLIMIT_FSIZE, &old);
	full.rlim_max = old.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &full);
	rig_text(&g, 0, 1, "a\n");
	rig_text(&g, 0, 1, "b\n");
	rig_text(&g, 1, 1, "c\n");
	setrlimit(RLIMIT_FSIZE, &old);
	disks = g.disks;
	said = xstrdup(g.disk_path);
	rig_expect(&g, O(0) "a\n" O(0) "b\n" O(1) "c\n", "");
	ck_assert_int_eq(disks, 1);
	ck_assert_str_eq(said, path);
	free(said);
	remove_folder(2);
}
END_TEST

/* ---- what a report needs ---- */

START_TEST(tail)
{
	struct rig g = { 0 };
	char *none, *few, *ten, *open, *flood, line[64];

	rig_open(&g, PIPES, 2);
	rig_text(&g, 0, 1, "stdout\n");
	none = xstrdup(output_tail(g.o, 0));
	rig_text(&g, 0, 2, "one\ntw");
	rig_text(&g, 0, 2, "o\n");
	few = xstrdup(output_tail(g.o, 0));
	for (int i = 0; i < 12; i++) {
		snprintf(line, sizeof line, "line %d\n", i);
		rig_text(&g, 0, 2, line);
	}
	ten = xstrdup(output_tail(g.o, 0));
	rig_text(&g, 0, 2, "no end");
	open = xstrdup(output_tail(g.o, 0));
	for (int i = 0; i < 5000; i++) {
		snprintf(line, sizeof line, "line %d\n", i);
		rig_text(&g, 0, 2, line);
	}
	flood = xstrdup(output_tail(g.o, 0));
	rig_finish(&g);
	rig_close(&g);
	str_free(&g.got[0]);
	str_free(&g.got[1]);
	ck_assert_str_eq(none, "");
	ck_assert_str_eq(few, "one\ntwo\n");
	ck_assert_str_eq(
		ten, "line 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9\n"
		     "line 10\nline 11\n");
	ck_assert(!strncmp(open, "line 3\n", 7) && strstr(open, "line 11\nno end"));
	ck_assert(!strncmp(flood, "line 4990\n", 10) && strstr(flood, "line 4999\n"));
	free(none);
	free(few);
	free(ten);
	free(open);
	free(flood);
}
END_TEST

START_TEST(tail_of_one_long_line)
{
	struct rig g = { 0 };
	char *x = long_line(100000);
	size_t n;
	bool end;

	rig_open(&g, PIPES, 1);
	rig_send(&g, 0, 0, 2, x, 100000);
	n = strlen(output_tail(g.o, 0));
	end = n > 100 && !strcmp(output_tail(g.o, 0), x + 100000 - n);
	rig_finish(&g);
	rig_close(&g);
	str_free(&g.got[1]);
	free(x);
	ck_assert(end);
	ck_assert_uint_le(n, 8192);
}
END_TEST

START_TEST(quiet)
{
	struct rig g = { 0 };
	long before, after;

	rig_open(&g, PIPES, 2);
	before = output_quiet_ms(g.o, 1);
	rig_text(&g, 1, 2, "a\n");
	after = output_quiet_ms(g.o, 1);
	rig_expect(&g, "", E(1) "a\n");
	ck_assert_int_eq(before, -1);
	ck_assert(after >= 0 && after < 60000);
}
END_TEST

#define COUNT(v) ((int)(sizeof(v) / sizeof *(v)))

int main(void)
{
	Suite *s = suite_create("output");
	TCase *c = tcase_create("output");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, labels, 0, COUNT(texts));
	tcase_add_test(c, passed_on_at_once);
	tcase_add_test(c, timestamps);
	tcase_add_loop_test(c, any_frames, 0, 20);
	tcase_add_loop_test(c, long_line_has_one_label, 0, COUNT(longs));
	tcase_add_test(c, long_lines_of_two);
	tcase_add_test(c, long_line_cut_in_its_end);
	tcase_add_loop_test(c, any_bytes_raw, 0, COUNT(places));
	tcase_add_test(c, closed_descriptors);
	tcase_add_test(c, one_pipe_for_both);
	tcase_add_test(c, note_begins_a_line);
	tcase_add_test(c, note_begins_a_line_raw);
	tcase_add_loop_test(c, slow_reader, PIPES, ONE_PIPE + 1);
	tcase_add_test(c, credit_comes_back_by_and_by);
	tcase_add_loop_test(c, short_lines_wait_unlabelled, 0, 2);
	tcase_add_test(c, note_waits_for_its_turn);
	tcase_add_test(c, lines_without_end_of_many);
	tcase_add_test(c, update_on_a_terminal);
	tcase_add_test(c, half_a_line_on_a_terminal);
	tcase_add_test(c, half_a_line_waits_in_a_pipe);
	tcase_add_loop_test(c, colour, 0, COUNT(colours));
	tcase_add_test(c, held_bytes_give_their_credit);
	tcase_add_loop_test(c, reader_goes_away, PIPES, PIPES + 1);
	tcase_add_loop_test(c, reader_goes_away, SOCKETS, SOCKETS + 1);
	tcase_add_loop_test(c, reader_goes_away, SHARED_PIPES, SHARED_PIPES + 1);
	tcase_add_test(c, no_reader_from_the_start);
	tcase_add_loop_test(c, show, 0, 2);
	tcase_add_test(c, show_none_and_errors);
	tcase_add_loop_test(c, folder_names, 0, COUNT(padded));
	tcase_add_loop_test(c, files_get_everything, 0, 2);
	tcase_add_test(c, folder_in_folders);
	tcase_add_test(c, no_folder);
	tcase_add_test(c, disk_full);
	tcase_add_test(c, tail);
	tcase_add_test(c, tail_of_one_long_line);
	tcase_add_test(c, quiet);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
