/* libFuzzer on key.h: any bytes as a call, as an answer, as a sealed stream.
 *
 * The first byte says what is done.  What nobody sealed must not open.  A stream that
 * one side sealed, of which the input says how it is cut up and changed, opens to a
 * beginning of what was said, and to all of it if nothing was changed. */
#include "common/key.h"
#include "fuzz.h"

static unsigned char key[KEY_BYTES] = "a key that both sides have";

static void check(bool good)
{
	if (!good)
		abort();
}

/* Both sides agree once: the random bytes of a pair take most of the time. */
static void agree(struct key_side *a, struct key_side *b)
{
	static struct key_side first, second;
	static bool done;
	unsigned char call[KEY_CALL_BYTES], answer[KEY_ANSWER_BYTES];

	if (!done) {
		check(!key_init());
		key_call(&first, key, call);
		check(key_answer(&second, key, call, answer));
		check(key_answered(&first, answer));
		done = true;
	}
	*a = first;
	*b = second;
}

static void forged(const uint8_t *data, size_t size, bool called)
{
	unsigned char call[KEY_CALL_BYTES], answer[KEY_ANSWER_BYTES];
	struct key_side s;

	if (size < (called ? sizeof call : sizeof answer))
		return;
	if (called) {
		memcpy(call, data, sizeof call);
		check(!key_answer(&s, key, call, answer));
	} else {
		key_call(&s, key, call);
		memcpy(answer, data, sizeof answer);
		check(!key_answered(&s, answer));
	}
	key_forget(&s);
}

static void garbage(const uint8_t *data, size_t size)
{
	struct key_side a, b;
	struct buf in = { 0 }, plain = { 0 };

	agree(&a, &b);
	buf_add(&in, data, size);
	if (size && data[0] & 1) { /* after a header that is good */
		struct buf sealed = { 0 };

		key_seal(&a, &sealed, data, 1);
		check(!key_open(&b, &sealed, &plain));
		buf_drop(&plain, 1);
		buf_free(&sealed);
	}
	key_open(&b, &in, &plain);
	check(!plain.len);
	buf_free(&in);
	buf_free(&plain);
}

/* Each byte of the input: how many bytes arrive next, of which one is changed if it is
 * one of these; or how many are said. */
static void changed(const uint8_t *data, size_t size)
{
	enum { CHANGES = 0xfe, SAYS = 0xc0 };
	struct key_side a, b;
	struct buf sealed = { 0 }, in = { 0 }, plain = { 0 }, said = { 0 };
	bool sound = true, good = true;

	agree(&a, &b);
	for (size_t i = 0; i < size && good; i++) {
		size_t n = data[i];

		if (n >= SAYS && n < CHANGES) {
			n = (n - SAYS) * (n - SAYS) * 37 + 1;
			memset(buf_reserve(&said, n), (int)i, n);
			key_seal(&a, &sealed, buf_head(&said) + said.len, n);
			said.len += n;
			continue;
		}
		n = n < SAYS ? n * n : 1;
		n = n < sealed.len ? n : sealed.len;
		if (data[i] >= CHANGES && n) {
			buf_head(&sealed)[0] ^= (unsigned char)(1 << i % 8);
			sound = false;
		}
		buf_add(&in, buf_head(&sealed), n);
		buf_drop(&sealed, n);
		good = !key_open(&b, &in, &plain);
		check(good || !sound);
	}
	if (sound) {
		buf_add(&in, buf_head(&sealed), sealed.len);
		check(!key_open(&b, &in, &plain) && plain.len == said.len && !in.len);
	}
	check(plain.len <= said.len &&
	      (!plain.len || !memcmp(buf_head(&plain), buf_head(&said), plain.len)));
	buf_free(&sealed);
	buf_free(&in);
	buf_free(&plain);
	buf_free(&said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size || key_init())
		return 0;
	switch (data[0] % 4) {
	case 0:
	case 1:
		forged(data + 1, size - 1, data[0] % 4);
		break;
	case 2:
		garbage(data + 1, size - 1);
		break;
	default:
		changed(data + 1, size - 1);
	}
	return 0;
}
