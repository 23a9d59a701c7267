#include "launcher/output/nccl_pairs.h"

#include <string.h>

enum {
	PROCESSES_MAX = 1 << 20,
	PLACES_MAX = 256,      /* of one process */
	MEMBERS_MAX = 1 << 21, /* of all communicators */
	EDGES_MAX = 1 << 16,   /* that wait to be placed */
	PAIRS_MAX = 1 << 18,   /* that are known to be counted */
	IMPLIED_MAX = 65536    /* ranks of it */
};

/* A rank of a process in a communicator. */
struct nccl_place {
	uint32_t comm; /* its place among the communicators */
	uint32_t rank;
	uint64_t at; /* its address in the process; 0: unknown */
};

#define SEVERAL UINT32_MAX

struct member {
	uint32_t process; /* + 1; 0: it has not said so; SEVERAL: several say so */
	uint64_t bus, nvml;
};

struct comm {
	uint64_t key;
	uint32_t nranks;
	struct member *v;
};

/* Channels of one kind from a process to a rank of a communicator. */
struct edge {
	uint32_t process, own, peer;
	uint64_t dev; /* of the peer */
	uint8_t way, net;
	bool gdr, receives;
	uint32_t count; /* 0: this place of the table is free */
	uint64_t nics;
};

/* A table of numbers that are not 0 to numbers, which grows. */
struct map {
	struct map_entry {
		uint64_t key;
		uint32_t value;
	} * at;
	size_t n, size; /* a power of 2 */
};

struct nccl_maps {
	struct map hosts;     /* hash of a name */
	struct map processes; /* rank in the job + 1, or hash of host and pid */
	struct map comms;     /* key */
	struct map rows;      /* hash of what makes it a row of its own */
	struct map pairs;     /* hash of a row and two processes */
	struct comm *comm;
	size_t ncomms, nmembers;
	/* Ranks that never say which communicator: those of their channels. */
	struct comm implied;
	struct edge *edge;
	size_t nedges, edges; /* room: a power of 2 */
};

/* ---- tables ---- */

/* The finalizer of MurmurHash3, which is in the public domain, over each part. */
static uint64_t hash_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) + 0x9e3779b97f4a7c15;
	h = (h ^ (h >> 33)) * 0xff51afd7ed558ccd;
	h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53;
	return (h ^ (h >> 33)) | 1;
}

static uint64_t hash_of_text(const char *p, size_t n)
{
	uint64_t h = n + 1;

	for (size_t i = 0; i < n; i++)
		h = hash_mix(h, (unsigned char)p[i]);
	return h;
}

/* The place of KEY in a table of SIZE places, or the free one for it. */
static struct map_entry *map_slot(struct map_entry *at, size_t size, uint64_t key)
{
	size_t i = hash_mix(0, key) & (size - 1);

	while (at[i].key && at[i].key != key)
		i = (i + 1) & (size - 1);
	return &at[i];
}

static const uint32_t *map_get(const struct map *m, uint64_t key)
{
	const struct map_entry *e;

	if (!m->size)
		return NULL;
	e = map_slot(m->at, m->size, key);
	return e->key ? &e->value : NULL;
}

static void map_put(struct map *m, uint64_t key, uint32_t value)
{
	struct map_entry *e;

	if (2 * (m->n + 1) > m->size) {
		const size_t size = m->size ? 2 * m->size : 64;
		struct map_entry *larger = xcalloc(size, sizeof *larger);

		for (size_t i = 0; i < m->size; i++)
			if (m->at[i].key)
				*map_slot(larger, size, m->at[i].key) = m->at[i];
		free(m->at);
		m->at = larger;
		m->size = size;
	}
	e = map_slot(m->at, m->size, key);
	m->n += !e->key;
	*e = (struct map_entry){ key, value };
}

/* Room for one more at ARRAY, which has N of SIZE bytes: doubled at powers of 2. */
static void *grown_array(void *array, size_t n, size_t size)
{
	return n & (n - 1) ? array : xreallocarray(array, n ? 2 * n : 1, size);
}

/* ---- hosts and processes ---- */

