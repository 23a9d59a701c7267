/* libFuzzer on lib/net/net_box: records of a peer that has the keys.  The first byte
 * says how; then come how many turns of the receiver there are, and three bytes for
 * each; the rest is what the peer does.
 *
 * Either it is made of parts, each of which begins with a byte: a record as it has to
 * be, or one of which one thing is not; or bytes as they are.  All text in front of
 * the first such thing has to come, and nothing else.  Or it is a sender of ours,
 * whose socket takes little at a time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/net_cipher.h"
#include "lib/net/net_box.h"
#include "lib/net/net_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIRE_MOST = 400000, RECORDS_MOST = 4096, TURN_BYTES = 3, LAST_MOST = 300 };

/* In front of each record. */
struct size {
	uint64_t bytes, mac;
};

static unsigned char key[2][NET_WAY_KEY_BYTES]; /* of the peer, of ours */

/* What the peer does. */
static struct {
	struct net_cipher cipher[2];
	uint64_t number;
	unsigned char wire[WIRE_MOST];
	size_t wires, sent;
	/* Each record: its text at SAID, and it at SEALED. */
	struct {
		uint64_t number;
		bool fits; /* so that it has to come, if it is the next one */
		size_t at, bytes;
	} record[RECORDS_MOST];
	size_t records, at;
	unsigned char said[WIRE_MOST], sealed[WIRE_MOST];
	/* What has to come of all that. */
	unsigned char text[WIRE_MOST];
	size_t texts;
	bool wrong; /* something follows that is not the next record */
} peer;

static struct {
	struct net_box *box;
	int fd[2];
	size_t got;
	bool dry;    /* there was no more, and nothing has been sent since */
	bool failed; /* EBADMSG */
} us;

static void must_at(bool so, int line)
{
	if (so)
		return;
	fprintf(stderr, "line %d\n", line);
	abort();
}
#define must(so) must_at(so, __LINE__)

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- what the peer does ---- */

static size_t whole(size_t bytes)
{
	return sizeof(struct size) + bytes + NET_CIPHER_TAG_BYTES;
}

static bool has_room(size_t bytes)
{
	return peer.records < RECORDS_MOST && whole(bytes) <= WIRE_MOST - peer.wires &&
	       whole(bytes) <= WIRE_MOST - peer.at;
}

/* A record of BYTES whose size says CLAIM, by the keys of direction WAY.  Its text
 * follows from SEED. */
static void put_record(size_t bytes, uint64_t claim, int way, uint8_t seed)
{
	const uint64_t all[2] = { claim, peer.number };
	unsigned char *to = peer.sealed + peer.at, *text = peer.said + peer.at;
	struct size s = { .bytes = claim };

	crypto_shorthash_siphash24((unsigned char *)&s.mac, (const unsigned char *)all,
				   sizeof all, key[way] + NET_CIPHER_KEY_BYTES);
	for (size_t i = 0; i < bytes; i++)
		text[i] = (unsigned char)(seed + peer.number * 31 + i * 13 + (i >> 8));
	memcpy(to, &s, sizeof s);
	must(net_cipher_seal(&peer.cipher[way], peer.number, to + sizeof s, text,
			     bytes));
	memcpy(peer.wire + peer.wires, to, whole(bytes));
	peer.wires += whole(bytes);
	peer.record[peer.records].number = peer.number++;
	peer.record[peer.records].fits =
		claim == bytes && !way && bytes && bytes <= NET_RECORD_BYTES;
	peer.record[peer.records].at = peer.at;
	peer.record[peer.records++].bytes = bytes;
	peer.at += whole(bytes);
}

static void put_again(size_t which)
{
	size_t at, n;

	if (!peer.records)
		return;
	at = peer.record[which % peer.records].at;
	n = whole(peer.record[which % peer.records].bytes);
	if (n > WIRE_MOST - peer.wires)
		return;
	memcpy(peer.wire + peer.wires, peer.sealed + at, n);
	peer.wires += n;
}

/* One bit of what has just been put. */
static void change(size_t begun, uint8_t where, uint8_t bit)
{
	const size_t n = peer.wires - begun;

	peer.wire[begun + (where < 128 ? where % n : n - 1 - where % n)] ^=
		(unsigned char)(1 << bit % 8);
}

/* The record with which the wire goes on at AT, as NUMBER; RECORDS_MOST: none does. */
static size_t record_at(size_t at, uint64_t number)
{
	for (size_t i = 0; i < peer.records; i++) {
		size_t n = whole(peer.record[i].bytes);

		if (peer.record[i].fits && peer.record[i].number == number &&
		    n <= peer.wires - at &&
		    !memcmp(peer.wire + at, peer.sealed + peer.record[i].at, n))
			return i;
	}
	return RECORDS_MOST;
}

