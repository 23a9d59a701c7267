#include "common/wire.h"

/* ---- every message as data ---- */

enum kind { KIND_u32, KIND_u64, KIND_str, KIND_bytes, KIND_strv, KIND_u32v };

struct field {
	const char *name; /* NULL: behind the last */
	enum kind kind;
	size_t offset;
};

enum { TYPES = 96 };
static const struct {
	const char *name;
	char side; /* enum wire_side: how its row's text begins */
	size_t most, size;
} types[TYPES] = {
#define MSG(name, number, most, text, fields)                                          \
	[number] = { #name, text[0], most, sizeof(struct wire_##name) },
#include "common/wire.def"
#undef MSG
};

static const struct field *fields_of(unsigned type)
{
	switch (type) {
#define MSG(name, number, most, text, fields)                                          \
	case number: {                                                                 \
		typedef struct wire_##name message __attribute__((unused));            \
		static const struct field list[] = { fields{ NULL, KIND_u32, 0 } };    \
                                                                                       \
		return list;                                                           \
	}
#define F(type, name) { #name, KIND_##type, offsetof(message, name) },
#include "common/wire.def"
#undef F
#undef MSG
	default:
		abort();
	}
}

/* ---- packing ---- */

static void put_str(struct buf *b, wire_str v)
{
	size_t n = v ? strlen(v) : 0;

	buf_u32(b, (uint32_t)n);
	buf_add(b, v ? v : "", n + 1);
}

static void wire_put(struct buf *b, enum kind kind, const void *at)
{
	const wire_bytes *bytes = at;
	const wire_strv *strv = at;
	const wire_u32v *u32v = at;

	switch (kind) {
	case KIND_u32:
		buf_u32(b, *(const wire_u32 *)at);
		break;
	case KIND_u64:
		buf_u64(b, *(const wire_u64 *)at);
		break;
	case KIND_str:
		put_str(b, *(const wire_str *)at);
		break;
	case KIND_bytes:
		buf_u32(b, (uint32_t)bytes->n);
		buf_add(b, bytes->p, bytes->n);
		break;
	case KIND_strv:
		buf_u32(b, (uint32_t)strv->n);
		for (size_t i = 0; i < strv->n; i++)
			put_str(b, strv->v[i]);
		break;
	case KIND_u32v:
		buf_u32(b, (uint32_t)u32v->n);
		for (size_t i = 0; i < u32v->n; i++)
			buf_u32(b, u32v->v[i]);
		break;
	}
}

static void wire_le32(unsigned char *p, size_t n)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(n >> 8 * i);
}

/* The head has room for the length; the payload follows and fills it in. */
void wire_pack(struct buf *out, unsigned type, const void *m)
{
	unsigned char head[WIRE_HEAD_BYTES] = { 0, 0, 0, 0, (unsigned char)type };
	/* It takes wire_unpack_X() for wire_pack_X(), since both are in X's row. */
	/* cppcheck-suppress ctuuninitvar */
	size_t begin = out->len;

	buf_add(out, head, sizeof head);
	for (const struct field *f = fields_of(type); f->name; f++)
		wire_put(out, f->kind, (const char *)m + f->offset);
	wire_le32(buf_head(out) + begin, out->len - begin - sizeof head);
}

void wire_output_head(unsigned char head[WIRE_OUTPUT_HEAD_BYTES], uint32_t epoch,
		      uint32_t rank, uint32_t stream, uint32_t n)
{
	wire_le32(head, WIRE_OUTPUT_HEAD_BYTES - WIRE_HEAD_BYTES + n);
	head[4] = WIRE_output;
	wire_le32(head + 5, epoch);
	wire_le32(head + 9, rank);
	wire_le32(head + 13, stream);
	wire_le32(head + 17, n);
}

/* ---- unpacking ---- */

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

/* A list's count.  0, and V has failed, if what is left is too short for so many items
 * of LEAST bytes. */
static size_t get_count(struct view *v, size_t least)
{
	size_t n = view_u32(v);

	if (n > v->left / least) {
		v->failed = true;
		return 0;
	}
	return n;
}

static void wire_get(struct view *v, enum kind kind, void *at)
{
	wire_bytes *bytes = at;
	const char **strv;
	uint32_t *u32v;
	size_t n;

	switch (kind) {
	case KIND_u32:
		*(wire_u32 *)at = view_u32(v);
		break;
	case KIND_u64:
		*(wire_u64 *)at = view_u64(v);
		break;
	case KIND_str:
		*(wire_str *)at = get_str(v);
		break;
	case KIND_bytes:
		bytes->n = view_u32(v);
		bytes->p = view_bytes(v, bytes->n);
		if (!bytes->p)
			bytes->n = 0;
		break;
	case KIND_strv:
		n = get_count(v, 5);
		strv = xcalloc(n + 1, sizeof *strv);
		for (size_t i = 0; i < n; i++)
			strv[i] = get_str(v);
		*(wire_strv *)at = (wire_strv){ strv, n };
		break;
	case KIND_u32v:
		n = get_count(v, 4);
		u32v = xcalloc(n + 1, sizeof *u32v);
		for (size_t i = 0; i < n; i++)
			u32v[i] = view_u32(v);
		*(wire_u32v *)at = (wire_u32v){ u32v, n };
		break;
	}
}