static uint32_t host_of(struct nccl_pairs *p, const char *name, size_t n)
{
	const uint64_t key = hash_of_text(name, n);
	const uint32_t *known = map_get(&p->maps->hosts, key);
	struct nccl_host *h;

	if (known || p->nhosts == NCCL_HOSTS_MAX)
		return known ? *known : NCCL_HOSTS_MAX - 1;
	p->host = grown_array(p->host, p->nhosts, sizeof *p->host);
	h = &p->host[p->nhosts];
	*h = (struct nccl_host){ .name = xstrndup(name, n) };
	map_put(&p->maps->hosts, key, (uint32_t)p->nhosts);
	return (uint32_t)p->nhosts++;
}

/* The process of a line; NCCL_NO_RANK: it cannot be told. */
static uint32_t process_of(struct nccl_pairs *p, const struct nccl_origin *from,
			   const struct nccl_line *l)
{
	const bool of_job = from->rank != NCCL_NO_RANK;
	uint64_t key = of_job ? hash_mix(1, from->rank)
			      : hash_mix(hash_of_text(l->host.p, l->host.n), l->pid);
	const uint32_t *known = map_get(&p->maps->processes, key);
	struct nccl_process *x;

	if (known)
		return *known;
	if ((!of_job && !l->host.n) || p->nprocesses == PROCESSES_MAX)
		return NCCL_NO_RANK;
	p->process = grown_array(p->process, p->nprocesses, sizeof *p->process);
	x = &p->process[p->nprocesses];
	*x = (struct nccl_process){ .rank = from->rank,
				    .of_job = of_job,
				    .pid = l->pid };
	if (from->host)
		x->host = host_of(p, from->host, strlen(from->host));
	else if (l->host.n)
		x->host = host_of(p, l->host.p, l->host.n);
	else
		x->host = host_of(p, "unknown", 7);
	map_put(&p->maps->processes, key, (uint32_t)p->nprocesses);
	return (uint32_t)p->nprocesses++;
}

/* ---- communicators ---- */

/* The place of the communicator of KEY, made if there is none; NCCL_NO_RANK: there is
 * no room, or the lines disagree on its size. */
static uint32_t comm_of(struct nccl_maps *m, uint64_t key, uint32_t nranks)
{
	const uint32_t *known = map_get(&m->comms, key);

	if (known)
		return m->comm[*known].nranks == nranks ? *known : NCCL_NO_RANK;
	if (nranks > MEMBERS_MAX - m->nmembers)
		return NCCL_NO_RANK;
	m->comm = grown_array(m->comm, m->ncomms, sizeof *m->comm);
	m->comm[m->ncomms] = (struct comm){ .key = key, .nranks = nranks };
	m->comm[m->ncomms].v = xcalloc(nranks, sizeof(struct member));
	m->nmembers += nranks;
	map_put(&m->comms, key, (uint32_t)m->ncomms);
	return (uint32_t)m->ncomms++;
}

/* The latest of X's communicators at address AT, or NULL. */
static struct nccl_place *place_at(const struct nccl_process *x, uint64_t at)
{
	for (size_t i = x->n; i-- > 0;)
		if (x->place[i].at == at)
			return &x->place[i];
	return NULL;
}

/* A number that all ranks of the communicator in a line of INIT have in common; 0: it
 * is not known. */
static uint64_t comm_key(const struct nccl_maps *m, struct nccl_process *x,
			 const struct nccl_line *l)
{
	const struct nccl_place *parent;

	if (l->id)
		return hash_mix(2, l->id);
	if (!l->parent)
		return hash_mix(hash_mix(3, l->nranks), x->old_forms++);
	parent = place_at(x, l->parent);
	return parent ? hash_mix(hash_mix(m->comm[parent->comm].key, l->child),
				 l->color)
		      : 0;
}

