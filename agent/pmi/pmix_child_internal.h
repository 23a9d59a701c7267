/* pmix_child_internal.h - between the files of the PMIx server (pmix_child.h). */
#ifndef BERTH_AGENT_PMI_PMIX_CHILD_INTERNAL_H
#define BERTH_AGENT_PMI_PMIX_CHILD_INTERNAL_H

#include "agent/pmi/pmix_child.h"
#include "common/wire.h"
#include "lib/boot/pmix_abi.h"

/* ---- pmix_child.c ---- */

/* libpmix, once it is loaded, and the ranks' namespace. */
struct px_server {
	void *library;
	char nspace[PX_NSPACE_BYTES];
	char *folder;     /* for files */
	size_t data_most; /* bytes that this host may give to an exchange */
#define FUNCTION(result, name, arguments) result(*name) arguments;
	PX_SERVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
extern struct px_server px;

/* Send FRAME, which is freed, to the host.  On any thread; waits until it is taken. */
void child_say(struct buf *frame);
/* Have the main thread call DONE with PX_SUCCESS and CTX. */
void child_later(px_op_done *done, void *ctx);

/* ---- pmix_job.c ---- */

/* Register the ranks with libpmix and answer `pmix_ready`. */
void job_register(const struct wire_pmix_job *m);

/* A list of what PMIx is told.  {0} is empty. */
struct px_list {
	struct px_info *v;
	size_t n;
};

void px_text(struct px_list *l, const char *key, const char *text);
void px_flag(struct px_list *l, const char *key, bool flag);
void px_u32(struct px_list *l, const char *key, uint32_t number);
void px_rank(struct px_list *l, const char *key, uint32_t rank);
void px_list_free(struct px_list *l);

/* ---- pmix_upcall.c ---- */

/* What libpmix calls. */
extern struct px_server_module upcalls;

/* The answers of the host. */
void upcall_collected(const struct wire_pmix_collected *m);
void upcall_got(const struct wire_pmix_got *m);
/* Another host asks. */
void upcall_serve(const struct wire_pmix_serve *m);

#endif