/* What has to come. */
static void find_text(void)
{
	size_t at = 0, i;

	for (uint64_t number = 0; (i = record_at(at, number)) < RECORDS_MOST;
	     number++) {
		memcpy(peer.text + peer.texts, peer.said + peer.record[i].at,
		       peer.record[i].bytes);
		peer.texts += peer.record[i].bytes;
		at += whole(peer.record[i].bytes);
	}
	peer.wrong = at < peer.wires;
}

/* How much of DATA it is. */
static size_t put_part(const uint8_t *data, size_t size)
{
	uint8_t in[12] = { 0 };
	size_t n = least(size, sizeof in), bytes, begun = peer.wires;
	uint64_t claim;

	memcpy(in, data, n);
	bytes = (in[1] + 256u * in[2]) % (NET_RECORD_BYTES + 32);
	if (!has_room(bytes))
		return size;
	switch (in[0] % 10) {
	case 0:
	case 1:
		put_record(bytes, bytes, 0, in[3]);
		return 4;
	case 2:
		memcpy(&claim, in + 4, sizeof claim);
		put_record(bytes, in[3] & 1 ? claim : bytes + claim % 65536 - 32768, 0,
			   in[3]);
		return 12;
	case 3:
		put_record(bytes, bytes, 0, in[3]);
		change(begun, in[4], in[5]);
		return 6;
	case 4:
		put_record(bytes, bytes, 0, in[3]);
		peer.wires -= least(in[4] + 1u, peer.wires - begun);
		return 5;
	case 5:
		put_again(in[1]);
		return 2;
	case 6:
		peer.number += in[3] ? in[3] : UINT64_MAX;
		put_record(bytes, bytes, 0, in[3]);
		return 4;
	case 7:
		put_record(bytes, bytes, 1, in[3]);
		return 4;
	case 8:
		for (unsigned i = 0; i < 1 + in[1] % 8u && has_room(NET_RECORD_BYTES);
		     i++)
			put_record(NET_RECORD_BYTES, NET_RECORD_BYTES, 0, in[3]);
		return 4;
	default:
		n = least(in[1] % 32u + 1, size > 2 ? size - 2 : 0);
		memcpy(peer.wire + peer.wires, data + least(2, size), n);
		peer.wires += n;
		return 2 + n;
	}
}

static void make_parts(const uint8_t *data, size_t size)
{
	while (size) {
		size_t k = least(size, put_part(data, size));

		data += k;
		size -= k;
	}
	find_text();
}

/* As much of MOST as the socket takes; behind all, its end. */
static void push(size_t most)
{
	size_t n = least(most, peer.wires - peer.sent);
	ssize_t k = n ? send(us.fd[1], peer.wire + peer.sent, n,
			     MSG_DONTWAIT | MSG_NOSIGNAL)
		      : 0;

	must(k >= 0 || errno == EAGAIN);
	peer.sent += k > 0 ? (size_t)k : 0;
	us.dry &= k <= 0;
	if (peer.sent == peer.wires && us.fd[1] >= 0) {
		close(us.fd[1]);
		us.fd[1] = -1;
		us.dry = false;
	}
}

/* ---- what comes ---- */

/* FALSE: there will be no more. */
static bool look_at(ssize_t k, const unsigned char *text, size_t room)
{
	must(k <= (ssize_t)room);
	if (k > 0) {
		must(!us.failed);
		must(!us.dry);
		must(us.got + (size_t)k <= peer.texts);
		must(!memcmp(text, peer.text + us.got, (size_t)k));
		us.got += (size_t)k;
		us.dry = (size_t)k < room;
		return true;
	}
	if (k < 0 && errno == EBADMSG) {
		must(peer.wrong && us.got == peer.texts);
		us.failed = true;
		return false;
	}
	if (!k)
		must(us.fd[1] < 0 && us.got == peer.texts && !us.failed);
	else
		must(errno == EAGAIN && !us.failed);
	us.dry = k < 0 && us.fd[1] >= 0;
	return k < 0;
}

/* Two pieces in rooms of their own: a write past them is seen. */
static bool receive(size_t a, size_t b)
{
	unsigned char *first = malloc(a ? a : 1), *second = malloc(b ? b : 1),
		      *all = malloc(a + b + 1);
	const struct iovec v[2] = { { first, a }, { second, b } };
	ssize_t k;
	bool goes_on;

	must(first && second && all);
	k = net_box_receive(us.box, us.fd[0], a ? v : v + 1, a && b ? 2 : 1);
	memcpy(all, first, a);
	memcpy(all + a, second, b);
	goes_on = look_at(k, all, a + b);
	free(first);
	free(second);
	free(all);
	return goes_on;
}

