/* pmix_internal.h - what the files of the host's side of the PMIx server share.  Each
 * takes from those below it: pmix.c, pmix_exchange.c and pmix_modex.c, pmix_send.c. */
#ifndef BERTH_AGENT_PMI_PMIX_INTERNAL_H
#define BERTH_AGENT_PMI_PMIX_INTERNAL_H

#include "agent/pmi/exchange.h"
#include "agent/pmi/pmix_process.h"
#include "agent/pmi/server_internal.h"

struct pmix_rank {
	bool present; /* between PMIx_Init and PMIx_Finalize */
	bool seen;    /* it has called PMIx_Init */
	bool busy;    /* it has taken part in a collective that ended */
	bool ended;
};

struct pmix {
	struct server *s;
	enum server_pmix_state state;
	char *why; /* FAILED, LOST */
	char *library, *version;
	struct pmix_process process;
	struct pmix_folders *folders;
	int lock, memory_lock;
	struct event *readable, *writable, *late, *ended;
	struct exchange_wait wait;
	struct buf in, out;
	struct pmix_rank *rank;
	struct strv environment; /* of all local ranks */
	size_t *first;           /* first[local]; one more at the end */
	void *counts;            /* tree of struct count */
	size_t ncounts;
	struct collect *collect;
	size_t ncollects;
	struct serve *serve;
	size_t nserves;
	uint32_t serve_id;
	struct say *say, **last_say;
	size_t nsays;
};

/* ---- pmix_exchange.c: collectives, and ranks that never come ---- */

/* False: it is no request that a server makes. */
bool pmix_collect(struct pmix *p, const struct wire_pmix_collect *m);
void pmix_exchanges_begin(struct pmix *p);
void pmix_exchanges_end(struct pmix *p);

/* ---- pmix_modex.c: what one rank wants of another ---- */

/* The server asks by M, which is frame F; it answers. */
void pmix_get(struct pmix *p, const struct wire_frame *f,
	      const struct wire_modex_request *m);
void pmix_served(struct pmix *p, const struct wire_modex_data *m);
/* Local rank LOCAL has ended: requests that still wait for its data fail. */
void pmix_modex_ended(struct pmix *p, size_t local);
void pmix_modex_begin(struct pmix *p);
void pmix_modex_end(struct pmix *p);

/* ---- pmix_send.c: the connection to the server, until it is given up ---- */

/* The server can be asked. */
bool pmix_serves(const struct pmix *p);
/* Send p->out. */
void pmix_flush(struct pmix *p);
/* Send frame NAME, a pointer to a struct wire_NAME, to the server. */
#define PMIX_SAY(p, name, ...)                                                         \
	do {                                                                           \
		wire_pack_##name(&(p)->out, __VA_ARGS__);                              \
		pmix_flush(p);                                                         \
	} while (0)
/* The server is of no use any more. */
void pmix_give_up(struct pmix *p, const char *why);
void pmix_hang_up(struct pmix *p);

#endif
