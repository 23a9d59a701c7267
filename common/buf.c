#include "common/buf.h"

#include "common/str.h"

unsigned char *buf_reserve(struct buf *b, size_t n)
{
	if (b->start && b->start >= b->len / 2 && b->start + b->len + n > b->cap) {
		memmove(b->data, b->data + b->start, b->len);
		b->start = 0;
	}
	if (b->start + b->len + n > b->cap) {
		b->cap = (b->start + b->len + n) * 3 / 2 + 256;
		b->data = xreallocarray(b->data, b->cap, 1);
	}
	return b->data + b->start + b->len;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
	if (!n)
		return;
	memcpy(buf_reserve(b, n), bytes, n);
	b->len += n;
}

void buf_u32(struct buf *b, uint32_t n)
{
	unsigned char c[4];

	for (int i = 0; i < 4; i++)
		c[i] = (unsigned char)(n >> 8 * i);
	buf_add(b, c, sizeof c);
}

void buf_u64(struct buf *b, uint64_t n)
{
	buf_u32(b, (uint32_t)n);
	buf_u32(b, (uint32_t)(n >> 32));
}

void buf_drop(struct buf *b, size_t n)
{
	b->len -= n;
	b->start = b->len ? b->start + n : 0;
}

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

const void *view_bytes(struct view *v, size_t n)
{
	const unsigned char *p = v->p;

	if (v->failed || n > v->left) {
		v->failed = true;
		return NULL;
	}
	v->p += n;
	v->left -= n;
	return p;
}

uint32_t view_u32(struct view *v)
{
	const unsigned char *p = view_bytes(v, 4);

	return p ? p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
			       (uint32_t)p[3] << 24
		 : 0;
}

uint64_t view_u64(struct view *v)
{
	uint64_t low = view_u32(v);

	return low | (uint64_t)view_u32(v) << 32;
}
