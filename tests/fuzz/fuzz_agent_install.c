/* libFuzzer on agent_install.h: what a login prints instead of, before and as an
 * agent.  The first byte chooses the options, the second the size of the pieces in
 * which the rest comes. */
#include "fuzz.h"

#include "common/wire.h"
#include "launcher/transport/agent_install.h"

/* All that may be pending is sent, as a transport does. */
static void send_pending(struct agent_install *b)
{
	size_t n;

	while (agent_install_pending(b, &n), n)
		agent_install_sent(b, n > 1000 ? 1000 : n);
}

static void check(const struct agent_install *b, enum install_event got)
{
	if (got == INSTALL_FAILED && (!b->err.id || !*b->err.text))
		abort();
	if (got == INSTALL_UP &&
	    (b->in.len < WIRE_MAGIC_BYTES ||
	     memcmp(buf_head(&b->in), WIRE_MAGIC, WIRE_MAGIC_BYTES)))
		abort();
	if (b->stage == INSTALL_DIRECT &&
	    strpbrk(agent_install_command((struct agent_install *)b), "\n!"))
		abort(); /* one line for any login shell */
	if (b->in.len + b->noise.len > 2 * INSTALL_NOISE_MAX + 65536)
		abort();
	for (const char *p = b->err.text; *p; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			abort(); /* nothing from there acts on the terminal */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct transport_setup setup = { .own_agent = fuzz_file("agent", 5) };
	enum install_event got = INSTALL_WAIT;
	struct agent_install b;
	size_t piece;

	if (size < 2)
		return 0;
	setup.no_push = data[0] & 1;
	setup.agent = data[0] & 2 ? "/opt/agent" : NULL;
	piece = data[1] ? data[1] : 1;
	agent_install_init(&b, &setup, "user@host:22");
	for (size_t i = 2; i < size; i += piece) {
		size_t n = size - i < piece ? size - i : piece;

		send_pending(&b);
		if (got == INSTALL_UP || got == INSTALL_FAILED)
			break;
		/* a byte 0x04 ends the command */
		if (data[i] == 4)
			got = agent_install_ended(&b, data[0] >> 2,
						  "some\x1b[31mthing");
		else
			got = agent_install_bytes(&b, data + i, n);
		check(&b, got);
	}
	if (got != INSTALL_UP && got != INSTALL_FAILED) {
		agent_install_late(&b);
		check(&b, INSTALL_FAILED);
	}
	agent_install_free(&b);
	return 0;
}
