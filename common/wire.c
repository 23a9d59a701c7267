#include "common/wire.h"

static void put_u32(struct buf *b, wire_u32 v)
{
	buf_u32(b, v);
}

static void put_u64(struct buf *b, wire_u64 v)
{
	buf_u64(b, v);
}

static void put_str(struct buf *b, wire_str v)
{
	size_t n = v ? strlen(v) : 0;

	buf_u32(b, (uint32_t)n);
	buf_add(b, v ? v : "", n + 1);
}

static void put_bytes(struct buf *b, wire_bytes v)
{
	buf_u32(b, (uint32_t)v.n);
	buf_add(b, v.p, v.n);
}

static void put_strv(struct buf *b, wire_strv v)
{
	buf_u32(b, (uint32_t)v.n);
	for (size_t i = 0; i < v.n; i++)
		put_str(b, v.v[i]);
}

static void put_u32v(struct buf *b, wire_u32v v)
{
	buf_u32(b, (uint32_t)v.n);
	for (size_t i = 0; i < v.n; i++)
		buf_u32(b, v.v[i]);
}

static wire_u32 get_u32(struct view *v)
{
	return view_u32(v);
}

static wire_u64 get_u64(struct view *v)
{
	return view_u64(v);
}

static wire_str get_str(struct view *v)
{
	size_t n = view_u32(v);
	const char *p = view_bytes(v, n + 1);

	if (!p || p[n] != '\0' || memchr(p, '\0', n)) {
		v->failed = true;
		return "";
	}
	return p;
}

static wire_bytes get_bytes(struct view *v)
{
	wire_bytes out = { .n = view_u32(v) };

	out.p = view_bytes(v, out.n);
	if (!out.p)
		out.n = 0;
	return out;
}

/* A list's count, or 0 and failed when LEAST bytes an item would not fit in what is
 * left. */
static size_t get_count(struct view *v, size_t least)
{
	size_t n = view_u32(v);

	if (n > v->left / least) {
		v->failed = true;
		return 0;
	}
	return n;
}

static wire_strv get_strv(struct view *v)
{
	size_t n = get_count(v, 5);
	const char **list = xcalloc(n + 1, sizeof *list);

	for (size_t i = 0; i < n; i++)
		list[i] = get_str(v);
	return (wire_strv){ list, n };
}

static wire_u32v get_u32v(struct view *v)
{
	size_t n = get_count(v, 4);
	uint32_t *list = xcalloc(n + 1, sizeof *list);

	for (size_t i = 0; i < n; i++)
		list[i] = view_u32(v);
	return (wire_u32v){ list, n };
}

static void drop_u32(wire_u32 v)
{
	(void)v;
}

static void drop_u64(wire_u64 v)
{
	(void)v;
}

static void drop_str(wire_str v)
{
	(void)v;
}

static void drop_bytes(wire_bytes v)
{
	(void)v;
}

static void drop_strv(wire_strv v)
{
	free((void *)v.v);
}

static void drop_u32v(wire_u32v v)
{
	free((void *)v.v);
}

static void show_u32(struct str *s, wire_u32 v)
{
	str_addf(s, "%u", v);
}

static void show_u64(struct str *s, wire_u64 v)
{
	str_addf(s, "%llu", (unsigned long long)v);
}

static void show_str(struct str *s, wire_str v)
{
	char *copy = str_plain(xstrndup(v, 200));

	str_addf(s, "'%s'", copy);
	free(copy);
}

static void show_bytes(struct str *s, wire_bytes v)
{
	str_addf(s, "(%zu bytes)", v.n);
}

static void show_strv(struct str *s, wire_strv v)
{
	str_addf(s, "(%zu strings)", v.n);
}

static void show_u32v(struct str *s, wire_u32v v)
{
	str_add(s, "[");
	for (size_t i = 0; i < 64 && i < v.n; i++)
		str_addf(s, "%s%u", i ? "," : "", v.v[i]);
	str_add(s, v.n > 64 ? ",...]" : "]");
}

/* A frame's head has room for the length first; the payload follows and fills it in. */
static size_t frame_begin(struct buf *out, unsigned char type)
{
	buf_u32(out, 0);
	buf_add(out, &type, 1);
	return out->len;
}

static void frame_end(struct buf *out, size_t begin)
{
	unsigned char *head = buf_head(out) + begin - WIRE_HEAD_BYTES;
	size_t n = out->len - begin;

	for (int i = 0; i < 4; i++)
		head[i] = (unsigned char)(n >> 8 * i);
}

