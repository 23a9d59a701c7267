#include "lib/base/members.h"

#include <stdlib.h>
#include <string.h>

/* Gives the hosts their numbers.  FIRST: room for N places. */
static void members_number_hosts(struct members *m, const unsigned *host,
				 unsigned *first)
{
	for (unsigned i = 0; i < m->n; i++) {
		unsigned h = 0;

		while (h < m->nhosts && host[m->rank[first[h]]] != host[m->rank[i]])
			h++;
		if (h == m->nhosts)
			first[m->nhosts++] = i;
		m->host[i] = h;
		m->local[i] = m->start[h + 1]++;
	}
}

static void find_own(struct members *m, const unsigned *host, unsigned own)
{
	m->me = m->here = MEMBERS_NONE;
	for (unsigned i = 0; i < m->n; i++) {
		if (m->rank[i] == own) {
			m->me = i;
			m->local_me = m->local[i];
		}
		if (host[m->rank[i]] == host[own])
			m->here = m->host[i];
	}
	if (m->here == MEMBERS_NONE)
		return;
	m->nlocal = members_on(m, m->here);
	m->local_place = m->order + m->start[m->here];
}

int members_make(struct members *m, const unsigned *rank, unsigned n,
		 const unsigned *host, unsigned own)
{
	/* rank, host, local, start (N + 1), order; FIRST is of use here alone */
	unsigned *all = calloc(6 * (size_t)n + 1, sizeof *all);

	*m = (struct members){ 0 };
	if (!all)
		return -1;
	m->n = n;
	m->rank = all;
	m->host = all + n;
	m->local = all + 2 * (size_t)n;
	m->order = all + 3 * (size_t)n;
	m->start = all + 4 * (size_t)n;
	memcpy(m->rank, rank, n * sizeof *rank);
	members_number_hosts(m, host, all + 5 * (size_t)n + 1);
	m->lanes = n;
	for (unsigned h = 0; h < m->nhosts; h++) {
		if (m->start[h + 1] < m->lanes)
			m->lanes = m->start[h + 1];
		m->start[h + 1] += m->start[h];
	}
	for (unsigned i = 0; i < n; i++)
		m->order[m->start[m->host[i]] + m->local[i]] = i;
	find_own(m, host, own);
	return 0;
}

void members_free(struct members *m)
{
	free(m->rank);
	*m = (struct members){ 0 };
}
