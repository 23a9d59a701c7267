#include "lib/boot/boot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define COUNT(...) (sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))
_Static_assert(COUNT(KIND_NAMES) == KIND_COUNT && COUNT(TYPE_NAMES) == TYPE_COUNT &&
		       COUNT(OP_NAMES) == OP_COUNT,
	       "names.def and berth.h differ");
_Static_assert(KIND_LAST_REDUCTION == BERTH_REDUCESCATTER &&
		       KIND_BARRIER == BERTH_BARRIER,
	       "names.def and berth.h differ");

/* ---- alone ---- */

static berth_result alone_join(void **state, struct boot_world *w,
			       const struct berth_bootstrap *given, char *why)
{
	char name[256] = "";

	(void)given;
	*state = NULL;
	*w = (struct boot_world){ .size = 1,
				  .local_size = 1,
				  .cross_size = 1,
				  .hosts = 1,
				  .epoch = w->epoch + 1,
				  .memory = -1 };
	gethostname(name, sizeof name - 1);
	w->host = calloc(1, sizeof *w->host);
	w->host_name = calloc(1, sizeof *w->host_name);
	if (w->host_name)
		w->host_name[0] = strdup(name);
	if (!w->host || !w->host_name || !w->host_name[0]) {
		boot_world_free(w);
		return boot_out_of_memory(why);
	}
	if (getrandom(w->key, sizeof w->key, 0) == sizeof w->key)
		return BERTH_OK;
	boot_world_free(w);
	snprintf(why, BOOT_WHY_BYTES, "no random numbers: %s", strerror(errno));
	return BERTH_SYSTEM;
}

static berth_result alone_memory(void *state, struct boot_world *w, size_t bytes,
				 char *why)
{
	(void)state;
	w->memory = boot_memfd(bytes, why);
	w->memory_bytes = bytes;
	return w->memory < 0 ? BERTH_SYSTEM : BERTH_OK;
}

static berth_result alone_fence(void *state, struct boot_world *w, const char *mine,
				const struct boot_patience *patience, char ***all,
				char *why)
{
	size_t bytes = strlen(mine) + 1;
	char **v = malloc(sizeof *v + bytes);

	(void)state;
	(void)w;
	(void)patience;
	if (!v)
		return boot_out_of_memory(why);
	v[0] = (char *)(v + 1);
	memcpy(v[0], mine, bytes);
	*all = v;
	return BERTH_OK;
}

static void alone_leave(void *state)
{
	(void)state;
}

const struct boot boot_alone = {
	.name = "alone",
	.join = alone_join,
	.memory = alone_memory,
	.fence = alone_fence,
	.leave = alone_leave,
};

/* ---- the choice ---- */

/* NAME: the variable in which LAUNCHER tells its processes their number.  WITH: a
 * variable that has to be there, too, or NULL.  ADD: what the launcher needs to give
 * the processes a way to each other.  The first entry that fits counts, since srun may
 * have started hydra or mpirun. */
static const struct {
	const char *name, *with, *launcher, *add;
} sizes[] = {
	{ "BERTH_SIZE", NULL, "runner", BOOT_AGENT_NEEDS },
	/* srun --berth gives its tasks the variables of mpirun. */
	{ "SLURM_STEP_NUM_TASKS", "BERTH_VERSION", "srun",
	  "start it with `srun --mpi=pmix` or with runner" },
	{ "OMPI_COMM_WORLD_SIZE", NULL, "Open MPI's mpirun",
	  "keep PMIX_NAMESPACE and PMIX_RANK in its environment, or start it with "
	  "runner" },
	{ "PMI_SIZE", "HYDI_CONTROL_FD", "hydra's mpiexec",
	  "start it with runner, with `srun --mpi=pmix` or with Open MPI's mpirun" },
	{ "SLURM_STEP_NUM_TASKS", NULL, "srun",
	  "start it with `srun --mpi=pmix` or with runner" },
	{ "PMI_SIZE", NULL, "an mpiexec that speaks PMI",
	  "start it with runner, with `srun --mpi=pmix` or with Open MPI's mpirun" },
	{ "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "torchrun", "start it with runner" },
	{ "WORLD_SIZE", NULL, "a script", "start it with runner" },
};

const struct boot *boot_choose(char *why)
{
	static const struct boot *const bootstraps[] = { &boot_agent, &boot_pmix };

	for (size_t i = 0; i < sizeof bootstraps / sizeof *bootstraps; i++)
		if (bootstraps[i]->seen())
			return bootstraps[i];
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const char *text = getenv(sizes[i].name);
		const long size = text ? strtol(text, NULL, 10) : 0;

		if (size < 2 || (sizes[i].with && !getenv(sizes[i].with)))
			continue;
		snprintf(why, BOOT_WHY_BYTES,
			 "%s=%ld says that %s started %ld processes, but it gives no "
			 "way to the others; %s",
			 sizes[i].name, size, sizes[i].launcher, size, sizes[i].add);
		return NULL;
	}
	return &boot_alone;
}