static void add_init(struct nccl_pairs *p, uint32_t process, const struct nccl_line *l)
{
	struct nccl_maps *m = p->maps;
	struct nccl_process *x = &p->process[process];
	struct nccl_place *known = place_at(x, l->comm);
	struct member *member;
	uint64_t key;
	uint32_t c;

	if (!x->of_job && l->nranks > x->nranks) {
		x->rank = l->rank;
		x->nranks = l->nranks;
	}
	/* one process alone has no channels; the second line says what the first did */
	if (l->nranks == 1 || (known && l->complete && known->rank == l->rank &&
			       m->comm[known->comm].nranks == l->nranks && !l->id))
		return;
	key = comm_key(m, x, l);
	c = key ? comm_of(m, key, l->nranks) : NCCL_NO_RANK;
	if (c == NCCL_NO_RANK)
		return;
	member = &m->comm[c].v[l->rank];
	/* two communicators of old versions may look like one */
	if (!l->id && !l->parent && member->process && member->process != process + 1)
		member->process = SEVERAL;
	else
		*member = (struct member){ process + 1, l->bus, l->nvml };
	if ((known && known->comm == c) || x->n == PLACES_MAX)
		return;
	x->place = grown_array(x->place, x->n, sizeof *x->place);
	x->place[x->n++] = (struct nccl_place){ c, l->rank, l->comm };
}

/* ---- channels ---- */

static uint8_t word_of(struct nccl_words *w, const struct nccl_text *t,
		       uint32_t process)
{
	const size_t n = t->n < NCCL_NAME_BYTES ? t->n : NCCL_NAME_BYTES - 1;
	char word[NCCL_NAME_BYTES] = "";

	for (size_t i = 0; i < n; i++)
		word[i] = t->p[i] > ' ' && t->p[i] <= '~' ? t->p[i] : ' ';
	for (size_t i = 0; i < w->n; i++)
		if (!strcmp(w->v[i], word))
			return (uint8_t)i;
	if (w->n == NCCL_WORDS_MAX)
		return NCCL_WORDS_MAX - 1;
	memcpy(w->v[w->n], word, sizeof word);
	w->process[w->n] = process;
	return (uint8_t)w->n++;
}

/* The member at the far end of E in C, if that can be it. */
static const struct member *far_end(const struct comm *c, const struct edge *e)
{
	const struct member *far = e->peer < c->nranks ? &c->v[e->peer] : NULL;

	if (!far || !far->process || far->process == SEVERAL)
		return NULL;
	if (e->dev != NCCL_NO_DEV &&
	    (far->bus != NCCL_NO_DEV || far->nvml != NCCL_NO_DEV) &&
	    far->bus != e->dev && far->nvml != e->dev)
		return NULL;
	return far;
}

static const struct member *find_far(const struct nccl_pairs *p, const struct edge *e)
{
	const struct nccl_process *x = &p->process[e->process];

	for (size_t i = x->n; i-- > 0;) {
		const struct comm *c = &p->maps->comm[x->place[i].comm];
		const struct member *far =
			x->place[i].rank == e->own ? far_end(c, e) : NULL;

		if (far)
			return far;
	}
	return x->n ? NULL : far_end(&p->maps->implied, e);
}

/* The row of E, whose far end is process FAR. */
static struct nccl_row *row_of(struct nccl_pairs *p, const struct edge *e, uint32_t far)
{
	const uint32_t a = p->process[e->process].host, b = p->process[far].host;
	struct nccl_row r = { .host = { a < b ? a : b, a < b ? b : a },
			      .way = (enum nccl_way)e->way,
			      .net = e->net,
			      .gdr = e->gdr,
			      .receives = e->receives };
	const uint64_t kind = (uint64_t)(e->way | e->gdr << 8 | e->receives << 9) |
			      (uint64_t)e->net << 16;
	uint64_t key = hash_mix(hash_mix(hash_mix(4, kind), r.host[0]), r.host[1]);
	const uint32_t *known = map_get(&p->maps->rows, key);

	if (!known && p->nrows >= NCCL_ROWS_MAX) {
		r.host[0] = r.host[1] = NCCL_NO_RANK;
		key = hash_mix(5, kind);
		known = map_get(&p->maps->rows, key);
	}
	if (known)
		return &p->row[*known];
	p->row = grown_array(p->row, p->nrows, sizeof *p->row);
	p->row[p->nrows] = r;
	map_put(&p->maps->rows, key, (uint32_t)p->nrows);
	return &p->row[p->nrows++];
}

