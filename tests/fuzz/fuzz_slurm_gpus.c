/* libFuzzer on slurm_gpus.h, in three parts: what `scontrol show job --details` says,
 * what `scontrol --version` says, lines of an environment. */
#include "fuzz.h"
#include "launcher/hosts/slurm_gpus.h"

enum { HOSTS = 12, GPUS_MAX = 65535 };

static void check(bool good)
{
	if (!good)
		abort();
}

static void take_job(const char *text)
{
	struct hosts hosts = { 0 };
	int gpus[HOSTS];

	check(!hosts_parse(&hosts, "n[1-12]", NULL) && hosts.n == HOSTS);
	slurm_gpus_read(gpus, &hosts, text);
	for (size_t i = 0; i < HOSTS; i++)
		check(gpus[i] >= 0 && gpus[i] <= GPUS_MAX);
	hosts_free(&hosts);
}

static void take_environment(char *text)
{
	struct strv env = { 0 };
	char *option;

	fuzz_lines(&env, text, 1000);
	strv_add(&env, "HOME=/");
	slurm_gpus_differ(env.v);
	option = slurm_gpus_option(env.v);
	check(!option || !strncmp(option, "--gpus-per-node=", 16));
	free(option);
	strv_free(&env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	char *part = fuzz_part(&in, NULL);

	take_job(part);
	free(part);
	part = fuzz_part(&in, NULL);
	slurm_gpus_any_option(part);
	free(part);
	part = fuzz_part(&in, NULL);
	take_environment(part);
	free(part);
	return 0;
}
