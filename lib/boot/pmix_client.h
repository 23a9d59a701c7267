/* pmix_client.h - this process as a client of its job's PMIx server, through the
 * libpmix.so.2 that it finds: one that the process has already (MPI brings it), the
 * launcher's own, or the system's.
 *
 * libpmix is initialised once and stays so until the process exits: a launcher takes a
 * rank that ends without PMIx_Finalize for one that failed, and libpmix 5.0.11 does not
 * survive being initialised twice.  It counts, so MPI may be used in the same process.
 * MPI_Init() of Open MPI 5 has to come first, though: later it finds libpmix
 * initialised, does not ask it who it is, and fails ("local rank").  One thread at a
 * time. */
#ifndef BERTH_LIB_PMIX_CLIENT_H
#define BERTH_LIB_PMIX_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/berth.h"

/* The environment has a server's address, and a rank. */
bool pmix_client_seen(void);

/* WHY, of WHY_BYTES, says what went wrong. */
berth_result pmix_client_open(unsigned *rank, unsigned *size, char *why,
			      size_t why_bytes);

/* BYTES for who asks for KEY of this rank, after a fence that COLLECTs.  A key is used
 * once: what others have got of it they may never get anew.  Each costs all ranks
 * memory until the job ends, and time in each publication that follows. */
berth_result pmix_client_publish(const char *key, const char *bytes, size_t size,
				 char *why, size_t why_bytes);
/* What RANK published: *BYTES, the caller's, with a NUL behind their end. */
berth_result pmix_client_get(unsigned rank, const char *key, char **bytes, size_t *size,
			     char *why, size_t why_bytes);

/* Until all ranks have come, LIMIT_S seconds at most.  BERTH_PEER_LOST: one of them has
 * ended. */
berth_result pmix_client_fence(bool collect, unsigned limit_s, char *why,
			       size_t why_bytes);

#endif