/* Only the next text, where a record has it alone. */
static void peek(size_t bytes)
{
	unsigned char *to = malloc(bytes + 1);
	ssize_t k;

	must(to != NULL);
	k = net_box_peek(us.box, us.fd[0], to, bytes);
	if (k > 0)
		must((size_t)k == bytes && us.got + bytes <= peer.texts &&
		     !memcmp(to, peer.text + us.got, bytes));
	else
		must(k || us.fd[1] < 0);
	free(to);
}

/* The end of a text that the peer has sealed. */
static void last(size_t bytes)
{
	unsigned char *to = malloc(bytes + 1);
	bool found;

	must(to != NULL);
	found = !net_box_last(us.box, to, bytes);
	for (size_t i = 0; i < peer.records && !found; i++) {
		size_t n = peer.record[i].bytes, end = peer.record[i].at + n;

		found = n >= bytes && !memcmp(to, peer.said + end - bytes, bytes);
	}
	must(found);
	free(to);
}

/* Sizes of all orders of magnitude. */
static size_t of(uint8_t byte)
{
	return (size_t)(byte % 32 + 1) << (byte / 32 * 3 / 2);
}

static bool turn(const uint8_t in[TURN_BYTES])
{
	push(of(in[2]) * 4);
	switch (in[0] % 8) {
	case 0:
		peek(in[1] + 1u);
		return true;
	case 1:
		last(1 + in[1] % LAST_MOST);
		return true;
	case 2:
	case 3:
		return receive(of(in[1]), of(in[0]));
	default:
		return receive(0, of(in[1]));
	}
}

static void receive_parts(const uint8_t *turns, size_t n)
{
	size_t most = 2 * WIRE_MOST;
	bool goes_on = true;

	for (size_t i = 0; i < n && goes_on; i++)
		goes_on = turn(turns + i * TURN_BYTES);
	while (goes_on && most--) {
		push(WIRE_MOST);
		goes_on = receive(0, 30000);
	}
	must(!goes_on && us.got == peer.texts);
	if (us.failed)
		must(!receive(3, 5) && us.failed);
}

/* ---- a sender of ours ---- */

static void relay(const uint8_t *turns, size_t n, struct net_box *sender)
{
	const size_t all = peer.texts = 50000;
	const int small = 1;
	size_t sent = 0, i = 0;

	setsockopt(us.fd[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	for (size_t k = 0; k < all; k++)
		peer.text[k] = (unsigned char)(k * 7 + (k >> 8));
	for (size_t most = 4 * all; most-- && us.got < all; i++) {
		const uint8_t *in = n ? turns + i % n * TURN_BYTES
				      : (const uint8_t[]){ 9, 255, 255 };
		size_t a = least(16 * of(in[1]), all - sent),
		       b = least(of(in[2]), all - sent - a);
		const struct iovec v[2] = { { peer.text + sent, a },
					    { peer.text + sent + a, b } };
		ssize_t k = a ? net_box_send(sender, us.fd[1], v, b ? 2 : 1) : 0;

		must(k <= (ssize_t)NET_RECORD_BYTES && (k >= 0 || errno == EAGAIN));
		must(k >= 0 || net_box_is_half(sender));
		sent += k > 0 ? (size_t)k : 0;
		us.dry = false;
		must(receive(in[0] % 2 ? of(in[0]) : 0, of(in[1])));
	}
	must(us.got == all);
}

/* ---- one input ---- */

static void open_all(bool aes)
{
	must(!net_key_init());
	memset(key[0], 1, sizeof key[0]);
	memset(key[1], 2, sizeof key[1]);
	memset(&us, 0, sizeof us);
	peer.number = peer.wires = peer.sent = peer.records = peer.at = peer.texts = 0;
	us.box = net_box_make(key[1], key[0], aes);
	must(us.box != NULL);
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, us.fd));
	for (int i = 0; i < 2; i++)
		net_cipher_begin(&peer.cipher[i], key[i], aes, true);
}

static void close_all(void)
{
	net_box_free(us.box);
	close(us.fd[0]);
	if (us.fd[1] >= 0)
		close(us.fd[1]);
	for (int i = 0; i < 2; i++)
		net_cipher_end(&peer.cipher[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_box *sender;
	bool aes;
	size_t n;

	if (size < 2)
		return 0;
	n = least(data[1], (size - 2) / TURN_BYTES);
	aes = data[0] & 1 && !net_key_init() && crypto_aead_aes256gcm_is_available();
	open_all(aes);
	if (data[0] & 2 && data[0] & 4) { /* it takes longer */
		sender = net_box_make(key[0], key[1], aes);
		must(sender != NULL);
		relay(data + 2, n, sender);
		net_box_free(sender);
	} else {
		make_parts(data + 2 + n * TURN_BYTES, size - 2 - n * TURN_BYTES);
		receive_parts(data + 2, n);
	}
	close_all();
	return 0;
}
