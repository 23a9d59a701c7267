/* flow - bytes that can be told from any others, for tests of streams.
 *
 *   flow write KIND SEED BYTES        rank $RANK's bytes to stdout
 *   flow same KIND SEED BYTES RANK    stdin is exactly these
 *   flow check KIND SEED BYTES NP     stdin is the labelled output of NP such ranks
 *   flow slow BYTES_PER_S [FILE]      stdin to stdout, no faster; until FILE is there
 *
 * KIND: lines (2 to 200 bytes), short (1 to 3), long (lines of 64 KiB), endless (no
 * line end at all), binary (any bytes but '\r'), crlf, bars ('\r' ends each update, and
 * check wants some of them, in order, and the last).
 * All but endless end in a line's end. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 65536 };
enum kind { LINES, SHORT, LONG, ENDLESS, BINARY, CRLF, BARS };

struct flow {
	enum kind kind;
	uint64_t state, left; /* still to be made */
	uint64_t passed;      /* compared so far */
	size_t line;          /* bytes to the end of this line */
	size_t at, n;         /* of bytes */
	unsigned char bytes[BUFFER_BYTES];
};

static void die(const char *why)
{
	fprintf(stderr, "flow: %s\n", why);
	exit(2);
}

static uint64_t next(struct flow *f)
{
	f->state ^= f->state >> 12;
	f->state ^= f->state << 25;
	f->state ^= f->state >> 27;
	return f->state * 2685821657736338717u;
}

static void flow_begin(struct flow *f, const char *kind, const char *seed,
		       const char *bytes, unsigned long rank)
{
	static const char *const kinds[] = { "lines",  "short", "long", "endless",
					     "binary", "crlf",  "bars" };
	size_t k = 0;

	while (k < sizeof kinds / sizeof *kinds && strcmp(kinds[k], kind))
		k++;
	if (k == sizeof kinds / sizeof *kinds)
		die("no such kind");
	f->kind = (enum kind)k;
	f->state = (strtoull(seed, NULL, 10) + 1) * 1000003 + rank * 7919 + 1;
	f->left = strtoull(bytes, NULL, 10);
	f->passed = f->line = f->at = f->n = 0;
}

static unsigned char one(struct flow *f, uint64_t random)
{
	if (f->kind == BINARY)
		return (unsigned char)(random == '\r' ? 0 : random);
	if (f->kind != ENDLESS && !f->line)
		f->line = f->kind == LONG    ? BUFFER_BYTES
			  : f->kind == SHORT ? 1 + next(f) % 3
					     : 2 + next(f) % 199;
	if (f->line)
		f->line--;
	if (f->kind == CRLF && f->line == 1)
		return '\r';
	if (f->kind != ENDLESS && !f->line)
		return f->kind == BARS ? '\r' : '\n';
	return (unsigned char)('a' + random % 26);
}

static void fill(struct flow *f)
{
	f->at = f->n = 0;
	while (f->n < BUFFER_BYTES && f->left) {
		uint64_t random = next(f);

		for (int i = 0; i < 8 && f->n < BUFFER_BYTES && f->left; i++) {
			f->bytes[f->n++] = one(f, random >> 8 * i & 255);
			f->left--;
		}
	}
	if (!f->left && f->n && f->kind != ENDLESS)
		f->bytes[f->n - 1] = '\n';
}

