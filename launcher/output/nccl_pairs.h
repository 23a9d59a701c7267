/* nccl_pairs.h - which pairs of ranks NCCL connects, and how: counts of its log.
 *
 * Pure, and of bounded size.  A line names ranks of a communicator, and not the
 * communicator.  Each process says its rank in each of its communicators, so the peer
 * in a line is the process that has that rank in one of them; if several have, the
 * devices in the line decide, else the latest.  If a line of an old version has no
 * commId, the first communicator of so many ranks is the same for all, and the second.
 *
 * What cannot be placed is counted as unplaced. */
#ifndef BERTH_LAUNCHER_OUTPUT_NCCL_PAIRS_H
#define BERTH_LAUNCHER_OUTPUT_NCCL_PAIRS_H

#include "common/str.h"
#include "launcher/output/nccl_line.h"

enum {
	NCCL_ROWS_MAX = 16384,
	NCCL_HOSTS_MAX = 65536,
	NCCL_NICS_MAX = 32, /* of one host */
	NCCL_NAME_BYTES = 32,
	NCCL_WORDS_MAX = 8, /* versions, networks */
	NCCL_TEXTS_MAX = 3, /* warnings of NCCL's */
	NCCL_TEXT_BYTES = 200,
	NCCL_ODD_MAX = 4 /* pairs that a row names */
};

#define NCCL_NO_RANK UINT32_MAX

struct nccl_host {
	char *name;
	char nic[NCCL_NICS_MAX][NCCL_NAME_BYTES];
	bool has_ib;   /* NET/IB found a device there */
	bool lacks_ib; /* it found none */
	/* Channels of its ranks over a network but sockets, without and with GPUDirect
	 * RDMA: those that send, and those that receive. */
	uint32_t plain[2], direct[2];
};

struct nccl_place;
struct nccl_maps;

/* A process that uses NCCL. */
struct nccl_process {
	uint32_t host; /* its place among the hosts */
	uint32_t rank; /* in the job; or in the largest communicator; or NCCL_NO_RANK */
	uint32_t nranks; /* of that communicator */
	bool of_job;     /* RANK is the job's */
	uint32_t pid;
	struct nccl_place *place; /* place[0..n): its ranks in communicators */
	size_t n;
	uint32_t old_forms; /* communicators that it made without a commId */
};

/* The channels of one kind between two hosts, or within one. */
struct nccl_row {
	uint32_t host[2]; /* the lower one first; both NCCL_NO_RANK: of many hosts */
	enum nccl_way way;
	uint8_t net; /* its place in networks.v */
	bool gdr, receives;
	uint64_t channels;
	uint32_t pairs; /* of ranks; each counts once among the first 262144 */
	uint32_t odd[NCCL_ODD_MAX][2]; /* the first of them: processes */
	uint64_t nics[2];              /* bit i: NIC number i of that host */
};

/* A few different texts. */
struct nccl_words {
	char v[NCCL_WORDS_MAX][NCCL_NAME_BYTES];
	uint32_t process[NCCL_WORDS_MAX]; /* the first that said it, or NCCL_NO_RANK */
	size_t n;
};

struct nccl_pairs {
	struct nccl_host *host;
	struct nccl_process *process;
	struct nccl_row *row;
	size_t nhosts, nprocesses, nrows;
	struct nccl_words versions, networks;
	/* NCCL's own warnings. */
	struct {
		char text[NCCL_TEXT_BYTES];
		uint32_t process, count;
	} warning[NCCL_TEXTS_MAX];
	size_t nwarnings, more_warnings;
	double bootstrap_s;         /* the longest, */
	uint32_t bootstrap_process; /* and whose; NCCL_NO_RANK: none */
	bool collnet, nvls;
	uint64_t lines, unplaced; /* of NCCL's; channels */
	struct nccl_maps *maps;   /* private */
};

/* Where a line comes from. */
struct nccl_origin {
	uint32_t rank;    /* in the job; NCCL_NO_RANK: the line's host and pid tell */
	const char *host; /* of that rank; NULL: as the line names it */
};

struct nccl_pairs *nccl_pairs_open(void);
void nccl_pairs_add(struct nccl_pairs *p, const struct nccl_origin *from,
		    const struct nccl_line *line);
/* Place what is left, before rows are read.  More lines may follow. */
void nccl_pairs_settle(struct nccl_pairs *p);
void nccl_pairs_free(struct nccl_pairs *p); /* takes NULL */

#endif
