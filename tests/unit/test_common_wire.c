/* wire.h: every message of wire.def there and back, whole, cut short, and spoiled.
 * takes_s: 2 */
#include <check.h>
#include <time.h>

#include "common/wire.h"

static uint32_t seed;

static uint32_t roll(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* ---- contents at random; what they need lives until arena_free() ---- */

static void *arena[65536];
static size_t arena_n;

static void *keep(void *p)
{
	ck_assert_uint_lt(arena_n, sizeof arena / sizeof *arena);
	return arena[arena_n++] = p;
}

static void arena_free(void)
{
	while (arena_n)
		free(arena[--arena_n]);
}

/* How large things are: 0 empty, 1 small, 2 large. */
static int scale;

static size_t any_size(void)
{
	return scale == 0 ? 0 : scale == 1 ? roll(20) : 1000 + roll(1000);
}

static void any_u32(wire_u32 *v)
{
	*v = scale == 0 ? 0 : roll(4) ? roll(1000) : UINT32_MAX - roll(3);
}

static void any_u64(wire_u64 *v)
{
	*v = scale == 0 ? 0 : (uint64_t)roll(1 << 24) << 40 | roll(1 << 24);
}

static void any_text(wire_str *v, size_t n)
{
	char *s = keep(xmalloc(n + 1));

	for (size_t i = 0; i < n; i++)
		s[i] = (char)(1 + roll(255));
	s[n] = '\0';
	*v = s;
}

static void any_str(wire_str *v)
{
	any_text(v, any_size());
}

static void any_bytes(wire_bytes *v)
{
	size_t n = scale == 2 ? WIRE_DATA_MAX : any_size();
	unsigned char *p = keep(xmalloc(n));

	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)roll(256);
	*v = (wire_bytes){ p, n };
}

static void any_strv(wire_strv *v)
{
	size_t n = any_size();
	const char **list = keep(xcalloc(n, sizeof *list));

	for (size_t i = 0; i < n; i++)
		any_text(&list[i], roll(30));
	*v = (wire_strv){ list, n };
}

static void any_u32v(wire_u32v *v)
{
	size_t n = any_size();
	uint32_t *list = keep(xcalloc(n, sizeof *list));

	for (size_t i = 0; i < n; i++)
		any_u32(&list[i]);
	*v = (wire_u32v){ list, n };
}

/* ---- equal? ---- */

static bool same_u32(wire_u32 a, wire_u32 b)
{
	return a == b;
}

static bool same_u64(wire_u64 a, wire_u64 b)
{
	return a == b;
}

static bool same_str(wire_str a, wire_str b)
{
	return !strcmp(a, b);
}

static bool same_bytes(wire_bytes a, wire_bytes b)
{
	return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n));
}

static bool same_strv(wire_strv a, wire_strv b)
{
	bool same = a.n == b.n;

	for (size_t i = 0; same && i < a.n; i++)
		same = !strcmp(a.v[i], b.v[i]);
	return same;
}

static bool same_u32v(wire_u32v a, wire_u32v b)
{
	return a.n == b.n && (!a.n || !memcmp(a.v, b.v, a.n * sizeof *a.v));
}

/* ---- a row per message ---- */

/* The next frame, from the side that sends such. */
static long next(struct wire_frame *f, const void *p, size_t left, struct err *e)
{
	static const char sides[256] = {
#define MSG(name, number, most, text, fields) [number] = text[0],
#include "common/wire.def"
#undef MSG
	};
	unsigned char type = left < WIRE_HEAD_BYTES ? 0 : ((const unsigned char *)p)[4];
	const char side = sides[type];

	return wire_next_from(side == WIRE_DOWN              ? WIRE_LAUNCHER
			      : side && !strchr("bue", side) ? (enum wire_side)side
							     : WIRE_AGENT,
			      f, p, left, e);
}

/* Append a frame of random contents. */
#define MSG(name, number, most, text, fields)                                          \
	static void make_##name(struct buf *out)                                       \
	{                                                                              \
		struct wire_##name one, *m = &one;                                     \
		fields wire_pack_##name(out, m);                                       \
	}
#define F(type, name) any_##type(&m->name);
#include "common/wire.def"
#undef F
#undef MSG

