#include <event2/event.h>

#include "agent/pmi/pmix_internal.h"
#include "common/loop.h"

enum { OUT_MOST = 128 << 20 }; /* that the server does not read */

void pmix_hang_up(struct pmix *p)
{
	if (p->readable)
		event_free(p->readable);
	if (p->writable)
		event_free(p->writable);
	p->readable = p->writable = NULL;
	event_del(p->late);
	pmix_process_end(&p->process);
	buf_free(&p->in);
	buf_free(&p->out);
}

void pmix_give_up(struct pmix *p, const char *why)
{
	if (p->state == SERVER_PMIX_FAILED || p->state == SERVER_PMIX_LOST)
		return;
	p->state =
		p->state == SERVER_PMIX_READY ? SERVER_PMIX_LOST : SERVER_PMIX_FAILED;
	free(p->why);
	p->why = xstrdup(why);
	pmix_hang_up(p);
	exchange_wait_look(&p->wait);
}

void pmix_flush(struct pmix *p)
{
	if (p->out.len > OUT_MOST)
		pmix_give_up(p, "it does not read");
	if (p->process.fd >= 0)
		loop_send(&p->out, p->process.fd, p->writable);
}

bool pmix_serves(const struct pmix *p)
{
	return p && p->state == SERVER_PMIX_READY;
}
