/* nccl_log.h - NCCL's lines among what ranks write, and in files.
 *
 * Bytes in, lines to nccl_pairs.h.  Of each stream the beginning of a line is kept
 * until its end comes, 4 KiB at most. */
#ifndef BERTH_LAUNCHER_OUTPUT_NCCL_LOG_H
#define BERTH_LAUNCHER_OUTPUT_NCCL_LOG_H

#include "launcher/output/nccl_pairs.h"

struct nccl_log;

#define NCCL_LOG_ALL NCCL_NO_RANK /* as a rank: bytes of all, of another launcher */

/* For the streams of NP ranks, and one of NCCL_LOG_ALL. */
struct nccl_log *nccl_log_open(uint32_t np);
/* Rank RANK of the job, on HOST or as the lines say (NULL), wrote N bytes to STREAM: 1,
 * 2, or 3, which is NCCL's alone.  Of stream 3, warnings and the version are appended
 * to SHOW, which is not NULL then: a user sees them without --nccl-transports, too. */
void nccl_log_put(struct nccl_log *l, uint32_t rank, unsigned stream, const char *host,
		  const char *p, size_t n, struct str *show);
/* RANK starts again: the beginning of a line that it wrote has no end. */
void nccl_log_again(struct nccl_log *l, uint32_t rank);
/* No more comes for now.  L still owns the result. */
const struct nccl_pairs *nccl_log_pairs(struct nccl_log *l);
void nccl_log_free(struct nccl_log *l); /* takes NULL */

/* --nccl-log: print table and warnings of FILES to stdout; "-" is stdin.  0: there is
 * no warning; 1: there are some; -1 with E: a file cannot be read. */
int nccl_log_files(const struct strv *files, struct err *e);

#endif
