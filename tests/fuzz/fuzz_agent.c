/* libFuzzer on what runner says to an agent: bytes through agent/stream.c and what
 * messages.c makes of them, placement and environment included.
 *
 * The machine is a saved one, so no rank is ever started; nothing is swept. */
#define main agent_program
#define agent_take fuzzed_take
#define agent_forget_job fuzzed_forget_job
#define procs_sweep_job no_sweep
#define agent_start no_start
#include "agent/messages.c"
#include "agent/main.c"
#undef main
#undef agent_start

#include "agent/placement/gpu_internal.h"
#include "fuzz.h"

size_t no_sweep(const char *job_id)
{
	if (!*job_id)
		abort();
	return 0;
}

void agent_start(struct agent *a, const struct wire_start *m);

/* What a rank would be given, and no rank. */
void no_start(struct agent *a, const struct wire_start *m)
{
	for (uint32_t i = 0; a->state == START_PLACED && i < a->placement.n; i++) {
		struct env_rank r = agent_env_rank(a, i);
		struct env_base base = { 0 };
		char *none[] = { NULL };

		env_base(&base, &r, none);
		free(env_build(&base, &r));
		env_base_free(&base);
	}
	agent_start(a, m);
}

static void load_machine(struct agent *a)
{
	static const char xml[] =
		"<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" "
		"cpuset=\"0x3\" complete_cpuset=\"0x3\" allowed_cpuset=\"0x3\" "
		"nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\">"
		"<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" "
		"complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" "
		"complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" "
		"complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"</object></topology>\n";
	static const struct gpu_address address = { .bus = 16 };
	struct err e = { 0 };

	a->xml = fuzz_file(xml, sizeof xml - 1);
	if (topo_load(&a->topo, a->xml, &e)) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
	gpu_find(&a->gpus, &a->topo, &(struct gpu_sources){ .root = "" });
	gpu_add(&a->gpus, GPU_NVIDIA, &address)->index = 0;
}

/* DATA on descriptor 0, as runner sends it, then the end of the stream. */
static void feed(const uint8_t *data, size_t size)
{
	int fd[2];

	if (pipe(fd) || write(fd[1], data, size) != (ssize_t)size)
		abort();
	dup2(fd[0], 0);
	close(fd[0]);
	close(fd[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct agent a = { .guardian = -1, .port = { .fd = -1 } };

	if (size > 60000)
		return 0; /* a pipe's worth */
	if (!a.base) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, 1);
		close(null);
		a.base = event_base_new();
		a.job_socket = -1;
		load_machine(&a);
	}
	feed(data, size);
	stream_begin(&a.stream, a.base, NULL);
	a.done = false;
	a.epoch = 0;
	main_watch(&a);
	fuzzed_forget_job(&a);
	stream_end(&a.stream);
	return 0;
}