#define MSG(name, number, most, text, fields)                                          \
	void wire_pack_##name(struct buf *out, const struct wire_##name *m)            \
	{                                                                              \
		size_t begin = frame_begin(out, number);                               \
		fields frame_end(out, begin);                                          \
	}
#define F(type, name) put_##type(out, m->name);
#include "common/wire.def"
#undef F
#undef MSG

#define MSG(name, number, most, text, fields)                                          \
	int wire_unpack_##name(struct wire_##name *m, const void *p, size_t n,         \
			       struct err *e)                                          \
	{                                                                              \
		struct view v = { p, n, false };                                       \
		fields if (!v.failed && !v.left) return 0;                             \
		wire_free_##name(m);                                                   \
		return err_set(e, E_WIRE, "malformed '" #name "' message");            \
	}
#define F(type, name) m->name = get_##type(&v);
#include "common/wire.def"
#undef F
#undef MSG

#define MSG(name, number, most, text, fields)                                          \
	void wire_free_##name(struct wire_##name *m)                                   \
	{                                                                              \
		fields *m = (struct wire_##name){ 0 };                                 \
	}
#define F(type, name) drop_##type(m->name);
#include "common/wire.def"
#undef F
#undef MSG

#define MSG(name, number, most, text, fields)                                          \
	static void print_##name(struct str *out, const struct wire_frame *f)          \
	{                                                                              \
		struct wire_##name one, *m = &one;                                     \
                                                                                       \
		if (wire_unpack_##name(m, f->payload, f->n, NULL)) {                   \
			str_add(out, " (malformed)");                                  \
			return;                                                        \
		}                                                                      \
		fields wire_free_##name(m);                                            \
	}
#define F(type, name)                                                                  \
	str_add(out, " " #name "=");                                                   \
	show_##type(out, m->name);
#include "common/wire.def"
#undef F
#undef MSG

enum { TYPES = 64 };
static const struct {
	const char *name;
	char side; /* enum wire_side: how its row's text begins */
	size_t most;
	void (*print)(struct str *out, const struct wire_frame *f);
} types[TYPES] = {
#define MSG(name, number, most, text, fields)                                          \
	[number] = { #name, text[0], most, print_##name },
#define F(type, name)
#include "common/wire.def"
#undef F
#undef MSG
};

static bool says(enum wire_side who, unsigned type)
{
	return who == WIRE_BOTH || types[type].side == WIRE_BOTH ||
	       types[type].side == (char)who;
}

long wire_next_from(enum wire_side from, struct wire_frame *f, const void *p,
		    size_t left, struct err *e)
{
	struct view v = { p, left, false };
	size_t n = view_u32(&v);
	const unsigned char *type = view_bytes(&v, 1);

	if (v.failed)
		return 0;
	if (*type >= TYPES || !types[*type].name)
		return err_set(e, E_WIRE, "message of an unknown type");
	if (!says(from, *type))
		return err_set(e, E_WIRE,
			       from == WIRE_AGENT ? "message that only runner sends"
						  : "message that only an agent sends");
	if (n > types[*type].most)
		return err_set(e, E_WIRE, "message larger than its limit");
	if (n > v.left)
		return 0;
	*f = (struct wire_frame){ *type, v.p, n };
	return (long)(WIRE_HEAD_BYTES + n);
}

long wire_next(struct wire_frame *f, const void *p, size_t left, struct err *e)
{
	return wire_next_from(WIRE_BOTH, f, p, left, e);
}

long wire_find_magic(const void *p, size_t n)
{
	const char *hit = n ? memmem(p, n, WIRE_MAGIC, WIRE_MAGIC_BYTES) : NULL;

	return hit ? hit - (const char *)p : -1;
}

static void le32(unsigned char *p, uint32_t n)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(n >> 8 * i);
}

void wire_output_head(unsigned char head[WIRE_OUTPUT_HEAD_BYTES], uint32_t epoch,
		      uint32_t rank, uint32_t stream, uint32_t n)
{
	le32(head, WIRE_OUTPUT_HEAD_BYTES - WIRE_HEAD_BYTES + n);
	head[4] = WIRE_output;
	le32(head + 5, epoch);
	le32(head + 9, rank);
	le32(head + 13, stream);
	le32(head + 17, n);
}

const char *wire_name(unsigned type)
{
	return type < TYPES && types[type].name ? types[type].name : "?";
}

void wire_print(struct str *out, const struct wire_frame *f)
{
	str_add(out, wire_name(f->type));
	if (f->type < TYPES && types[f->type].print)
		types[f->type].print(out, f);
}
