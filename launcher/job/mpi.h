/* mpi.h - what MPI programs need of the launcher, beside exchanges: that all hosts give
 * their ranks the same, and a way from one host to another for what a rank has put. */
#ifndef BERTH_LAUNCHER_JOB_MPI_H
#define BERTH_LAUNCHER_JOB_MPI_H

#include "launcher/job/job.h"

/* Bytes that may wait to be sent to a host: what is asked for beyond that is not there;
 * and those of one answer. */
enum { MPI_QUEUED_MOST = 64 << 20, MPI_ANSWER_MOST = 17 << 20 };

/* Bits of enum mpi_given, from what all hosts found. */
uint32_t mpi_given(const struct job *j);

/* Messages of agents: each function returns the fault of the message, or NULL. */
const char *mpi_modex_request(struct job *j, struct host *h,
			      const struct wire_modex_request *m);
const char *mpi_modex_data(struct job *j, struct host *h,
			   const struct wire_modex_data *m);

#endif
