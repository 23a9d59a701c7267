/* pmix_child_internal.h - between the files of the PMIx server (pmix_child.h). */
#ifndef BERTH_AGENT_PMI_PMIX_CHILD_INTERNAL_H
#define BERTH_AGENT_PMI_PMIX_CHILD_INTERNAL_H

#include "agent/pmi/pmix_child.h"
#include "agent/pmi/pmix_folder.h"
#include "common/wire.h"
#include "lib/boot/pmix_calls.h"

/* From this number of ranks on, a copy of what libpmix knows in each rank is too much
 * memory. */
enum { PMIX_LARGE_JOB = 4096 };

/* ---- pmix_link.c: the lowest ---- */

/* libpmix, once it is loaded, and the ranks' namespace. */
struct px_server {
	void *library;
	char nspace[PX_NSPACE_BYTES];
	char *folder; /* for files */
	struct pmix_folders folders;
	bool expected;    /* a program here is known to use PMIx */
	size_t data_most; /* bytes that this host may give to an exchange */
#define FUNCTION(result, name, arguments) result(*name) arguments;
	PX_SERVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
extern struct px_server px;

/* FD leads to the host.  A descriptor that is readable when there are calls to make. */
int child_link(int fd);
/* Send FRAME, which is freed, to the host.  On any thread; waits until it is taken. */
void child_say(struct buf *frame);
/* Send frame NAME, a pointer to a struct wire_NAME, in this way. */
#define CHILD_SAY(name, ...)                                                           \
	do {                                                                           \
		struct buf frame_ = { 0 };                                             \
                                                                                       \
		wire_pack_##name(&frame_, __VA_ARGS__);                                \
		child_say(&frame_);                                                    \
	} while (0)
/* Have the main thread call DONE with PX_SUCCESS and CTX. */
void child_later(px_op_done *done, void *ctx);
void child_make_calls(void);
/* The host is gone: nobody else may be there to remove the folders.  libpmix's threads
 * run on until the exit. */
void child_leave(void) __attribute__((noreturn));

/* A request that the host has not answered. */
struct pending {
	uint32_t id;
	enum exchange_use use; /* EXCHANGE_INIT: none */
	px_modex_done *modex;
	px_op_done *op;
	px_info_done *info;
	px_lookup_done *lookup;
	void *ctx;
	bool wants_id; /* of a group */
	struct px_proc *procs;
	size_t nprocs;
	struct pending *next;
};

/* A copy of P, with a number; 0: there are too many. */
uint32_t pending_leave(const struct pending *p);
/* The caller's to free; NULL: there is none. */
struct pending *pending_fetch(uint32_t id);
void pending_free(struct pending *p);

/* Is I's key KEY? */
bool upcall_is(const struct px_info *i, const char *key);

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
void px_size(struct px_list *l, const char *key, size_t size);
void px_rank(struct px_list *l, const char *key, uint32_t rank);
void px_list_free(struct px_list *l);

/* ---- pmix_upcall.c ---- */

/* The functions that libpmix calls. */
extern struct px_server_module upcalls;

/* The answers of the host. */
void upcall_collected(const struct wire_pmix_collected *m);
void upcall_got(const struct wire_modex_data *m);
/* Another host asks. */
void upcall_serve(const struct wire_modex_request *m);

/* ---- pmix_names.c ---- */

int upcall_publish(const struct px_proc *proc, const struct px_info *info, size_t n,
		   px_op_done *done, void *ctx);
int upcall_lookup(const struct px_proc *proc, char **keys, const struct px_info *info,
		  size_t n, px_lookup_done *done, void *ctx);
int upcall_unpublish(const struct px_proc *proc, char **keys,
		     const struct px_info *info, size_t n, px_op_done *done, void *ctx);
void upcall_found(const struct wire_found *m);
int upcall_event(int code, const struct px_proc *proc, uint8_t range,
		 struct px_info *info, size_t n, px_op_done *done, void *ctx);
void upcall_notify(const struct wire_event *m);
int upcall_query(struct px_proc *proc, struct px_query *query, size_t n,
		 px_info_done *done, void *ctx);

#endif