int wire_unpack(unsigned type, void *m, const void *p, size_t n, struct err *e)
{
	struct view v = { p, n, false };
	char what[64];

	for (const struct field *f = fields_of(type); f->name; f++)
		wire_get(&v, f->kind, (char *)m + f->offset);
	if (!v.failed && !v.left)
		return 0;
	wire_free(type, m);
	snprintf(what, sizeof what, "malformed '%s' message", types[type].name);
	return err_set(e, E_WIRE, what);
}

void wire_free(unsigned type, void *m)
{
	for (const struct field *f = fields_of(type); f->name; f++) {
		void *at = (char *)m + f->offset;

		if (f->kind == KIND_strv || f->kind == KIND_u32v)
			free(*(void **)at); /* a list begins with its items */
	}
	memset(m, 0, types[type].size);
}

/* ---- frames ---- */

static bool wire_is_from(enum wire_side from, char side)
{
	switch (side) {
	case WIRE_BOTH:
		return from == WIRE_AGENT || from == WIRE_LAUNCHER;
	case WIRE_UP:
		return from == WIRE_AGENT || from == WIRE_PMIX_SERVER;
	case WIRE_DOWN:
		return from == WIRE_LAUNCHER || from == WIRE_PMIX_HOST;
	default:
		return side == WIRE_EVERY || side == (char)from;
	}
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
	if (!wire_is_from(from, types[*type].side))
		return err_set(e, E_WIRE,
			       from == WIRE_AGENT ? "message that only runner sends"
			       : from == WIRE_LAUNCHER
				       ? "message that only an agent sends"
				       : "message that the other side sends");
	if (n > types[*type].most)
		return err_set(e, E_WIRE, "message larger than its limit");
	if (n > v.left)
		return 0;
	*f = (struct wire_frame){ *type, v.p, n };
	return (long)(WIRE_HEAD_BYTES + n);
}

bool wire_ascends(const wire_u32v *v, uint32_t below)
{
	for (size_t i = 1; i < v->n; i++)
		if (v->v[i] <= v->v[i - 1])
			return false;
	return !v->n || v->v[v->n - 1] < below;
}

void wire_pass(struct buf *out, const struct wire_frame *f, uint32_t epoch)
{
	const size_t rest = f->n - sizeof epoch;

	buf_u32(out, (uint32_t)f->n);
	buf_add(out, &(unsigned char){ (unsigned char)f->type }, 1);
	buf_u32(out, epoch);
	buf_add(out, f->payload + sizeof epoch, rest);
}

long wire_find_magic(const void *p, size_t n)
{
	const char *hit = n ? memmem(p, n, WIRE_MAGIC, WIRE_MAGIC_BYTES) : NULL;

	return hit ? hit - (const char *)p : -1;
}

/* ---- printing ---- */

const char *wire_name(unsigned type)
{
	return type < TYPES && types[type].name ? types[type].name : "?";
}

static void wire_show(struct str *s, enum kind kind, const void *at)
{
	const wire_u32v *list =
		at; /* of bytes and strv only n, which lies there, too */
	char *copy;

	switch (kind) {
	case KIND_u32:
		str_addf(s, "%u", *(const wire_u32 *)at);
		break;
	case KIND_u64:
		str_addf(s, "%llu", (unsigned long long)*(const wire_u64 *)at);
		break;
	case KIND_str:
		copy = str_plain(xstrndup(*(const wire_str *)at, 200));
		str_addf(s, "'%s'", copy);
		free(copy);
		break;
	case KIND_bytes:
	case KIND_strv:
		str_addf(s, "(%zu %s)", list->n,
			 kind == KIND_strv ? "strings" : "bytes");
		break;
	case KIND_u32v:
		str_add(s, "[");
		for (size_t i = 0; i < 64 && i < list->n; i++)
			str_addf(s, "%s%u", i ? "," : "", list->v[i]);
		str_add(s, list->n > 64 ? ",...]" : "]");
		break;
	}
}

void wire_print(struct str *out, const struct wire_frame *f)
{
	void *m;

	str_add(out, wire_name(f->type));
	if (f->type >= TYPES || !types[f->type].name)
		return;
	m = xcalloc(1, types[f->type].size);
	if (wire_unpack(f->type, m, f->payload, f->n, NULL)) {
		str_add(out, " (malformed)");
	} else {
		for (const struct field *at = fields_of(f->type); at->name; at++) {
			str_addf(out, " %s=", at->name);
			wire_show(out, at->kind, (char *)m + at->offset);
		}
		wire_free(f->type, m);
	}
	free(m);
}