static void write_all(const unsigned char *p, size_t n)
{
	while (n) {
		ssize_t done = write(1, p, n);

		if (done < 0 && errno != EINTR)
			die(strerror(errno));
		p += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
}

static void flow_write(struct flow *f)
{
	while (fill(f), f->n)
		write_all(f->bytes, f->n);
}

/* The next N bytes are those at P. */
static void flow_take(struct flow *f, const unsigned char *p, size_t n,
		      unsigned long rank)
{
	while (n) {
		size_t part;

		if (f->at == f->n)
			fill(f);
		part = f->n - f->at < n ? f->n - f->at : n;
		if (!part || memcmp(f->bytes + f->at, p, part)) {
			fprintf(stderr, "flow: rank %lu: %s behind byte %llu: '%.*s'\n",
				rank, part ? "wrong bytes" : "too many bytes",
				(unsigned long long)f->passed, (int)(n < 60 ? n : 60),
				(const char *)p);
			exit(1);
		}
		f->at += part;
		f->passed += part;
		p += part;
		n -= part;
	}
}

static void flow_end(struct flow *f, unsigned long rank)
{
	if (f->at == f->n && f->left == 0)
		return;
	fprintf(stderr, "flow: rank %lu: it ends behind byte %llu\n", rank,
		(unsigned long long)f->passed);
	exit(1);
}

static void same(struct flow *f, unsigned long rank)
{
	static unsigned char in[BUFFER_BYTES];
	ssize_t n;

	while ((n = read(0, in, sizeof in)) > 0)
		flow_take(f, in, (size_t)n, rank);
	flow_end(f, rank);
}

/* The next N bytes, but for updates in front of them, are those at P: the text of an
 * update, or "text\r", behind which "\n" comes.  In what runner writes to a pipe one
 * update gives way to the next. */
static void flow_take_update(struct flow *f, const unsigned char *p, size_t n,
			     unsigned long rank)
{
	const bool crlf = n && p[n - 1] == '\r';
	unsigned char update[256];
	size_t have;

	n -= crlf;
	do {
		have = 0;
		for (;;) {
			if (f->at == f->n)
				fill(f);
			if (f->at == f->n || have == sizeof update) {
				fprintf(stderr, "flow: rank %lu: no update '%.*s'\n",
					rank, (int)(n < 60 ? n : 60), (const char *)p);
				exit(1);
			}
			update[have] = f->bytes[f->at++];
			if (update[have] == '\r' || update[have] == '\n')
				break;
			have++;
		}
	} while (have != n || memcmp(update, p, n));
	if (crlf)
		flow_take(f, (const unsigned char *)"\n", 1, rank);
}

/* A label at the head of a line: "[12]<stdout>:". */
static long label(unsigned long np)
{
	unsigned long rank = 0;
	char what[10];

	if (scanf("[%lu]<std%3[outer]>", &rank, what) != 2 || getchar() != ':' ||
	    rank >= np) {
		fprintf(stderr, "flow: no label in front of a line\n");
		exit(1);
	}
	return (long)rank;
}

/* Pieces of lines: each has a label, and ends in '\n', or in a '\r' that no '\n'
 * follows.  A '\n' that is not a rank's parts a line without end from another rank's.
 */
static void check(struct flow *const *f, unsigned long np)
{
	static unsigned char piece[BUFFER_BYTES];
	int c = getchar_unlocked();

	while (c != EOF) {
		long rank;
		size_t n = 0;
		bool end = false;

		ungetc(c, stdin);
		rank = label(np);
		while (!end && (c = getchar_unlocked()) != EOF) {
			int after = c == '\r' ? getchar_unlocked() : 0;

			if (c == '\r' && after != EOF)
				ungetc(after, stdin);
			end = c == '\n' || (c == '\r' && after != '\n');
			if (c != '\n' || f[rank]->kind != ENDLESS)
				piece[n++] = (unsigned char)c;
			if (end && f[rank]->kind == BARS)
				flow_take_update(f[rank], piece, --n,
						 (unsigned long)rank);
			else if (end || n == sizeof piece)
				flow_take(f[rank], piece, n, (unsigned long)rank);
			if (end || n == sizeof piece)
				n = 0;
		}
		flow_take(f[rank], piece, n, (unsigned long)rank);
		c = end ? getchar_unlocked() : EOF;
	}
	for (unsigned long i = 0; i < np; i++)
		flow_end(f[i], i);
}

/* No faster than RATE until there is a file ENOUGH. */
static void slow(double rate, const char *enough)
{
	static unsigned char in[BUFFER_BYTES];
	size_t most = rate / 50 < sizeof in ? (size_t)(rate / 50) : sizeof in;
	ssize_t n;

	while ((n = read(0, in, most)) > 0) {
		const bool over = enough && !access(enough, F_OK);
		double s = over ? 0 : (double)n / rate;
		struct timespec pause = { (time_t)s,
					  (long)((s - (double)(time_t)s) * 1e9) };

		write_all(in, (size_t)n);
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "", *own = getenv("RANK");
	static struct flow f;

	if ((argc == 3 || argc == 4) && !strcmp(verb, "slow")) {
		slow(strtod(argv[2], NULL), argv[3]);
	} else if (argc == 5 && !strcmp(verb, "write")) {
		flow_begin(&f, argv[2], argv[3], argv[4],
			   own ? strtoul(own, NULL, 10) : 0);
		flow_write(&f);
	} else if (argc == 6 && !strcmp(verb, "same")) {
		unsigned long rank = strtoul(argv[5], NULL, 10);

		flow_begin(&f, argv[2], argv[3], argv[4], rank);
		same(&f, rank);
	} else if (argc == 6 && !strcmp(verb, "check")) {
		unsigned long np = strtoul(argv[5], NULL, 10);
		struct flow **all = calloc(np, sizeof *all);

		for (unsigned long i = 0; i < np && all; i++) {
			all[i] = malloc(sizeof **all);
			if (all[i])
				flow_begin(all[i], argv[2], argv[3], argv[4], i);
		}
		check(all, np);
		for (unsigned long i = 0; i < np && all; i++)
			free(all[i]);
		free(all);
	} else {
		die("see tests/helpers/flow.c");
	}
	return 0;
}
