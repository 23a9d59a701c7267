/* step.h - `berth-agent --step`: a berth for each task of a Slurm step on this host.
 *
 * berth_spank.so starts it once for each host and step, as the step's user, and gives
 * it one second; a second time if the tasks have to be asked first; and before that in
 * srun, which asks about the options only.  It reads a request
 * until the end of its input, writes an answer and ends.  It starts nothing and has no
 * guardian.  Both are lines of text, "WORD VALUE".
 *
 * The request, STEP_REQUEST_BYTES at most (step_request.h):
 *	berth-step 1          the version; the first line
 *	uid, job, step, node, nodes, size NUMBER
 *	ranks 0,1,2           of the tasks here, by local task number
 *	hosts n[1-2]          SLURM_STEP_NODELIST
 *	layout 2(x2)          SLURM_STEP_TASKS_PER_NODE
 *	before n1             a component of the het job before this one; any number
 *	options TEXT          as the user typed them: --berth=TEXT
 *	only options          say whether these are valid; beside them uid is enough
 *	cores 0-3             the step's cores, in hwloc's logical order
 *	bind-type, bind-list  the user's --cpu-bind: SLURM_CPU_BIND_TYPE and _LIST
 *	cuda, rocr            CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES
 *	step-gpus             SLURM_STEP_GPUS
 *	task-gpus 0,1;2,3     those of each task here, as its SLURM_STEP_GPUS has them
 *	topology FILE         stands for this machine
 *
 * The answer:
 *	berth-step 1
 *	off                   the user wants nothing, or only the options were asked
 *	                      about and are valid; or
 *	error TEXT, hint TEXT nothing can be placed; or
 *	print                 the user wants the reports printed
 *	masks                 --cpu-bind has none yet: ask again with those that the
 *	                      tasks have got, as a list of mask_cpu:
 *	visible               all GPUs that Slurm gave a task stay visible to it
 *	warning TEXT          any number of these, then for each task
 *	task NUMBER           local; what follows is its
 *	cpus 0-5,48-53        its mask; without this line it keeps the mask it has
 *	gpu NUMBER            its number for Slurm; without this line it has none
 *	set NAME=VALUE        a variable
 *	default NAME=VALUE    a variable, if it has no value
 *	unset NAME
 *	report TEXT           what --berth=report prints
 *	end                   the last line
 *
 * No memory policy is set: memory is taken near the CPU that first writes it. */
#ifndef BERTH_AGENT_STEP_H
#define BERTH_AGENT_STEP_H

/* Answer on OUT what IN asks.  The exit status of the program: 0 with an answer, also
 * if that is an error. */
int step_main(int in, int out);

#endif
