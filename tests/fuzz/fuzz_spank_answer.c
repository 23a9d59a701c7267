/* libFuzzer on what berth-agent --step answers (contrib/slurm/answer.c): the first byte
 * is the number of tasks.  What is believed must hold. */
#include "contrib/slurm/answer.h"
#include "fuzz.h"

static void hold(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t tasks = size ? *data % 16 : 0;
	char *text;
	struct answer a;

	if (!size)
		return 0;
	text = xstrndup((const char *)data + 1, size - 1);
	if (answer_read(&a, text, tasks)) {
		hold(a.off || a.error || a.tasks == tasks);
		hold(a.tasks <= tasks);
		for (size_t i = 0; i < a.tasks; i++) {
			hold(a.task[i].n <= ANSWER_VARIABLES && a.task[i].gpu >= -1);
			for (size_t k = 0; k < a.task[i].n; k++)
				hold(*a.task[i].v[k].name &&
				     strlen(a.task[i].v[k].name) < ANSWER_NAME_BYTES &&
				     !strchr(a.task[i].v[k].name, '='));
		}
		free(a.task);
	} else {
		hold(!a.task && !a.tasks);
	}
	free(text);
	return 0;
}