#define MSG(name, number, most, text, fields)                                          \
	static bool equal_##name(const struct wire_##name *a,                          \
				 const struct wire_##name *b)                          \
	{                                                                              \
		(void)a, (void)b;                                                      \
		return fields true;                                                    \
	}
#define F(type, name) same_##type(a->name, b->name) &&
#include "common/wire.def"
#undef F
#undef MSG

#define MSG(name, number, most, text, fields)                                          \
	static bool there_and_back_##name(void)                                        \
	{                                                                              \
		struct wire_##name one, *m = &one, two;                                \
		struct wire_frame f;                                                   \
		struct buf b = { 0 };                                                  \
		bool same;                                                             \
                                                                                       \
		fields wire_pack_##name(&b, m);                                        \
		if (next(&f, buf_head(&b), b.len, NULL) != (long)b.len)                \
			return false;                                                  \
		same = f.type == (number) &&                                           \
		       !wire_unpack_##name(&two, f.payload, f.n, NULL) &&              \
		       equal_##name(m, &two);                                          \
		wire_free_##name(&two);                                                \
		buf_free(&b);                                                          \
		return same;                                                           \
	}
#define F(type, name) any_##type(&m->name);
#include "common/wire.def"
#undef F
#undef MSG

/* 0 when the N bytes at P are such a message and packing it again gives the same bytes,
 * 1 when they are another, -1 when they are none. */
