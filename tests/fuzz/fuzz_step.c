/* libFuzzer on what berth_spank.so asks berth-agent --step (agent/step_request.c). */
#include "agent/step_request.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size);
	const struct cpuset like = cpuset_new(2);
	struct cpuset masks[3] = { 0 }, room = like;
	struct step_request q;
	struct step_options o;
	uint32_t rank, of;
	char host[32];
	bool may[6];

	if (!step_request_read(&q, text, NULL)) {
		step_options_read(&o, q.options, NULL);
		if (q.task_gpus &&
		    !step_gpu_lists(may, 3, q.task_gpus, (const int[]){ 1, 7 }, 2))
			may[0] = false;
		step_first_host(host, sizeof host, q.hosts);
		if (step_cross(&rank, &of, q.layout, 0, q.node) && rank > of)
			abort();
		if (step_masks(masks, 3, q.bind_type, q.bind_list, &like))
			for (size_t i = 0; i < 3; i++)
				cpuset_free(&masks[i]);
	}
	step_request_free(&q);
	cpuset_free(&room);
	free(text);
	return 0;
}
