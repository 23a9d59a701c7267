/* berth_bench.c - times collectives of libberth, in the columns of nccl-tests.
 *
 *     runner -np 2 berth_bench allreduce -b 8 -e 128M
 *     runner -np 2 berth_bench --tune
 *
 * size is that of the whole array (of allgather, alltoall and reducescatter: all ranks'
 * parts), count its elements.  time is that of one operation on the slowest rank: the
 * median of nine batches.  algbw is size / time; busbw is what each rank has to send at
 * the least, by that time, so that it can be compared with a link whatever the number
 * of ranks.  #wrong counts elements that differ from the result, before and after. */
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <berth.h>

enum { BATCHES = 9 };

static struct {
	enum berth_kind kind;
	berth_type type;
	berth_op op;
	size_t from, to, factor;
	double batch_s;
	bool in_place, heap, tune;
	int n, me;
	unsigned char *in, *out;
} b = { .kind = BERTH_ALLREDUCE,
	.type = BERTH_F32,
	.from = 8,
	.to = 32 << 20,
	.factor = 2,
	.batch_s = 0.005 };

static const char *const kinds[] = {
	[BERTH_ALLREDUCE] = "allreduce",
	[BERTH_REDUCE] = "reduce",
	[BERTH_REDUCESCATTER] = "reducescatter",
	[BERTH_ALLGATHER] = "allgather",
	[BERTH_BROADCAST] = "broadcast",
	[BERTH_ALLTOALL] = "alltoall",
	[BERTH_BARRIER] = "barrier",
};

static const struct {
	const char *name;
	berth_type type;
	size_t bytes;
} types[] = {
	{ "u8", BERTH_U8, 1 },   { "i8", BERTH_I8, 1 },     { "u16", BERTH_U16, 2 },
	{ "i16", BERTH_I16, 2 }, { "u32", BERTH_U32, 4 },   { "i32", BERTH_I32, 4 },
	{ "u64", BERTH_U64, 8 }, { "i64", BERTH_I64, 8 },   { "f16", BERTH_F16, 2 },
	{ "f32", BERTH_F32, 4 }, { "bf16", BERTH_BF16, 2 }, { "f64", BERTH_F64, 8 },
};

static const struct {
	const char *name;
	berth_op op;
} ops[] = { { "sum", BERTH_SUM }, { "min", BERTH_MIN }, { "max", BERTH_MAX } };

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void need(berth_result rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "berth_bench: %s: %s\n", what, berth_last_error()->text);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- elements: small whole numbers, exact in every type ---- */

static size_t type_at(void)
{
	size_t i = 0;

	while (types[i].type != b.type)
		i++;
	return i;
}

/* A float of few bits as one of 16: f16 or bf16. */
static uint16_t half(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	if (b.type == BERTH_BF16)
		return (uint16_t)(bits >> 16);
	return x == 0 ? 0
		      : (uint16_t)((((bits >> 23) - 112) << 10) | (bits >> 13 & 1023));
}

static void put(void *array, size_t i, unsigned value)
{
	switch (b.type) {
	case BERTH_F16:
	case BERTH_BF16:
		((uint16_t *)array)[i] = half((float)value);
		break;
	case BERTH_F32:
		((float *)array)[i] = (float)value;
		break;
	case BERTH_F64:
		((double *)array)[i] = value;
		break;
	default: {
		uint64_t whole = value;

		/* of the low bytes; this machine's are first */
		memcpy((char *)array + i * types[type_at()].bytes, &whole,
		       types[type_at()].bytes);
	}
	}
}

/* What rank R gives at element I of its array. */
static unsigned given(int r, uint64_t i, unsigned seed)
{
	return (unsigned)((i * 3 + (unsigned)r * 5 + seed) % 4);
}

static unsigned reduced(uint64_t i, unsigned seed)
{
	unsigned x = given(0, i, seed);

	for (int r = 1; r < b.n; r++) {
		unsigned y = given(r, i, seed);

		x = b.op == BERTH_SUM                     ? x + y
		    : (b.op == BERTH_MIN ? y < x : y > x) ? y
							  : x;
	}
	return x;
}

/* ---- one operation ---- */

/* Elements of this rank's input, of its output and, of a whole of N, of a part. */
struct shape {
	uint64_t in, out, part;
};

static struct shape shape_of(uint64_t n)
{
	uint64_t part = n / (uint64_t)b.n;

	switch (b.kind) {
	case BERTH_ALLGATHER:
		return (struct shape){ part, n, part };
	case BERTH_REDUCESCATTER:
		return (struct shape){ n, part, part };
	default:
		return (struct shape){ n, n, part };
	}
}

/* In place, allgather's input is where it comes to in the output. */
static unsigned char *input(const struct shape *s)
{
	size_t offset = b.kind == BERTH_ALLGATHER
				? (size_t)b.me * s->part * types[type_at()].bytes
				: 0;

	return b.in_place ? b.out + offset : b.in;
}

