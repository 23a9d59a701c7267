/* libFuzzer on what tells where a rank is, a part of the input each: what faulthandler
 * wrote, what py-spy and eu-stack print.  All three ranks are then told to the user. */
#include "fuzz.h"

#include "agent/ranks/stack.h"
#include "agent/ranks/stack_tool.h"
#include "launcher/job/dump_text.h"

enum { RANKS = 3 };

static void check_frames(const struct str *stack)
{
	const char *text = str_text(stack);
	size_t lines = 0;

	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	if (lines > STACK_FRAMES || (*text && text[strlen(text) - 1] != '\n'))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct dump_rank v[RANKS];
	struct dump_facts f = { .job = "0123456789ab", .v = v, .np = RANKS };
	struct str stack[RANKS] = { 0 }, out = { 0 };

	for (uint32_t i = 0; i < RANKS; i++) {
		char *text = fuzz_part(&in, NULL);

		if (i)
			stack_tool_pick(text, i == 1, &stack[i]);
		else
			stack_pick(text, &stack[i]);
		check_frames(&stack[i]);
		free(text);
		v[i] = (struct dump_rank){ .host = "n1",
					   .lives = true,
					   .known = true,
					   .state = 'S',
					   .wchan = "",
					   .stack = str_text(&stack[i]),
					   .why = "",
					   .op = "",
					   .last = "",
					   .quiet_ms = -1 };
	}
	dump_text(&out, &f);
	if (!out.len || out.len > DUMP_BYTES + 4096)
		abort();
	str_free(&out);
	for (uint32_t i = 0; i < RANKS; i++)
		str_free(&stack[i]);
	return 0;
}