static void place_edge(struct nccl_pairs *p, const struct edge *e)
{
	struct nccl_host *h = &p->host[p->process[e->process].host];
	const struct member *member = find_far(p, e);
	uint32_t far, low, high;
	struct nccl_row *r;
	uint64_t key;

	if (e->way == NCCL_NET && !strstr(p->networks.v[e->net], "Socket"))
		*(e->gdr ? &h->direct[e->receives] : &h->plain[e->receives]) +=
			e->count;
	if (!member) {
		p->unplaced += e->count;
		return;
	}
	far = member->process - 1;
	low = e->process < far ? e->process : far;
	high = e->process < far ? far : e->process;
	r = row_of(p, e, far);
	r->channels += e->count;
	r->nics[p->process[e->process].host != r->host[0]] |= e->nics;
	key = hash_mix(hash_mix(hash_mix(6, (uint64_t)(r - p->row)), low), high);
	if (map_get(&p->maps->pairs, key))
		return;
	if (p->maps->pairs.n < PAIRS_MAX)
		map_put(&p->maps->pairs, key, 0);
	if (r->pairs < NCCL_ODD_MAX) {
		r->odd[r->pairs][0] = low;
		r->odd[r->pairs][1] = high;
	}
	r->pairs++;
}

void nccl_pairs_settle(struct nccl_pairs *p)
{
	struct nccl_maps *m = p->maps;

	for (size_t i = 0; i < m->edges; i++)
		if (m->edge[i].count) {
			place_edge(p, &m->edge[i]);
			m->edge[i].count = 0;
		}
	m->nedges = 0;
}

/* The place of E in M's table, or the free one for it. */
static struct edge *edge_slot(struct nccl_maps *m, const struct edge *e)
{
	uint64_t h = hash_mix(
		hash_mix(hash_mix(hash_mix(7, e->process), e->own), e->peer), e->dev);
	size_t i = hash_mix(h, e->way) & (m->edges - 1);

	for (;; i = (i + 1) & (m->edges - 1)) {
		const struct edge *x = &m->edge[i];

		if (!x->count || (x->process == e->process && x->own == e->own &&
				  x->peer == e->peer && x->dev == e->dev &&
				  x->way == e->way && x->net == e->net &&
				  x->gdr == e->gdr && x->receives == e->receives))
			return &m->edge[i];
	}
}

static void grow_edges(struct nccl_pairs *p)
{
	struct nccl_maps *m = p->maps;
	struct edge *old = m->edge;
	const size_t n = m->edges;

	if (2 * (m->nedges + 1) <= m->edges)
		return;
	if (m->edges == 2 * EDGES_MAX) {
		nccl_pairs_settle(p);
		return;
	}
	m->edges = n ? 2 * n : 64;
	m->edge = xcalloc(m->edges, sizeof *m->edge);
	for (size_t i = 0; i < n; i++)
		if (old[i].count)
			*edge_slot(m, &old[i]) = old[i];
	free(old);
}

/* The rank that prints a channel is that process. */
static void imply_rank(struct nccl_maps *m, uint32_t process, uint32_t own,
		       uint64_t dev)
{
	struct comm *c = &m->implied;

	if (own >= IMPLIED_MAX)
		return;
	if (own >= c->nranks) {
		const uint32_t n = own >= 2 * c->nranks ? own + 1 : 2 * c->nranks;

		c->v = xreallocarray(c->v, n, sizeof *c->v);
		memset(c->v + c->nranks, 0, (n - c->nranks) * sizeof *c->v);
		c->nranks = n;
	}
	c->v[own] = (struct member){ process + 1, dev, dev };
}

static void add_channel(struct nccl_pairs *p, uint32_t process,
			const struct nccl_line *l)
{
	struct edge e = { .process = process,
			  .own = l->receives ? l->to : l->from,
			  .peer = l->receives ? l->from : l->to,
			  .dev = l->receives ? l->from_dev : l->to_dev,
			  .way = (uint8_t)l->way,
			  .gdr = l->gdr,
			  .receives = l->receives };
	struct edge *slot;

	if (l->way == NCCL_NET) {
		e.net = word_of(&p->networks, &l->net, process);
		e.nics = l->nic < 64 ? 1ULL << l->nic : 0;
	}
	if (!p->process[process].n)
		imply_rank(p->maps, process, e.own,
			   l->receives ? l->to_dev : l->from_dev);
	grow_edges(p);
	slot = edge_slot(p->maps, &e);
	if (slot->count) {
		slot->count += slot->count < UINT32_MAX;
		slot->nics |= e.nics;
	} else {
		e.count = 1;
		*slot = e;
		p->maps->nedges++;
	}
}

