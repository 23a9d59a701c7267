/* pmix_client.h - this process as a client of its job's PMIx server, through the
 * libpmix.so.2 that it finds.  That is one that the process has already (MPI brings
 * it), the launcher's own, or the system's.
 *
 * libpmix is initialised once, and stays so until the process exits.  A launcher counts
 * a rank that ends without PMIx_Finalize as failed.  libpmix 5.0.11 does not survive a
 * second initialisation.  It counts initialisations, so MPI may be used in the same
 * process.  But MPI_Init() of Open MPI 5 has to come first.  If it comes later, it
 * finds libpmix initialised, does not ask for its own rank, and fails ("local rank").
 * One thread at a time. */
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

/* Publishes BYTES as KEY of this rank.  Others get them after a fence that COLLECTs.  A
 * key is used once: others that have got it may never get it anew.  Each key costs all
 * ranks memory until the job ends, and time in each publication that follows. */
berth_result pmix_client_publish(const char *key, const char *bytes, size_t size,
				 char *why, size_t why_bytes);
/* Gets what RANK published as KEY.  *BYTES belongs to the caller, and has a NUL behind
 * its end. */
berth_result pmix_client_get(unsigned rank, const char *key, char **bytes, size_t *size,
			     char *why, size_t why_bytes);

/* Waits until all ranks have come, LIMIT_S seconds at most.  BERTH_PEER_LOST: one of
 * them has ended. */
berth_result pmix_client_fence(bool collect, unsigned limit_s, char *why,
			       size_t why_bytes);

#endif
