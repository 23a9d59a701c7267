/* allocation.h - pure: the hosts that a resource manager gave to the job that runner is
 * in, as its environment tells them.
 *
 * One manager counts, the first of Slurm, Flux, PBS, Cobalt, LSF, Grid Engine, and the
 * host files of mpirun and mpiexec, by which the MPI operator of Kubernetes names its
 * pods.  Slurm and LSF tell all in variables.  The others name a file, and Flux is a
 * program to ask: allocation_load.h gets these texts.
 *
 * Sources: the manuals of sbatch and srun (Slurm 22.05, and what it does), PBS, LSF,
 * sge_pe(5), flux-getattr(1), README of mpi-operator. */
#ifndef BERTH_LAUNCHER_HOSTS_ALLOCATION_H
#define BERTH_LAUNCHER_HOSTS_ALLOCATION_H

#include "launcher/hosts.h"

enum allocation_manager {
	ALLOCATION_NONE,
	ALLOCATION_SLURM,
	ALLOCATION_FLUX,
	ALLOCATION_PBS,
	ALLOCATION_COBALT,
	ALLOCATION_LSF,
	ALLOCATION_SGE,
	ALLOCATION_HOST_FILE /* of mpirun, mpiexec: Kubernetes */
};

/* The text that has to be read beside the environment. */
enum allocation_text { ALLOCATION_ENV, ALLOCATION_FILE, ALLOCATION_PROGRAM };

/* {0} is none. */
struct allocation {
	enum allocation_manager manager;
	const char *name;       /* of the manager, for messages; "none" */
	const char *job_id;     /* the manager's, of the environment; NULL: unknown */
	const char *hosts_from; /* the variable that names the hosts, or the file */
	const char *slots_from; /* the variable that counts the slots */
	const char *cpus_from;  /* the same for cpus; NULL: they are not known */
	enum allocation_text text;
	const char *value; /* of hosts_from: the file */

	struct hosts hosts; /* in the manager's order; slots are 0.. or SLOTS_AUTO */
	int *cpus;          /* of each host: what the job may use; 0: not known */
	int *group; /* of each host: its first component of a heterogeneous job; -1 */
	unsigned gpus; /* of this host, or of each; 0: not known */
};

/* Find the manager in ENV, as environ, which must outlive A; its hosts are not read
 * yet. */
void allocation_find(struct allocation *a, char *const *env);

/* Read the hosts of A, which allocation_find() made of ENV.  TEXT is the file's, or
 * what the program said; ignored if there is none.  0, or -1 with E, and then A has no
 * hosts. */
int allocation_read(struct allocation *a, char *const *env, const char *text,
		    struct err *e);

/* The place in A of each host of ASKED, by its name: AT[i], or SIZE_MAX.  A name with a
 * domain and the same name without one are the same.  Returns how many have none. */
size_t allocation_match(size_t *at, const struct hosts *asked,
			const struct allocation *a);

/* ASKED, of the option FROM, as a part of A, which it cannot enlarge: a host without a
 * number of slots has those of A.  0, or -1 with E. */
int allocation_filter(struct hosts *asked, const size_t *at, const struct allocation *a,
		      const char *from, struct err *e);

/* Whether host AT of A has room for PER_HOST ranks, the value of FROM.  0, or -1 with
 * E. */
int allocation_per_host(const struct allocation *a, size_t at, int per_host,
			const char *from, struct err *e);

void allocation_free(struct allocation *a);

#endif
