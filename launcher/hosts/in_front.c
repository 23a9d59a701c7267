#include "launcher/hosts/in_front.h"

#include "common/str.h"

static const struct {
	const char *size, *rank, *launcher;
} launchers[] = {
	{ "BERTH_SIZE", "BERTH_RANK", "another runner" },
	{ "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun" },
	{ "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun" },
	{ "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run" },
	{ "PMI_SIZE", "PMI_RANK", "a launcher of MPI" },
};

/* The number that NAME has in ENV; NONE if it has none. */
static long front_number(char *const *env, const char *name, long none)
{
	const size_t n = strlen(name);
	long value;

	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=' &&
		    !str_to_long(&value, *env + n + 1, 0, INT32_MAX, NULL))
			return value;
	return none;
}

/* In a shell of `srun --pty`, and not the task itself. */
static bool is_below_shell(const struct in_front *f)
{
	return f->terminal && front_number(f->env, "SLURM_PTY_PORT", 0) &&
	       !front_number(f->env, "SLURM_PROCID", 0) &&
	       front_number(f->env, "SLURM_TASK_PID", f->pid) != f->pid;
}

int in_front_check(const struct in_front *f, bool *say, struct err *e)
{
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
		const long size = front_number(f->env, launchers[i].size, 1);

		if (size < 2 ||
		    (!strcmp(launchers[i].launcher, "srun") && is_below_shell(f)))
			continue;
		*say = front_number(f->env, launchers[i].rank, 0) == 0;
		return err_set(e, E_IN_FRONT, launchers[i].size, size,
			       launchers[i].launcher, size);
	}
	return 0;
}
