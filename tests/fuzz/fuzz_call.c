/* libFuzzer on what runner says on an agent's stdin (call.h): any bytes as the `door`
 * that a credential of MUNGE holds, or in clear, and any bytes as the whole `call`.
 *
 * The first byte says which.  What is in clear is taken only where clear was said, and
 * nothing of a call that fails is left. */
#include "agent/call.h"
#include "common/munge.h"
#include "fuzz.h"

static const uint8_t *held;
static size_t nheld;
static bool opened;

int __wrap_munge_unwrap(const char *socket, const char *credential, struct buf *out,
			struct str *why);
int __wrap_munge_unwrap(const char *socket, const char *credential, struct buf *out,
			struct str *why)
{
	(void)socket;
	opened = true;
	if (strncmp(credential, "MUNGE:", 6) != 0)
		abort();
	if (nheld && held[0] == 0xff) {
		str_add(why, "it does not open");
		return -1;
	}
	buf_add(out, held, nheld);
	return 0;
}

static void check(bool good)
{
	if (!good)
		abort();
}

/* A call whose door is the N bytes at P, after the frame's own reader. */
static void take(bool munge, const void *p, size_t n)
{
	static struct call call;
	const struct call_how how = { .munge = munge };
	const struct wire_call m = { .version = BERTH_VERSION,
				     .wire = WIRE_VERSION,
				     .door = { p, n } };
	struct buf b = { 0 };
	struct str where = { 0 };
	struct wire_frame f;
	struct err e = { 0 };

	wire_pack_call(&b, &m);
	if (wire_next_from(WIRE_LAUNCHER, &f, buf_head(&b), b.len, &e) > 0 &&
	    !call_take(&call, &how, &f, &e)) {
		check(opened == munge);
		check(call.n && call.n <= CALL_ADDRESSES_MOST);
		call_where(&where, &call);
		check(strstr(str_text(&where), " (port ") != NULL);
	} else {
		check(e.id != ERR_NONE);
	}
	str_free(&where);
	buf_free(&b);
}

/* Any bytes as a frame. */
static void take_whole(bool munge, const uint8_t *data, size_t size)
{
	static struct call call;
	const struct call_how how = { .munge = munge };
	struct wire_frame f;
	struct err e = { 0 };

	if (wire_next_from(WIRE_LAUNCHER, &f, data, size, &e) <= 0 ||
	    f.type != WIRE_call)
		return;
	if (!call_take(&call, &how, &f, &e))
		check(opened == munge && call.n);
	else
		check(e.id == E_CALL || e.id == E_AGENT_OTHER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct call_how how;
	char *text;

	if (!size)
		return 0;
	held = data + 1;
	nheld = size - 1;
	opened = false;
	switch (data[0] % 5) {
	case 0: /* what the credential holds */
		take(true, "MUNGE:x:", 8);
		break;
	case 1: /* in clear, as was said */
		take(false, held, nheld);
		break;
	case 2: /* in clear, and MUNGE was said */
		take(true, held, nheld);
		break;
	case 3:
		take_whole(size & 1, held, nheld);
		break;
	default:
		text = xstrndup((const char *)held, nheld);
		if (call_how_read(&how, text))
			check(how.munge || !how.socket);
		free(text);
	}
	return 0;
}
