/* libFuzzer on net_box.h: what a connection may bring that is encrypted.  The first
 * byte says by which cipher.  Each further byte is a step: the peer, which has the
 * keys, seals a record, whose size it may say wrongly; somebody on the way changes,
 * cuts out, doubles or adds bytes; some of it arrives; or it is received, in pieces of
 * any size.
 *
 * What is received is the beginning of what was sealed, and all of it if nothing was
 * wrong. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/net_box.h"
#include "lib/net/net_cipher.h"
#include "lib/net/net_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	MOST = 400000,
	FRAME = 16 + NET_CIPHER_TAG_BYTES, /* of a record, without its text */
	LAST_MOST = 256
};

struct input {
	const uint8_t *p;
	size_t left;
};

/* The peer, the way, and our end. */
static struct side {
	struct net_cipher cipher;
	unsigned char size_key[crypto_shorthash_siphash24_KEYBYTES];
	uint64_t number;
	unsigned char wire[MOST + FRAME]; /* sealed, and not yet arrived */
	size_t wire_n;
	unsigned char said[MOST]; /* all text, up to a record that cannot be */
	size_t said_n, got;
	bool lied, faulty; /* the peer; the peer, or somebody on the way */
	bool over;
	int fd[2]; /* ours, the peer's */
	struct net_box *box;
} s;

