/* libFuzzer on wire.h: the input as a stream of frames, and as the payload of one
 * message whose number is its first byte.  What unpacks must pack to the same bytes
 * again. */
#include "common/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MSG(name, number, most, text, fields)                                          \
	static void unpack_##name(const struct wire_frame *f)                          \
	{                                                                              \
		struct wire_##name m;                                                  \
		struct buf b = { 0 };                                                  \
		struct err e;                                                          \
                                                                                       \
		if (wire_unpack_##name(&m, f->payload, f->n, &e))                      \
			return;                                                        \
		wire_pack_##name(&b, &m);                                              \
		if (b.len != WIRE_HEAD_BYTES + f->n ||                                 \
		    memcmp(buf_head(&b) + WIRE_HEAD_BYTES, f->payload, f->n))          \
			abort();                                                       \
		wire_free_##name(&m);                                                  \
		buf_free(&b);                                                          \
	}
#include "common/wire.def"
#undef MSG

static void take(const struct wire_frame *f)
{
	struct str s = { 0 };

	switch (f->type) {
#define MSG(name, number, most, text, fields)                                          \
	case number:                                                                   \
		unpack_##name(f);                                                      \
		break;
#include "common/wire.def"
#undef MSG
	default:
		break;
	}
	wire_print(&s, f);
	str_free(&s);
}

static void stream(enum wire_side from, const uint8_t *p, size_t left)
{
	struct wire_frame f;
	struct err e;
	long used;

	while ((used = wire_next_from(from, &f, p, left, &e)) > 0) {
		if ((size_t)used > left || f.payload + f.n != p + used)
			abort();
		take(&f);
		p += used;
		left -= (size_t)used;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	long magic = wire_find_magic(data, size);

	if (magic >= 0)
		stream(WIRE_AGENT, data + magic + WIRE_MAGIC_BYTES,
		       size - (size_t)magic - WIRE_MAGIC_BYTES);
	else
		stream(WIRE_LAUNCHER, data, size);
	if (size)
		take(&(struct wire_frame){ data[0], data + 1, size - 1 });
	return 0;
}