static void run_one(const struct berth_desc *d)
{
	need(berth_run(d, -1, NULL), kinds[d->kind]);
}

static void run(const struct shape *s)
{
	struct berth_desc d = BERTH_DESC(.kind = b.kind, .type = b.type, .op = b.op,
					 .in = input(s), .out = b.out, .count = s->in);

	run_one(&d);
}

static unsigned expected(const struct shape *s, uint64_t i, unsigned seed)
{
	uint64_t me = (uint64_t)b.me;

	switch (b.kind) {
	case BERTH_BROADCAST:
		return given(0, i, seed);
	case BERTH_ALLGATHER:
		return given((int)(i / s->part), i % s->part, seed);
	case BERTH_ALLTOALL:
		return given((int)(i / s->part), me * s->part + i % s->part, seed);
	case BERTH_REDUCESCATTER:
		return reduced(me * s->part + i, seed);
	default:
		return reduced(i, seed);
	}
}

/* Elements of the result that are wrong, on all ranks. */
static uint64_t verify(const struct shape *s, unsigned seed)
{
	size_t bytes = types[type_at()].bytes;
	uint64_t wrong = 0;
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_U64,
					 .in = &wrong, .out = &wrong, .count = 1);

	memset(b.out, 255, s->out * bytes);
	for (uint64_t i = 0; i < s->in; i++)
		put(input(s), i, given(b.me, i, seed));
	run(s);
	for (uint64_t i = 0; i < s->out; i++) {
		unsigned char want[8];

		put(want, 0, expected(s, i, seed));
		wrong += memcmp(b.out + i * bytes, want, bytes) != 0;
	}
	if (b.kind == BERTH_REDUCE && b.me)
		wrong = 0;
	run_one(&d);
	return wrong;
}

/* ---- times ---- */

/* Of the slowest rank, which all get. */
static double time_calls(const struct shape *s, long calls)
{
	double seconds;
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64, .op = BERTH_MAX,
			   .in = &seconds, .out = &seconds, .count = 1);
	struct berth_desc all = BERTH_DESC(.kind = BERTH_BARRIER);

	run_one(&all);
	seconds = now();
	for (long i = 0; i < calls; i++)
		run(s);
	seconds = now() - seconds;
	run_one(&d);
	return seconds;
}

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, c = *(const double *)y;

	return (a > c) - (a < c);
}

static double median(const struct shape *s)
{
	double t[BATCHES], seconds;
	long calls = 1;

	while ((seconds = time_calls(s, calls)) < b.batch_s / 4 && calls < 1000000)
		calls *= 4;
	calls = (long)(b.batch_s / seconds * (double)calls) + 1;
	for (int i = 0; i < BATCHES; i++)
		t[i] = time_calls(s, calls) / (double)calls;
	qsort(t, BATCHES, sizeof *t, ascending);
	return t[BATCHES / 2];
}

/* What a rank has to send, as a part of the whole array. */
static double sent(void)
{
	double others = (double)(b.n - 1) / b.n;

	return b.kind == BERTH_ALLREDUCE                             ? 2 * others
	       : b.kind == BERTH_REDUCE || b.kind == BERTH_BROADCAST ? 1
								     : others;
}

static const char *op_name(void)
{
	if (b.kind == BERTH_ALLGATHER || b.kind == BERTH_BROADCAST ||
	    b.kind == BERTH_ALLTOALL)
		return "-";
	return ops[b.op == BERTH_SUM ? 0 : b.op == BERTH_MIN ? 1 : 2].name;
}

static void row(uint64_t n)
{
	size_t bytes = types[type_at()].bytes;
	struct shape s = shape_of(n);
	uint64_t wrong = verify(&s, 1);
	double t = median(&s), gbs = (double)(n * bytes) / t / 1e9;

	wrong += verify(&s, 2);
	if (!b.me) {
		printf("%12zu %12llu %6s %6s %10.2f %8.2f %8.2f %7llu\n",
		       (size_t)n * bytes, (unsigned long long)n, types[type_at()].name,
		       op_name(), t * 1e6, gbs, gbs * sent(),
		       (unsigned long long)wrong);
		fflush(stdout);
	}
	if (wrong)
		exit(1);
}

/* ---- what was asked for ---- */

static void usage(void)
{
	printf("usage: berth_bench "
	       "[allreduce|reduce|reducescatter|allgather|broadcast|alltoall]\n"
	       "  -b SIZE   the smallest, in bytes; K, M, G          8\n"
	       "  -e SIZE   the largest                              32M\n"
	       "  -f N      each size N times the last               2\n"
	       "  -t TYPE   u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64\n"
	       "  -o OP     sum min max\n"
	       "  -m MS     of a batch, of which there are nine      5\n"
	       "  -i        in place\n"
	       "  -s        arrays of berth_alloc()\n"
	       "  --tune    how an allreduce of which size is done\n");
}

