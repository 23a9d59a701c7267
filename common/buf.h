/* buf.h - bytes in order: a growing writer and a bounded reader.
 *
 * Numbers are little-endian.  The reader keeps its first failure, so that a caller may
 * read everything and then check once.  Idea: OpenSSH's sshbuf. */
#ifndef BERTH_BUF_H
#define BERTH_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A queue of bytes.  {0} is empty.  Its len bytes are at data+start. */
struct buf {
	unsigned char *data;
	size_t start, len, cap;
};

/* Room for N more bytes at the end.  The pointer is valid until the next call. */
unsigned char *buf_reserve(struct buf *b, size_t n);
void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_u32(struct buf *b, uint32_t n);
void buf_u64(struct buf *b, uint64_t n);
/* Remove the first N bytes. */
void buf_drop(struct buf *b, size_t n);
void buf_free(struct buf *b);

static inline unsigned char *buf_head(const struct buf *b)
{
	return b->data ? b->data + b->start : b->data;
}

/* The bytes that are left to read.  A read past the end returns 0 and sets failed. */
struct view {
	const unsigned char *p;
	size_t left;
	bool failed;
};

uint32_t view_u32(struct view *v);
uint64_t view_u64(struct view *v);
/* The next N bytes, inside the view, or NULL. */
const void *view_bytes(struct view *v, size_t n);

#endif
