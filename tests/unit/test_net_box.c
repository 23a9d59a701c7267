/* lib/net with BERTH_NET_SECURE=aead: no byte of a connection can be changed, said
 * again, moved or left out.
 * limit_s: 200 */
#include "turn.h"

#include <errno.h>
#include <sodium.h>
#include <signal.h>
#include <stdio.h>

#include "lib/net/net_cipher.h"

/* ---- records alone ---- */

/* Whichever library has sealed a record, both open it, and neither opens another. */
START_TEST(ciphers)
{
	static const size_t sizes[] = { 1, 511, 512, 513, 1000, NET_RECORD_BYTES };
	static unsigned char text[NET_RECORD_BYTES], got[NET_RECORD_BYTES],
		record[2][NET_RECORD_BYTES + NET_CIPHER_TAG_BYTES];
	const unsigned char secret[NET_CIPHER_KEY_BYTES] =
		"thirty-two bytes of a key, or so";
	struct net_cipher out[2], in[2];
	const size_t bytes = sizes[_i];

	ck_assert(!net_key_init());
	for (int k = 0; k < 2; k++) {
		net_cipher_begin(&out[k], secret, crypto_aead_aes256gcm_is_available(),
				 true);
		net_cipher_begin(&in[k], secret, crypto_aead_aes256gcm_is_available(),
				 false);
	}
	if (!out[0].large)
		printf("skipped: no libcrypto, or no AES\n");
	net_cipher_end(&out[1]);
	net_cipher_end(&in[1]);
	out[1] = out[0];
	in[1] = in[0];
	out[1].large = in[1].large = NULL; /* libsodium */
	for (size_t i = 0; i < bytes; i++)
		text[i] = (unsigned char)(i * 7);
	for (int k = 0; k < 2; k++)
		ck_assert(net_cipher_seal(&out[k], 5, record[k], text, bytes));
	ck_assert(!memcmp(record[0], record[1], bytes + NET_CIPHER_TAG_BYTES));
	for (int k = 0; k < 2; k++) {
		ck_assert(net_cipher_open(&in[k], 5, got, record[0], bytes));
		ck_assert(!memcmp(got, text, bytes));
		ck_assert(!net_cipher_open(&in[k], 6, got, record[0], bytes));
		record[0][(size_t)rand() % (bytes + NET_CIPHER_TAG_BYTES)] ^= 1;
		ck_assert(!net_cipher_open(&in[k], 5, got, record[0], bytes));
		memcpy(record[0], record[1], sizeof record[0]);
	}
	net_cipher_end(&out[0]);
	net_cipher_end(&in[0]);
}
END_TEST

/* ---- boxes alone ---- */

struct pair {
	struct net_box *box[2];
	int fd[2];
};

static struct pair pair_open(bool aes)
{
	unsigned char way[2][NET_WAY_KEY_BYTES];
	struct pair p;

	ck_assert(!net_key_init());
	memset(way[0], 1, sizeof way[0]);
	memset(way[1], 2, sizeof way[1]);
	ck_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p.fd));
	p.box[0] = net_box_make(way[0], way[1], aes);
	p.box[1] = net_box_make(way[1], way[0], aes);
	return p;
}

static void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		net_box_free(p->box[i]);
		close(p->fd[i]);
	}
}