#define MSG(name, number, most, text, fields)                                          \
	static int again_##name(const void *p, size_t n, struct err *e)                \
	{                                                                              \
		struct wire_##name m;                                                  \
		struct buf b = { 0 };                                                  \
		int rc;                                                                \
                                                                                       \
		if (wire_unpack_##name(&m, p, n, e))                                   \
			return -1;                                                     \
		wire_pack_##name(&b, &m);                                              \
		rc = b.len != n + WIRE_HEAD_BYTES ||                                   \
		     memcmp(buf_head(&b) + WIRE_HEAD_BYTES, p, n);                     \
		wire_free_##name(&m);                                                  \
		buf_free(&b);                                                          \
		return rc;                                                             \
	}
#include "common/wire.def"
#undef MSG

static const struct {
	const char *name;
	unsigned number;
	size_t most;
	void (*make)(struct buf *out);
	bool (*there_and_back)(void);
	int (*again)(const void *p, size_t n, struct err *e);
} rows[] = {
#define MSG(name, number, most, text, fields)                                          \
	{ #name, number, most, make_##name, there_and_back_##name, again_##name },
#include "common/wire.def"
#undef MSG
};
#define ROWS ((int)(sizeof rows / sizeof *rows))

START_TEST(there_and_back)
{
	seed = 1;
	for (scale = 0; scale <= 2; scale++)
		for (int i = 0; i < (scale == 2 ? 3 : 50); i++) {
			/* a large text is more than some rows allow */
			bool fits = scale < 2 || rows[_i].most > 16384;

			ck_assert_msg(!fits || rows[_i].there_and_back(),
				      "%s, scale %d", rows[_i].name, scale);
			arena_free();
		}
}
END_TEST

/* A frame of row I with its head, contents of the scale set. */
static struct buf frame(int i)
{
	struct buf b = { 0 };

	rows[i].make(&b);
	return b;
}

/* The N bytes at P in a block that ends where they end. */
static unsigned char *tight(const void *p, size_t n)
{
	unsigned char *copy = xmalloc(n);

	memcpy(copy, p, n);
	return copy;
}

START_TEST(cut_short)
{
	struct wire_frame f;
	struct err e;

	seed = 2;
	for (scale = 0; scale <= 1; scale++) {
		struct buf b = frame(_i);
		const unsigned char *p = buf_head(&b);

		for (size_t n = 0; n < b.len; n++) {
			unsigned char *part = tight(p, n);

			e = (struct err){ 0 };
			ck_assert_int_eq(next(&f, part, n, &e), 0);
			ck_assert_int_eq(e.id, ERR_NONE);
			free(part);
		}
		for (size_t n = 0; n + WIRE_HEAD_BYTES < b.len; n++) {
			unsigned char *part = tight(p + WIRE_HEAD_BYTES, n);

			e = (struct err){ 0 };
			ck_assert_int_eq(rows[_i].again(part, n, &e), -1);
			ck_assert_int_eq(e.id, E_WIRE);
			free(part);
		}
		buf_free(&b);
		arena_free();
	}
}
END_TEST

START_TEST(too_long)
{
	struct err e = { 0 };
	struct buf b;
	char *want =
		xasprintf("the agent's stream is not valid: malformed '%s' message",
			  rows[_i].name);

	scale = 1;
	b = frame(_i);
	buf_add(&b, "", 1);
	ck_assert_int_eq(rows[_i].again(buf_head(&b) + WIRE_HEAD_BYTES,
					b.len - WIRE_HEAD_BYTES, &e),
			 -1);
	ck_assert_str_eq(e.text, want);
	free(want);
	buf_free(&b);
	arena_free();
}
END_TEST

/* Bytes changed anywhere are refused, or mean exactly what they say. */
START_TEST(spoiled)
{
	static const unsigned char extremes[] = { 0, 1, 0x7f, 0x80, 0xff };
	struct buf b;
	size_t n;

	seed = 3;
	scale = 1;
	b = frame(_i);
	n = b.len - WIRE_HEAD_BYTES;
	for (int i = 0; i < 3000; i++) {
		unsigned char *p = tight(buf_head(&b) + WIRE_HEAD_BYTES, n);

		for (uint32_t k = roll(4); n && k < 4; k++)
			p[roll((uint32_t)n)] =
				roll(2) ? extremes[roll(5)] : (unsigned char)roll(256);
		ck_assert_int_le(rows[_i].again(p, n, NULL), 0);
		free(p);
	}
	buf_free(&b);
	arena_free();
}
END_TEST

/* ---- limits ---- */

static void head(unsigned char *p, uint32_t n, unsigned type)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(n >> 8 * i);
	p[4] = (unsigned char)type;
}

START_TEST(limit_of_a_row)
{
	unsigned char p[WIRE_HEAD_BYTES];
	struct wire_frame f = { 0 };
	struct err e = { 0 };

	head(p, (uint32_t)rows[_i].most, rows[_i].number);
	ck_assert_int_eq(next(&f, p, sizeof p, &e), 0); /* known by its head alone */
	head(p, (uint32_t)rows[_i].most + 1, rows[_i].number);
	ck_assert_int_eq(next(&f, p, sizeof p, &e), -1);
	ck_assert_str_eq(
		e.text,
		"the agent's stream is not valid: message larger than its limit");
	head(p, UINT32_MAX, rows[_i].number);
	ck_assert_int_eq(next(&f, p, sizeof p, &e), -1);
	ck_assert_uint_eq(f.n, 0);
}
END_TEST

START_TEST(unknown_types)
{
	unsigned char p[WIRE_HEAD_BYTES];
	struct wire_frame f;

	for (unsigned type = 0; type < 256; type++) {
		struct err e = { 0 };
		bool known = false;

		for (int i = 0; i < ROWS; i++)
			known |= rows[i].number == type;
		head(p, 4, type);
		ck_assert_int_eq(next(&f, p, sizeof p, &e), known ? 0 : -1);
		ck_assert_int_eq(e.id, known ? ERR_NONE : E_WIRE);
		ck_assert_int_eq(!strcmp(wire_name(type), "?"), !known);
	}
	ck_assert_str_eq(wire_name(UINT32_MAX), "?");
}
END_TEST

/* Where shared_with's count lies in a berth frame whose strings are all empty. */
enum { BERTH_SHARED_WITH = WIRE_HEAD_BYTES + 4 + 4 + 5 + 4 + 5 + 5 + 5 };

static void put_u32(struct buf *b, size_t at, uint32_t n)
{
	for (size_t i = 0; i < 4; i++)
		buf_head(b)[at + i] = (unsigned char)(n >> 8 * i);
}

/* Known from its head alone: nothing of a large one is kept. */
START_TEST(the_wrong_side)
{
	static const struct {
		unsigned char type;
		bool agent, launcher, pmix_host, pmix_server;
	} cases[] = { { WIRE_job, false, true, false, false },
		      { WIRE_output, true, false, false, false },
		      { WIRE_credit, true, true, false, false },
		      { WIRE_modex_data, true, true, true, true },
		      { WIRE_pmix_job, false, false, true, false },
		      { WIRE_pmix_log, false, false, false, true },
		      { WIRE_publish, true, false, false, true },
		      { WIRE_found, false, true, true, false } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const unsigned char head[WIRE_HEAD_BYTES] = { 1, 0, 0, 0,
							      cases[i].type };
		struct wire_frame f;
		struct err e;

		ck_assert_int_eq(wire_next_from(WIRE_AGENT, &f, head, sizeof head, &e),
				 cases[i].agent ? 0 : -1);
		ck_assert_int_eq(
			wire_next_from(WIRE_LAUNCHER, &f, head, sizeof head, &e),
			cases[i].launcher ? 0 : -1);
		ck_assert_int_eq(
			wire_next_from(WIRE_PMIX_HOST, &f, head, sizeof head, &e),
			cases[i].pmix_host ? 0 : -1);
		ck_assert_int_eq(
			wire_next_from(WIRE_PMIX_SERVER, &f, head, sizeof head, &e),
			cases[i].pmix_server ? 0 : -1);
	}
}
END_TEST

/* Counts of 4 billion items in a payload of a few bytes: refused at once.  Believing
 * one would take 16 GiB, and minutes. */
START_TEST(counts_are_checked_first)
{
	static const uint32_t counts[] = { UINT32_MAX, 0x7fffffff, 0x40000000, 100 };

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		clock_t begin = clock(); /* of this process: its turns may come late */
		struct wire_app app;
		struct wire_berth berth;
		struct wire_output output;
		struct buf b = { 0 };

		buf_u32(&b, 0); /* index, then argv */
		buf_u32(&b, counts[i]);
		buf_add(&b, "\1\0\0\0a", 6);
		ck_assert_int_eq(wire_unpack_app(&app, buf_head(&b), b.len, NULL), -1);
		ck_assert_ptr_null(app.argv.v);
		buf_free(&b);
		wire_pack_berth(&b, &(struct wire_berth){ .epoch = 1 });
		put_u32(&b, BERTH_SHARED_WITH, counts[i]);
		ck_assert_int_eq(wire_unpack_berth(&berth,
						   buf_head(&b) + WIRE_HEAD_BYTES,
						   b.len - WIRE_HEAD_BYTES, NULL),
				 -1);
		ck_assert_ptr_null(berth.shared_with.v);
		buf_free(&b);
		for (int k = 0; k < 3; k++)
			buf_u32(&b, 1);
		buf_u32(&b, counts[i]);
		buf_add(&b, "abc", 3);
		ck_assert_int_eq(wire_unpack_output(&output, buf_head(&b), b.len, NULL),
				 -1);
		ck_assert(!output.data.p && !output.data.n);
		buf_free(&b);
		ck_assert_int_lt(clock() - begin, CLOCKS_PER_SEC);
	}
}
END_TEST

