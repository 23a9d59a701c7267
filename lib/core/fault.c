#include "lib/core/fault.h"

#include <stdio.h>

/* "the connection between rank 0 and rank 1 (10.77.0.2)" */
static void fault_name(const struct comm *c, const struct net_fault *f, char *text,
		       size_t bytes)
{
	const bool has = *f->address;

	snprintf(text, bytes, "the connection between rank %u and rank %u%s%s%s",
		 c->members->rank[f->by], c->members->rank[f->peer], has ? " (" : "",
		 f->address, has ? ")" : "");
}

void fault_say(const struct comm *c, const struct net_fault *f, struct failure *why,
	       const char *words)
{
	char which[160];

	if (!f || f->kind == NET_CUT || f->by >= c->members->n ||
	    f->peer >= c->members->n) {
		snprintf(why->text, sizeof why->text,
			 "%s: a connection of another rank carried something that its "
			 "peer did not send",
			 words);
		return;
	}
	fault_name(c, f, which, sizeof which);
	why->missing[why->nmissing++] =
		c->members->rank[f->peer == c->members->me ? f->by : f->peer];
	if (f->kind == NET_FORGED)
		snprintf(why->text, sizeof why->text,
			 "%s: %s carried something that rank %u did not send", words,
			 which, c->members->rank[f->peer]);
	else if (f->kind == NET_STRANGER)
		snprintf(why->text, sizeof why->text,
			 "%s: %s: the other end does not have the job's key", words,
			 which);
	else
		snprintf(why->text, sizeof why->text, "%s: %s: rank %u %s", words,
			 which, c->members->rank[f->peer],
			 *f->text ? f->text : "is not set up as the other one");
}

void fault_say_cut(const struct comm *c, const struct net_fault *f, unsigned rank,
		   char *text, size_t bytes)
{
	char which[160];

	*text = '\0';
	if (!f || f->kind != NET_CUT || f->peer >= c->members->n ||
	    c->members->rank[f->peer] != rank)
		return;
	fault_name(c, f, which, sizeof which);
	snprintf(text, bytes, ", and with it %s", which);
}
