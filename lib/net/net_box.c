#include "lib/net/net_box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/net/net_cipher.h"

enum { TAG_BYTES = NET_CIPHER_TAG_BYTES, SMALL_BYTES = 256 };

/* In front of each record. */
struct size {
	uint64_t bytes, mac; /* of the plain text; MAC: with the number */
};

enum {
	RECORD_MOST = sizeof(struct size) + NET_RECORD_BYTES + TAG_BYTES,
	/* Most bytes that are read at once. */
	IN_BYTES = 2 * RECORD_MOST
};

struct way {
	struct net_cipher cipher;
	unsigned char size_key[crypto_shorthash_siphash24_KEYBYTES];
	uint64_t number; /* of the next record */
};

_Static_assert(NET_CIPHER_KEY_BYTES + crypto_shorthash_siphash24_KEYBYTES <=
		       NET_WAY_KEY_BYTES,
	       "of one direction");

struct net_box {
	struct way out, in;
	/* The record that goes: AT bytes have gone, HAVE are left; PLAIN is the size of
	 * its text. */
	size_t out_at, out_have, out_plain;
	/* The bytes that have been read, and the text that has been opened. */
	size_t in_at, in_have, text_at, text_have;
	unsigned char out_bytes[RECORD_MOST], in_bytes[IN_BYTES],
		text[NET_RECORD_BYTES];
};

static void box_begin(struct way *w, const unsigned char key[NET_WAY_KEY_BYTES],
		      bool aes, bool seals)
{
	net_cipher_begin(&w->cipher, key, aes, seals);
	memcpy(w->size_key, key + NET_CIPHER_KEY_BYTES, sizeof w->size_key);
	w->number = 0;
}

struct net_box *net_box_make(const unsigned char out[NET_WAY_KEY_BYTES],
			     const unsigned char in[NET_WAY_KEY_BYTES], bool aes)
{
	struct net_box *b = aligned_alloc(64, (sizeof *b + 63) / 64 * 64);

	if (!b)
		return NULL;
	b->out_at = b->out_have = b->out_plain = 0;
	b->in_at = b->in_have = b->text_at = b->text_have = 0;
	box_begin(&b->out, out, aes, true);
	box_begin(&b->in, in, aes, false);
	return b;
}

void net_box_free(struct net_box *b)
{
	if (!b)
		return;
	net_cipher_end(&b->out.cipher);
	net_cipher_end(&b->in.cipher);
	sodium_memzero(b, sizeof *b);
	free(b);
}

static uint64_t size_mac(const struct way *w, uint64_t bytes, uint64_t number)
{
	const uint64_t all[2] = { bytes, number };
	uint64_t mac;

	crypto_shorthash_siphash24((unsigned char *)&mac, (const unsigned char *)all,
				   sizeof all, w->size_key);
	return mac;
}

/* ---- sending ---- */

bool net_box_is_half(const struct net_box *b)
{
	return b->out_have > 0;
}

/* Make a record of as much of V as fits.  One piece is sealed from where it lies.
 * FALSE: it can't be sealed. */
static bool make_record(struct net_box *b, const struct iovec *v, size_t n)
{
	unsigned char *to = b->out_bytes + sizeof(struct size);
	const unsigned char *from = v->iov_base;
	size_t bytes = 0;
	struct size s;

	if (n == 1 || v->iov_len >= NET_RECORD_BYTES) {
		bytes = v->iov_len < NET_RECORD_BYTES ? v->iov_len : NET_RECORD_BYTES;
	} else {
		from = to;
		for (size_t i = 0; i < n && bytes < NET_RECORD_BYTES; i++) {
			size_t k = v[i].iov_len;

			if (k > NET_RECORD_BYTES - bytes)
				k = NET_RECORD_BYTES - bytes;
			memcpy(to + bytes, v[i].iov_base, k);
			bytes += k;
		}
	}
	s = (struct size){ bytes, size_mac(&b->out, bytes, b->out.number) };
	memcpy(b->out_bytes, &s, sizeof s);
	if (!net_cipher_seal(&b->out.cipher, b->out.number, to, from, bytes))
		return false;
	b->out.number++;
	b->out_at = 0;
	b->out_have = sizeof s + bytes + TAG_BYTES;
	b->out_plain = bytes;
	return true;
}