/* Pieces of any size, of which the socket takes what it likes, come as they were. */
START_TEST(pieces)
{
	enum { ALL = 3 << 20 };
	static unsigned char from[ALL], to[ALL];
	struct pair p = pair_open(_i);
	unsigned seed = (unsigned)getpid();
	size_t sent = 0, got = 0;

	printf("SEED=%u\n", seed);
	for (size_t i = 0; i < ALL; i++)
		from[i] = (unsigned char)rand_r(&seed);
	while (got < ALL) {
		size_t most = 1 + (unsigned)rand_r(&seed) % 100000,
		       first = (unsigned)rand_r(&seed) % most;
		struct iovec v[2];
		ssize_t k;

		if (most > ALL - sent)
			most = ALL - sent;
		if (first >= most)
			first = most / 2;
		v[0] = (struct iovec){ from + sent, first };
		v[1] = (struct iovec){ from + sent + first, most - first };
		if (most) {
			k = net_box_send(p.box[0], p.fd[0], first ? v : v + 1,
					 first ? 2 : 1);
			ck_assert(k > 0 || errno == EAGAIN);
			sent += k > 0 ? (size_t)k : 0;
		}
		most = 1 + (unsigned)rand_r(&seed) % 100000;
		if (most > ALL - got)
			most = ALL - got;
		first = most / 3;
		v[0] = (struct iovec){ to + got, first };
		v[1] = (struct iovec){ to + got + first, most - first };
		k = net_box_receive(p.box[1], p.fd[1], v, 2);
		ck_assert(k > 0 || errno == EAGAIN);
		got += k > 0 ? (size_t)k : 0;
	}
	ck_assert(!memcmp(from, to, ALL));
	pair_close(&p);
}
END_TEST

START_TEST(last_ones)
{
	struct pair p = pair_open(_i);
	char got[64];

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(net_box_send(p.box[0], p.fd[0],
					      &(struct iovec){ "0123456789" + i, 5 },
					      1),
				 5);
	errno = 0;
	ck_assert_int_eq(net_box_peek(p.box[1], p.fd[1], got, 5), 5);
	ck_assert(!memcmp(got, "01234", 5));
	ck_assert(!net_box_last(p.box[1], got, 5));
	ck_assert_int_eq(
		net_box_receive(p.box[1], p.fd[1], &(struct iovec){ got, 5 }, 1), 5);
	ck_assert(net_box_last(p.box[1], got, 5));
	ck_assert(!memcmp(got, "23456", 5));
	ck_assert(!net_box_last(p.box[1], got, 6));
	ck_assert_int_eq(net_box_peek(p.box[1], p.fd[1], got, 5), -1);
	pair_close(&p);
}
END_TEST

/* ---- a man in the middle ---- */

static bool aes;
static int own[2]; /* what goes into the first end comes out of the other, sealed */

static int proven_aead(const struct turn *t)
{
	struct net_hello h = { .to = 1,
			       .at = 1,
			       .ranks = 3,
			       .secure = aes ? NET_AEAD | NET_AES : NET_AEAD };
	int fd = stranger_connect(t->n);

	net_hello_make(&h, stranger_key);
	if (stranger_prove_by(fd, &h))
		_exit(8);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, own))
		_exit(8);
	stranger_channel.fd = own[0];
	return fd;
}

enum { RECORD = 16 + sizeof(struct head) + 12 + 16 };

/* The next message as it goes over the wire. */
static void next_record(unsigned char record[RECORD])
{
	const struct message m = good();
	const size_t n = sizeof m - sizeof m.tail; /* which is needed in no box */

	if (net_channel_send(&stranger_channel,
			     &(struct iovec){ (void *)(uintptr_t)&m, n },
			     1) != (ssize_t)n ||
	    stranger_hear(own[1], record, RECORD) != RECORD)
		_exit(8);
}

static void does(const struct turn *t)
{
	int fd = proven_aead(t);
	unsigned char r[3][RECORD];

	for (int i = 0; i < 3; i++)
		next_record(r[i]);
	switch (t->k) {
	case 0: /* changes */
		r[0][t->at] ^= (unsigned char)t->change;
		stranger_say(fd, r, sizeof r);
		break;
	case 1:                                  /* cuts a byte out */
		if (r[1][0] == r[0][RECORD - 1]) /* it would stand in for the last */
			r[1][0] ^= 1;
		stranger_say(fd, r[0], t->at);
		stranger_say(fd, r[0] + t->at + 1, RECORD - t->at - 1);
		stranger_say(fd, r[1], 2 * RECORD);
		break;
	case 2: /* leaves one out */
		stranger_say(fd, r[1], 2 * RECORD);
		break;
	default:                                /* adds one */
		if (r[2][t->at] == r[0][t->at]) /* the same */
			r[2][t->at] ^= 1;
		stranger_say(fd, r[0], t->at);
		stranger_say(fd, r[2] + t->at, 1);
		stranger_say(fd, r[0] + t->at, RECORD - t->at);
		stranger_say(fd, r[1], 2 * RECORD);
	}
	pause();
}

