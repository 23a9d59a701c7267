/* libFuzzer on srun_command.h, in three parts: a slurm.conf; what srun says; lines of
 * an environment. */
#include "fuzz.h"
#include "launcher/transport/srun_command.h"

static void check(bool good)
{
	if (!good)
		abort();
}

static void take_conf(const char *conf)
{
	unsigned first = 0, last = 0;
	char *socket;
	const bool found = srun_port_range(conf, &first, &last);

	check(found ? first && first <= last && last < 65536 : !first && !last);
	socket = srun_munge_socket(conf);
	check(!socket || (*socket == '/' && !strpbrk(socket, ", \t\r\n\"#") &&
			  strstr(conf, socket)));
	free(socket);
	check(srun_auth_type(conf) != SRUN_AUTH_OWN || strcasestr(conf, "auth/slurm") ||
	      strcasestr(conf, "auth/none"));
}

/* Whatever it is, it is one line, which does not act on a terminal. */
static void take_said(char *said)
{
	char *words = srun_words(said), *line;

	for (const char *p = words ? words : ""; *p; p++)
		check((unsigned char)*p >= ' ');
	check(!words || (*words && strlen(words) <= strlen(said)));
	free(words);
	while ((line = strsep(&said, "\n"))) {
		const char *host = srun_again(line);

		check(!host || (host > line && host <= line + strlen(line)));
	}
}

static void take_environment(char *text)
{
	struct strv own = { 0 }, env = { 0 };

	fuzz_lines(&own, text, 1000);
	strv_add(&own, "SECRET=1");
	srun_environment(&env, own.v);
	check(env.n && env.n <= own.n);
	for (size_t i = 0; i < env.n; i++)
		check(!strncmp(env.v[i], "PATH=", 5) ||
		      !strncmp(env.v[i], "HOME=", 5) ||
		      !strncmp(env.v[i], "SLURM_", 6) || i + 1 == env.n);
	strv_free(&own);
	strv_free(&env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	char *part = fuzz_part(&in, NULL);

	take_conf(part);
	free(part);
	part = fuzz_part(&in, NULL);
	take_said(part);
	free(part);
	part = fuzz_part(&in, NULL);
	take_environment(part);
	free(part);
	return 0;
}