__attribute__((format(printf, 1, 2), noreturn)) static void refuse(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("berth_bench: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputs("\n", stderr);
	va_end(ap);
	exit(2);
}

static size_t size_of(int option, const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	const char *unit = *end ? strchr("KMG", *end) : NULL;

	if (*text < '0' || *text > '9' || (*end && (!unit || end[1])) || !n || n >> 32)
		refuse("-%c '%s' is no number above 0, such as 8, 64K or 1G", option,
		       text);
	return (size_t)(n << (unit ? 10 * (unit - "KMG" + 1) : 0));
}

static void type_named(const char *name)
{
	for (size_t i = 0; i < COUNT(types); i++)
		if (!strcmp(types[i].name, name)) {
			b.type = types[i].type;
			return;
		}
	refuse("-t '%s' is no type of those that --help lists", name);
}

static void op_named(const char *name)
{
	for (size_t i = 0; i < COUNT(ops); i++)
		if (!strcmp(ops[i].name, name)) {
			b.op = ops[i].op;
			return;
		}
	refuse("-o '%s' is neither sum nor min nor max", name);
}

static void kind_named(const char *name)
{
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (i != BERTH_BARRIER && kinds[i] && !strcmp(kinds[i], name)) {
			b.kind = (berth_kind)i;
			return;
		}
	refuse("'%s' is no operation of those that --help lists", name);
}

static void read_options(int argc, char **argv)
{
	static const struct option words[] = { { "tune", no_argument, NULL, 'T' },
					       { "help", no_argument, NULL, 'h' },
					       { 0 } };

	for (int o;
	     (o = getopt_long(argc, argv, "b:e:f:t:o:m:ish", words, NULL)) != -1;)
		switch (o) {
		case 'b':
			b.from = size_of(o, optarg);
			break;
		case 'e':
			b.to = size_of(o, optarg);
			break;
		case 'f':
			b.factor = size_of(o, optarg);
			break;
		case 't':
			type_named(optarg);
			break;
		case 'o':
			op_named(optarg);
			break;
		case 'm':
			b.batch_s = (double)size_of(o, optarg) / 1000;
			break;
		case 'i':
			b.in_place = true;
			break;
		case 's':
			b.heap = true;
			break;
		case 'T':
			b.tune = true;
			break;
		case 'h':
			usage();
			exit(0);
		default:
			exit(2); /* getopt has said why */
		}
	if (optind < argc)
		kind_named(argv[optind++]);
	if (optind < argc)
		refuse("'%s' is one word too many", argv[optind]);
	if (b.factor < 2)
		refuse("-f 1 makes no size larger");
	if (b.to < b.from)
		refuse("-e %zu is less than -b %zu", b.to, b.from);
	if (b.in_place && (b.kind == BERTH_REDUCESCATTER || b.kind == BERTH_ALLTOALL))
		refuse("-i: %s can't be in place", kinds[b.kind]);
}

static int local_size(void)
{
	struct berth_world w = { .size = sizeof w };

	need(berth_world(&w), "berth_world");
	return w.local_size;
}

static unsigned char *array(void)
{
	unsigned char *p =
		b.heap ? berth_alloc(b.to + 64, BERTH_HOST, 0) : calloc(1, b.to + 64);

	if (!p) {
		fprintf(stderr, "berth_bench: no memory for %zu bytes\n", b.to);
		exit(1);
	}
	return p;
}

/* After some operations, in which the library measures. */
static void tune(void)
{
	char text[8192];
	size_t bytes = types[type_at()].bytes;

	for (size_t n = 8; n <= b.to; n *= 64) {
		struct shape s = shape_of(n / bytes);

		for (int i = 0; i < 5; i++)
			run(&s);
	}
	if (!berth_algorithms(text, sizeof text))
		snprintf(text, sizeof text, "one rank\n");
	if (!b.me)
		fputs(text, stdout);
}

int main(int argc, char **argv)
{
	read_options(argc, argv);
	need(berth_init(NULL), "berth_init");
	b.n = berth_size();
	b.me = berth_rank();
	b.in = array();
	b.out = array();
	if (b.tune) {
		tune();
	} else {
		size_t unit = types[type_at()].bytes * (size_t)b.n;

		if (!b.me)
			printf("# %s of %d ranks, %d on this host, libberth %s%s%s\n"
			       "#%11s %12s %6s %6s %10s %8s %8s %7s\n",
			       kinds[b.kind], b.n, local_size(), berth_version(),
			       b.in_place ? ", in place" : "",
			       b.heap ? ", berth_alloc()" : "", "size", "count", "type",
			       "redop", "time us", "algbw", "busbw", "#wrong");
		for (size_t size = b.from; size <= b.to; size *= b.factor) {
			size_t whole = b.kind == BERTH_ALLREDUCE ||
						       b.kind == BERTH_REDUCE ||
						       b.kind == BERTH_BROADCAST
					       ? size
					       : size / unit * unit;

			if (whole >= types[type_at()].bytes)
				row(whole / types[type_at()].bytes);
		}
	}
	need(berth_shutdown(), "berth_shutdown");
	return 0;
}