static void replays(const struct turn *t)
{
	int fd = proven_aead(t);
	unsigned char r[RECORD];

	next_record(r);
	stranger_say(fd, r, sizeof r);
	stranger_say(fd, r, sizeof r);
	pause();
}

static void goes(const struct turn *t)
{
	int fd = proven_aead(t);
	unsigned char r[RECORD];

	next_record(r);
	stranger_say(fd, r, t->at);
}

/* GOOD messages come, then RC. */
static void meet(void (*child)(const struct turn *t), struct turn *t,
		 unsigned good_ones, berth_result rc)
{
	char got[12];
	pid_t pid;

	t->n = stranger_net(1, 3);
	t->n->config.guard = NET_GUARD_AEAD;
	pid = fork();
	if (!pid) {
		child(t);
		_exit(0);
	}
	while (good_ones--) {
		ck_assert_int_eq(stranger_wait(t->n, got, PATIENCE_MS), BERTH_OK);
		ck_assert(!memcmp(got, "twelve bytes", 12));
	}
	memset(got, 'x', sizeof got);
	ck_assert_msg(stranger_wait(t->n, got, PATIENCE_MS) == rc, "%zu at %zu", t->k,
		      t->at);
	ck_assert(!memcmp(got, "xxxxxxxxxxxx", 12));
	ck_assert_int_eq(net_fault(t->n)->kind,
			 rc == BERTH_AUTH ? NET_FORGED : NET_CUT);
	net_close(t->n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

START_TEST(each_byte)
{
	aes = _i && crypto_aead_aes256gcm_is_available();
	for (size_t at = 0; at < RECORD; at++)
		for (size_t k = 0; k < 4; k += k ? 2 : 1) {
			struct turn t = { .at = at, .k = k, .change = 1u << at % 8 };

			if (k < 2 || at % 16 == 5)
				meet(does, &t, 0, BERTH_AUTH);
		}
}
END_TEST

START_TEST(whole_ones)
{
	aes = _i && crypto_aead_aes256gcm_is_available();
	meet(does, &(struct turn){ .k = 2 }, 0, BERTH_AUTH);
	meet(replays, &(struct turn){ 0 }, 1, BERTH_AUTH);
	meet(goes, &(struct turn){ .at = 0 }, 0, BERTH_PEER_LOST);
	meet(goes, &(struct turn){ .at = 20 }, 0, BERTH_PEER_LOST);
	meet(goes, &(struct turn){ .at = RECORD - 1 }, 0, BERTH_PEER_LOST);
}
END_TEST

/* One side has aead, the other one has not. */
START_TEST(modes)
{
	struct net *n[2] = { stranger_net(0, 2), stranger_net(1, 2) };
	const char *text = "has another BERTH_NET_SECURE";
	int status;
	pid_t pid;

	n[_i]->config.guard = NET_GUARD_AEAD;
	ck_assert(!net_peer(n[0], 1, net_address(n[1])));
	ck_assert(!net_peer(n[1], 0, net_address(n[0])));
	pid = fork();
	if (!pid) /* it has no thread at its door, and begins */
		_exit(net_have(n[0], 1, 0, 0) != BERTH_AUTH || !net_fault(n[0]) ||
		      strcmp(net_fault(n[0])->text, text));
	ck_assert_int_eq(net_have(n[1], 0, 0, 0), BERTH_AUTH);
	ck_assert_str_eq(net_fault(n[1])->text, text);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	net_close(n[0]);
	net_close(n[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_box");
	TCase *t = tcase_create("net_box");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, ciphers, 0, 6);
	tcase_add_loop_test(t, pieces, 0, 2);
	tcase_add_loop_test(t, last_ones, 0, 2);
	tcase_add_loop_test(t, each_byte, 0, 2);
	tcase_add_loop_test(t, whole_ones, 0, 2);
	tcase_add_loop_test(t, modes, 0, 2);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