START_TEST(strings_are_strings)
{
	static const struct {
		unsigned char bytes[12];
		size_t n;
		int rc;
	} texts[] = {
		{ { 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 9, 0 },
		{ { 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b', 0 }, 11, 0 },
		{ { 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b', 'c' }, 11, -1 }, /* no end */
		{ { 0, 0, 0, 0, 2, 0, 0, 0, 'a', 0, 0 }, 11, -1 },     /* ends inside */
		{ { 0, 0, 0, 0, 1, 0, 0, 0, 'a', 0, 0 }, 11, -1 },
		{ { 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'a', 'b', 0 }, 11, -1 },
		{ { 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b' }, 10, -1 },
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct buf b = { 0 };
		struct wire_started m;

		buf_u32(&b, 1); /* epoch, rank; pid and cpus come from the case */
		buf_u32(&b, 1);
		buf_add(&b, texts[i].bytes, texts[i].n);
		ck_assert_msg(wire_unpack_started(&m, buf_head(&b), b.len, NULL) ==
				      texts[i].rc,
			      "case %zu", i);
		buf_free(&b);
	}
}
END_TEST

START_TEST(no_string_is_an_empty_one)
{
	struct buf b = { 0 };
	struct wire_cleared m = { .epoch = 1, .unkillable = 2 }, got;

	wire_pack_cleared(&b, &m);
	ck_assert_int_eq(wire_unpack_cleared(&got, buf_head(&b) + WIRE_HEAD_BYTES,
					     b.len - WIRE_HEAD_BYTES, NULL),
			 0);
	ck_assert_str_eq(got.which, "");
	buf_free(&b);
}
END_TEST

START_TEST(frees_nothing)
{
#define MSG(name, number, most, text, fields) wire_free_##name(&(struct wire_##name){});
#include "common/wire.def"
#undef MSG
}
END_TEST

/* ---- a stream ---- */

/* Frames in a row, cut into pieces of every size, come out one by one. */
START_TEST(stream_in_pieces)
{
	struct buf all = { 0 }, in = { 0 };
	unsigned types[64], n = 0, got = 0;
	size_t step = (size_t)_i + 1;

	seed = (uint32_t)_i;
	scale = 1;
	while (n < 64) {
		int row = (int)roll((uint32_t)ROWS);

		rows[row].make(&all);
		types[n++] = rows[row].number;
	}
	for (size_t at = 0; at < all.len; at += step) {
		struct wire_frame f;
		long used;

		buf_add(&in, buf_head(&all) + at,
			at + step < all.len ? step : all.len - at);
		while ((used = next(&f, buf_head(&in), in.len, NULL)) > 0) {
			ck_assert_uint_eq(f.type, types[got++]);
			ck_assert_uint_eq(f.n + WIRE_HEAD_BYTES, (size_t)used);
			buf_drop(&in, (size_t)used);
		}
		ck_assert_int_eq(used, 0);
	}
	ck_assert_uint_eq(got, n);
	ck_assert_uint_eq(in.len, 0);
	buf_free(&all);
	buf_free(&in);
	arena_free();
}
END_TEST

START_TEST(magic)
{
	static const struct {
		const char *bytes;
		size_t n;
		long at;
	} v[] = {
		{ "", 0, -1 },
		{ "\0berth1\n", 8, 0 },
		{ "\0berth1", 7, -1 },
		{ "motd\n\0berth1\nrest", 17, 5 },
		{ "\0\0\0berth1\n", 10, 2 },
		{ "\0berth\0berth1\n", 14, 6 },
		{ "\0berth1\n\0berth1\n", 16, 0 },
		{ "berth1\n", 7, -1 },
		{ "\0berth2\n", 8, -1 },
	};

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		unsigned char *p = tight(v[i].bytes, v[i].n);

		ck_assert_msg(wire_find_magic(p, v[i].n) == v[i].at, "case %zu", i);
		free(p);
	}
	ck_assert_uint_eq(sizeof WIRE_MAGIC - 1, WIRE_MAGIC_BYTES);
}
END_TEST

START_TEST(output_head)
{
	static const size_t sizes[] = { 0, 1, 255, 256, WIRE_DATA_MAX };
	static unsigned char data[WIRE_DATA_MAX];

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct wire_output m = { 7, 0x01020304, 2, { data, sizes[i] } };
		unsigned char got[WIRE_OUTPUT_HEAD_BYTES];
		struct buf b = { 0 };

		wire_pack_output(&b, &m);
		wire_output_head(got, 7, 0x01020304, 2, (uint32_t)sizes[i]);
		ck_assert_uint_eq(b.len, sizeof got + sizes[i]);
		ck_assert_int_eq(memcmp(buf_head(&b), got, sizeof got), 0);
		buf_free(&b);
	}
}
END_TEST

/* The largest frames that the programs make are within their rows. */
START_TEST(data_fits)
{
	static unsigned char data[WIRE_DATA_MAX];
	struct wire_output out = { 1, 1, 1, { data, sizeof data } };
	struct wire_input in = { 1, { data, sizeof data } };
	struct wire_frame f;
	struct buf b = { 0 };

	wire_pack_output(&b, &out);
	ck_assert_int_eq(next(&f, buf_head(&b), b.len, NULL), (long)b.len);
	buf_free(&b);
	wire_pack_input(&b, &in);
	ck_assert_int_eq(next(&f, buf_head(&b), b.len, NULL), (long)b.len);
	buf_free(&b);
}
END_TEST

/* ---- print ---- */

static char *printed(struct buf *b)
{
	struct wire_frame f;
	struct str s = { 0 };

	ck_assert_int_eq(next(&f, buf_head(b), b->len, NULL), (long)b->len);
	wire_print(&s, &f);
	buf_free(b);
	return keep(str_take(&s));
}

START_TEST(print)
{
	static const char *const env[] = { "A=secret", "B=hidden" };
	static const uint32_t ranks[] = { 3, 5 };
	uint32_t many[65] = { 0 };
	struct buf b = { 0 };

	wire_pack_exited(&b,
			 &(struct wire_exited){ 1, 3, 77, 256, 5, 0, 0, 7, 8, "", "" });
	ck_assert_str_eq(printed(&b), "exited epoch=1 rank=3 pid=77 status=256 "
				      "began_ns=5 error_printed_ns=0 oom=0 "
				      "cpu_us=7 peak_bytes=8 text='' hint=''");
	wire_pack_output(&b, &(struct wire_output){ 1, 2, 1, { "secret", 6 } });
	ck_assert_str_eq(printed(&b), "output epoch=1 rank=2 stream=1 data=(6 bytes)");
	wire_pack_app(&b, &(struct wire_app){
				  0, { env, 1 }, { env, 2 }, "/w", { env, 1 }, "w" });
	ck_assert_str_eq(printed(&b), "app index=0 argv=(1 strings) env=(2 strings) "
				      "wdir='/w' warm=(1 strings) warm_text='w'");
	wire_pack_job(&b,
		      &(struct wire_job){ .ranks = { ranks, 2 }, .env = { env, 2 } });
	ck_assert_ptr_nonnull(strstr(printed(&b), " ranks=[3,5] apps=[] "));
	wire_pack_job(&b,
		      &(struct wire_job){ .ranks = { many, 65 }, .env = { env, 2 } });
	ck_assert_ptr_nonnull(strstr(printed(&b), ",0,...] apps=[] "));
	arena_free();
}
END_TEST

START_TEST(print_is_one_short_line)
{
	seed = 5;
	for (scale = 0; scale <= 2; scale++) {
		struct wire_frame f;
		struct str s = { 0 };
		struct buf b = frame(_i);

		f = (struct wire_frame){ rows[_i].number,
					 buf_head(&b) + WIRE_HEAD_BYTES,
					 b.len - WIRE_HEAD_BYTES };
		wire_print(&s, &f);
		ck_assert(!strncmp(str_text(&s), rows[_i].name, strlen(rows[_i].name)));
		ck_assert_ptr_null(strchr(str_text(&s), '\n'));
		ck_assert_ptr_null(strchr(str_text(&s), '\x1b'));
		ck_assert_uint_lt(s.len, 8192);
		str_free(&s);
		buf_free(&b);
		arena_free();
	}
}
END_TEST

START_TEST(print_what_is_broken)
{
	struct wire_frame f = { rows[_i].number, (const unsigned char *)"\1", 1 };
	struct str s = { 0 };
	char *want = xasprintf("%s (malformed)", rows[_i].name);

	wire_print(&s, &f);
	ck_assert_str_eq(str_text(&s), want);
	str_free(&s);
	f.type = 99;
	wire_print(&s, &f);
	ck_assert_str_eq(str_text(&s), "?");
	str_free(&s);
	free(want);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wire");
	TCase *c = tcase_create("wire");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, there_and_back, 0, ROWS);
	tcase_add_loop_test(c, cut_short, 0, ROWS);
	tcase_add_loop_test(c, too_long, 0, ROWS);
	tcase_add_loop_test(c, spoiled, 0, ROWS);
	tcase_add_loop_test(c, limit_of_a_row, 0, ROWS);
	tcase_add_test(c, unknown_types);
	tcase_add_test(c, the_wrong_side);
	tcase_add_test(c, counts_are_checked_first);
	tcase_add_test(c, strings_are_strings);
	tcase_add_test(c, no_string_is_an_empty_one);
	tcase_add_test(c, frees_nothing);
	tcase_add_loop_test(c, stream_in_pieces, 0, 70);
	tcase_add_test(c, magic);
	tcase_add_test(c, output_head);
	tcase_add_test(c, data_fits);
	tcase_add_test(c, print);
	tcase_add_loop_test(c, print_is_one_short_line, 0, ROWS);
	tcase_add_loop_test(c, print_what_is_broken, 0, ROWS);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