ssize_t net_box_send(struct net_box *b, int fd, const struct iovec *v, size_t n)
{
	ssize_t k;

	if (!b->out_have && !make_record(b, v, n)) {
		errno = EIO;
		return -1;
	}
	k = send(fd, b->out_bytes + b->out_at, b->out_have,
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (k <= 0)
		return k;
	b->out_at += (size_t)k;
	b->out_have -= (size_t)k;
	if (!b->out_have)
		return (ssize_t)b->out_plain;
	errno = EAGAIN;
	return -1;
}

/* ---- receiving ---- */

/* How many bytes of the record AT have to be there; -1: it is not the peer's. */
static ssize_t box_whole(const struct net_box *b, size_t at, size_t have,
			 uint64_t number)
{
	struct size s;

	if (have < sizeof s)
		return sizeof s;
	memcpy(&s, b->in_bytes + at, sizeof s);
	if (s.mac != size_mac(&b->in, s.bytes, number) || !s.bytes ||
	    s.bytes > NET_RECORD_BYTES)
		return -1;
	return (ssize_t)(sizeof s + s.bytes + TAG_BYTES);
}

/* Read more.  1: done; 0: the stream has ended; -1. */
static ssize_t box_more(struct net_box *b, int fd, bool *dry)
{
	size_t room;
	ssize_t k;

	if (b->in_at && (!b->in_have || b->in_at >= IN_BYTES - RECORD_MOST)) {
		memmove(b->in_bytes, b->in_bytes + b->in_at, b->in_have);
		b->in_at = 0;
	}
	if (*dry) {
		errno = EAGAIN;
		return -1;
	}
	room = IN_BYTES - b->in_at - b->in_have;
	k = recv(fd, b->in_bytes + b->in_at + b->in_have, room, MSG_DONTWAIT);
	if (k <= 0)
		return k;
	*dry = (size_t)k < room;
	b->in_have += (size_t)k;
	return 1;
}

/* Open the next record to TO if it fits in ROOM, else to TEXT.  Returns how many bytes
 * TO got; 0: the stream has ended; -1. */
static ssize_t open_record(struct net_box *b, int fd, unsigned char *to, size_t room,
			   bool *dry)
{
	const size_t frame = sizeof(struct size) + TAG_BYTES;
	ssize_t need, k;
	size_t bytes;
	bool fits;

	for (;;) {
		need = box_whole(b, b->in_at, b->in_have, b->in.number);
		if (need < 0)
			break;
		if ((size_t)need <= b->in_have && (size_t)need > sizeof(struct size))
			break;
		k = box_more(b, fd, dry);
		if (k <= 0)
			return k;
	}
	bytes = need < 0 ? 0 : (size_t)need - frame;
	fits = room >= bytes;
	if (need < 0 ||
	    !net_cipher_open(&b->in.cipher, b->in.number, fits ? to : b->text,
			     b->in_bytes + b->in_at + sizeof(struct size), bytes)) {
		errno = EBADMSG;
		return -1;
	}
	b->in.number++;
	b->in_at += (size_t)need;
	b->in_have -= (size_t)need;
	if (fits)
		return (ssize_t)bytes;
	b->text_at = 0;
	b->text_have = bytes;
	memcpy(to, b->text, room);
	b->text_at += room;
	b->text_have -= room;
	return (ssize_t)room;
}

static ssize_t box_take(struct net_box *b, int fd, unsigned char *to, size_t room,
			bool *dry)
{
	size_t k = b->text_have < room ? b->text_have : room;

	if (!k)
		return open_record(b, fd, to, room, dry);
	memcpy(to, b->text + b->text_at, k);
	b->text_at += k;
	b->text_have -= k;
	return (ssize_t)k;
}

ssize_t net_box_receive(struct net_box *b, int fd, const struct iovec *v, size_t n)
{
	ssize_t all = 0, k = 1;
	bool dry = false;

	for (size_t i = 0; i < n && k > 0; i++)
		for (size_t got = 0; got < v[i].iov_len && k > 0;) {
			k = box_take(b, fd, (unsigned char *)v[i].iov_base + got,
				     v[i].iov_len - got, &dry);
			got += k > 0 ? (size_t)k : 0;
			all += k > 0 ? k : 0;
		}
	return all || k > 0 ? all : k;
}

ssize_t net_box_peek(struct net_box *b, int fd, void *to, size_t bytes)
{
	unsigned char record[SMALL_BYTES];
	const size_t most = sizeof(struct size) + bytes + TAG_BYTES;
	struct size s;
	ssize_t k;

	errno = EAGAIN;
	if (most > sizeof record)
		return -1;
	k = recv(fd, record, most, MSG_PEEK | MSG_DONTWAIT);
	if (k <= 0)
		return k;
	errno = EAGAIN;
	memcpy(&s, record, sizeof s);
	if ((size_t)k < most || b->in_have || b->text_have || s.bytes != bytes ||
	    s.mac != size_mac(&b->in, bytes, b->in.number) ||
	    !net_cipher_open(&b->in.cipher, b->in.number, to, record + sizeof s, bytes))
		return -1;
	return (ssize_t)bytes;
}

bool net_box_last(const struct net_box *b, void *to, size_t bytes)
{
	unsigned char text[SMALL_BYTES];
	uint64_t number = b->in.number;
	size_t at = b->in_at, have = b->in_have;
	bool found = b->text_have >= bytes;

	if (found)
		memcpy(to, b->text + b->text_at + b->text_have - bytes, bytes);
	while (have && bytes <= sizeof text) {
		ssize_t need = box_whole(b, at, have, number);

		if (need <= (ssize_t)sizeof(struct size) || (size_t)need > have)
			break;
		if ((size_t)need == sizeof(struct size) + bytes + TAG_BYTES &&
		    net_cipher_open(&b->in.cipher, number, text,
				    b->in_bytes + at + sizeof(struct size), bytes)) {
			memcpy(to, text, bytes);
			found = true;
		}
		at += (size_t)need;
		have -= (size_t)need;
		number++;
	}
	return found;
}