/* ---- other lines ---- */

static void add_nics(struct nccl_pairs *p, uint32_t process, const struct nccl_line *l)
{
	struct nccl_host *h = &p->host[p->process[process].host];
	const bool ib = l->net.n == 2 && !memcmp(l->net.p, "IB", 2);
	struct nccl_text name;
	uint32_t number;

	h->has_ib |= ib && l->says == NCCL_NICS;
	h->lacks_ib |= ib && l->says == NCCL_NO_DEVICE;
	for (size_t i = 0; i < 2 * NCCL_NICS_MAX && nccl_line_nic(l, i, &number, &name);
	     i++)
		if (number < NCCL_NICS_MAX && name.n < NCCL_NAME_BYTES) {
			memcpy(h->nic[number], name.p, name.n);
			h->nic[number][name.n] = '\0';
		}
}

static void add_warning(struct nccl_pairs *p, uint32_t process,
			const struct nccl_line *l)
{
	const size_t n = l->text.n < NCCL_TEXT_BYTES ? l->text.n : NCCL_TEXT_BYTES - 1;
	char text[NCCL_TEXT_BYTES] = "";

	for (size_t i = 0; i < n; i++)
		text[i] =
			l->text.p[i] >= ' ' && l->text.p[i] <= '~' ? l->text.p[i] : '?';
	for (size_t i = 0; i < p->nwarnings; i++)
		if (!strcmp(p->warning[i].text, text)) {
			p->warning[i].count++;
			return;
		}
	if (p->nwarnings == NCCL_TEXTS_MAX) {
		p->more_warnings++;
		return;
	}
	memcpy(p->warning[p->nwarnings].text, text, sizeof text);
	p->warning[p->nwarnings].process = process;
	p->warning[p->nwarnings++].count = 1;
}

void nccl_pairs_add(struct nccl_pairs *p, const struct nccl_origin *from,
		    const struct nccl_line *l)
{
	uint32_t process;

	if (l->says == NCCL_NOTHING)
		return;
	p->lines++;
	process = process_of(p, from, l);
	if (l->says == NCCL_VERSION)
		word_of(&p->versions, &l->text, process);
	if (l->says == NCCL_WARN && l->text.n)
		add_warning(p, process, l);
	if (process == NCCL_NO_RANK)
		return;
	if (l->says == NCCL_CHANNEL)
		add_channel(p, process, l);
	else if (l->says == NCCL_INIT)
		add_init(p, process, l);
	else if (l->says == NCCL_NICS || l->says == NCCL_NO_DEVICE)
		add_nics(p, process, l);
	else if (l->says == NCCL_NETWORK)
		word_of(&p->networks, &l->net, process);
	else if (l->says == NCCL_CHANNELS) {
		p->collnet |= l->collnet > 0;
		p->nvls |= l->nvls > 0;
	} else if (l->says == NCCL_TIMINGS && l->bootstrap_s > p->bootstrap_s) {
		p->bootstrap_s = l->bootstrap_s;
		p->bootstrap_process = process;
	}
}

struct nccl_pairs *nccl_pairs_open(void)
{
	struct nccl_pairs *p = xcalloc(1, sizeof *p);

	p->maps = xcalloc(1, sizeof *p->maps);
	p->bootstrap_process = NCCL_NO_RANK;
	return p;
}

void nccl_pairs_free(struct nccl_pairs *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->nhosts; i++)
		free(p->host[i].name);
	for (size_t i = 0; i < p->nprocesses; i++)
		free(p->process[i].place);
	for (size_t i = 0; i < p->maps->ncomms; i++)
		free(p->maps->comm[i].v);
	free(p->maps->hosts.at);
	free(p->maps->processes.at);
	free(p->maps->comms.at);
	free(p->maps->rows.at);
	free(p->maps->pairs.at);
	free(p->maps->comm);
	free(p->maps->implied.v);
	free(p->maps->edge);
	free(p->maps);
	free(p->host);
	free(p->process);
	free(p->row);
	free(p);
}
