/* step_request.h - pure: the text of a request (step.h) to data. */
#ifndef BERTH_AGENT_STEP_REQUEST_H
#define BERTH_AGENT_STEP_REQUEST_H

#include "agent/placement/place.h"

enum {
	STEP_REQUEST_BYTES = 262144,
	STEP_TASKS_MAX = 4096,
	STEP_NODES_MAX = 65536,
	STEP_HOST_NUMBER_MAX = 100000000
};

/* The wishes in --berth=WORD,WORD. */
struct step_options {
	struct place_options place;
	enum gpu_visible gpu_visible;
	enum gpu_id gpu_id;
	bool off, report;
	bool all_gpus; /* of this host, though Slurm gave the step none */
};

/* Strings point into the text. */
struct step_request {
	uint32_t uid, job, step, node, nodes, size;
	uint32_t before; /* nodes of the components before this one, in a het job */
	uint32_t *ranks; /* v[0..tasks) */
	size_t tasks;
	const char *hosts, *layout, *options, *cores;
	const char *bind_type, *bind_list;
	const char *cuda, *rocr, *step_gpus; /* NULL: not set */
	const char *task_gpus;               /* NULL: Slurm has not given them out */
	const char *topology;                /* NULL: this machine */
	bool only_options;                   /* there need be nothing else */
};

/* TEXT, which is changed, into Q.  0, or -1 with E (E_STEP). */
int step_request_read(struct step_request *q, char *text, struct err *e);
void step_request_free(struct step_request *q);
/* The words of --berth.  0, or -1 with E (E_STEP_OPTION, E_CHOICE). */
int step_options_read(struct step_options *o, const char *text, struct err *e);
/* The first host of LIST, "n[1-3,7],m2", into OUT.  False if it is no list. */
bool step_first_host(char *out, size_t size, const char *list);
/* The hosts of LIST, or 0 if it is no list. */
uint32_t step_count_hosts(const char *list);
/* LAYOUT is the tasks of each node, as "2(x3),1".  SIZE becomes the number of nodes
 * with more than LOCAL tasks, and RANK the number of these in front of NODE.  False:
 * LAYOUT is none. */
bool step_cross(uint32_t *rank, uint32_t *size, const char *layout, uint32_t local,
		uint32_t node);
/* The masks of --cpu-bind=map_cpu:LIST or mask_cpu:LIST for N tasks; Slurm begins the
 * list anew for more tasks than it has.  Each has room for the CPUs of LIKE.  False if
 * TYPE is another one or LIST is not a list; V is then as it was. */
bool step_masks(struct cpuset *v, size_t n, const char *type, const char *list,
		const struct cpuset *like);
/* LISTS, "0,1;2", has one list of numbers for each of N tasks: MAY[R * ngpu + I]
 * becomes whether that of R has NUMBERS[I].  False if LISTS is something else. */
bool step_gpu_lists(bool *may, size_t n, const char *lists, const int *numbers,
		    size_t ngpu);
/* MASTER_PORT of a step: 20000 to 29499, the same on all of its hosts. */
uint32_t step_port(uint32_t job, uint32_t step);

#endif