static void check(bool good)
{
	if (!good)
		abort();
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static uint8_t byte(struct input *in)
{
	return in->left ? in->left--, *in->p++ : 0;
}

/* Small ones, those near a record's most, and any. */
static size_t any_size(struct input *in)
{
	const uint8_t b = byte(in);

	if (b < 160)
		return b;
	if (b < 200)
		return 400 + byte(in);
	if (b < 230)
		return NET_RECORD_BYTES - 8 + b % 16;
	return byte(in) * 257u;
}

/* ---- the peer ---- */

/* BYTES of text, of which it says that they are SAID. */
static void seal(uint64_t said, size_t bytes)
{
	static unsigned char text[MOST];
	uint64_t head[2] = { said, s.number };
	unsigned char *to = s.wire + s.wire_n;
	const bool good = said == bytes && bytes && bytes <= NET_RECORD_BYTES;

	if (s.wire_n + FRAME + bytes > MOST || s.said_n + bytes > MOST)
		return;
	for (size_t i = 0; i < bytes; i++)
		text[i] = (unsigned char)((s.number + i) * 2654435761u >> 13);
	crypto_shorthash_siphash24((unsigned char *)&head[1], (const void *)head,
				   sizeof head, s.size_key);
	memcpy(to, head, sizeof head);
	check(net_cipher_seal(&s.cipher, s.number++, to + sizeof head, text, bytes));
	s.wire_n += FRAME + bytes;
	s.lied |= !good;
	s.faulty |= !good;
	if (s.lied)
		return;
	memcpy(s.said + s.said_n, text, bytes);
	s.said_n += bytes;
}

static void seal_other_size(struct input *in, size_t bytes)
{
	static const uint64_t sizes[] = {
		0,         NET_RECORD_BYTES + 1, 2 * NET_RECORD_BYTES + 64,
		~0ull,     ~0ull - FRAME,        1ull << 32,
		1ull << 63
	};
	const uint8_t b = byte(in);

	seal(b < sizeof sizes / sizeof *sizes ? sizes[b] : b, bytes);
}

/* ---- the way ---- */

static void harm(struct input *in, unsigned how)
{
	const size_t at = s.wire_n ? (byte(in) | (size_t)byte(in) << 8) % s.wire_n : 0;
	size_t n = 1 + (size_t)byte(in);

	n = how < 3 ? least(n, s.wire_n - at) : least(n, in->left);
	n = how < 2 ? n : least(n, MOST - s.wire_n);
	if (!n)
		return;
	s.faulty = true;
	switch (how) {
	case 0:
		s.wire[at] ^= (unsigned char)(1 << n % 8);
		break;
	case 1:
		s.wire_n -= n;
		memmove(s.wire + at, s.wire + at + n, s.wire_n - at);
		break;
	case 2: /* again */
		memcpy(s.wire + s.wire_n, s.wire + at, n);
		s.wire_n += n;
		break;
	default:
		memcpy(s.wire + s.wire_n, in->p, n);
		s.wire_n += n;
		in->p += n;
		in->left -= n;
	}
}

static void arrive(size_t n)
{
	const ssize_t k =
		send(s.fd[1], s.wire, least(n, s.wire_n), MSG_DONTWAIT | MSG_NOSIGNAL);

	if (k <= 0)
		return;
	s.wire_n -= (size_t)k;
	memmove(s.wire, s.wire + k, s.wire_n);
}

/* ---- our end ---- */

/* What is given out is what comes next of what was said. */
static void note(const unsigned char *got, size_t n)
{
	check(!s.over && n <= s.said_n - s.got && !memcmp(got, s.said + s.got, n));
	s.got += n;
}

static void receive(size_t first, size_t second)
{
	unsigned char *to = malloc(first + 1), *then = malloc(second + 1);
	const struct iovec v[2] = { { to, first }, { then, second } };
	const ssize_t k = net_box_receive(s.box, s.fd[0], v, 2);

	if (k > 0) {
		note(to, least((size_t)k, first));
		if ((size_t)k > first)
			note(then, (size_t)k - first);
	} else if (k < 0 && errno == EBADMSG) {
		check(s.faulty);
		s.over = true;
	} else {
		check(k < 0 ? errno == EAGAIN : !first && !second);
	}
	free(to);
	free(then);
}

static void look(size_t bytes, bool peeks)
{
	unsigned char *to = malloc(bytes + 1);

	if (peeks && net_box_peek(s.box, s.fd[0], to, bytes) > 0)
		check(!s.over && bytes <= s.said_n - s.got &&
		      !memcmp(to, s.said + s.got, bytes));
	if (!peeks && bytes && net_box_last(s.box, to, bytes))
		check(memmem(s.said + s.got, s.said_n - s.got, to, bytes) != NULL);
	free(to);
}

/* All that is still on its way. */
static void receive_all(void)
{
	size_t left = s.wire_n + 1, got = 0;

	/* what the socket has no room for goes when something has been received */
	while (!s.over && (s.wire_n < left || s.got > got)) {
		left = s.wire_n;
		got = s.got;
		arrive(left);
		receive(10000, 70000);
	}
	check(s.faulty || s.got == s.said_n);
}

static void step(struct input *in)
{
	const uint8_t what = byte(in);
	size_t n;

	switch (what % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		n = any_size(in);
		seal(n, n);
		break;
	case 5:
		seal_other_size(in, any_size(in));
		break;
	case 6:
		harm(in, what / 16 % 4);
		break;
	case 7:
	case 8:
	case 9:
		arrive(any_size(in));
		break;
	case 10:
		arrive(s.wire_n);
		break;
	case 11:
		look(any_size(in) % LAST_MOST, true);
		break;
	case 12:
		look(any_size(in), false);
		break;
	default:
		n = any_size(in);
		receive(n, any_size(in));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const unsigned char keys[2][NET_WAY_KEY_BYTES] = { "out", "in" };
	struct input in = { data, size };
	const bool aes = byte(&in) % 2 && crypto_aead_aes256gcm_is_available();

	if (sodium_init() < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s.fd))
		abort();
	s.wire_n = s.said_n = s.got = s.number = 0;
	s.lied = s.faulty = s.over = false;
	net_cipher_begin(&s.cipher, keys[1], aes, true);
	memcpy(s.size_key, keys[1] + NET_CIPHER_KEY_BYTES, sizeof s.size_key);
	s.box = net_box_make(keys[0], keys[1], aes);
	while (in.left)
		step(&in);
	receive_all();
	net_box_free(s.box);
	net_cipher_end(&s.cipher);
	close(s.fd[0]);
	close(s.fd[1]);
	return 0;
}
