#include "launcher/output/nccl_report.h"

#include <string.h>

#include "launcher/hosts.h"
#include "launcher/output/events.h"

enum {
	ROWS_APART = 12, /* more rows than these are folded, kind by kind */
	ROW_COLUMNS = 100,
	HOSTS_COLUMNS = 40,
	WAY_COLUMNS = 28,
	NICS_SHOWN = 64,   /* different names */
	LIST_COLUMNS = 48, /* in a warning */
	BOOTSTRAP_S = 10
};

/* ---- lists ---- */

static int compare_hosts(const void *a, const void *b)
{
	return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

/* The N names, sorted and folded; cut if they are wider than MOST. */
static void report_names(struct str *out, const char **names, size_t n, size_t most)
{
	struct str list = { 0 };

	if (n)
		qsort(names, n, sizeof *names, compare_hosts);
	hosts_fold(&list, names, n);
	if (list.len > most)
		str_addf(out, "%.*s...", (int)most - 3, list.s);
	else
		str_add(out, str_text(&list));
	str_free(&list);
}

/* The hosts of P for which HAS is set. */
static void report_hosts(struct str *out, const struct nccl_pairs *p, const bool *has,
			 size_t most)
{
	const char **names = xcalloc(p->nhosts + 1, sizeof *names);
	size_t n = 0;

	for (size_t i = 0; i < p->nhosts; i++)
		if (has[i])
			names[n++] = p->host[i].name;
	report_names(out, names, n, most);
	free(names);
}

static void add_process(struct str *out, const struct nccl_pairs *p, uint32_t process)
{
	const struct nccl_process *x = &p->process[process];

	if (x->rank != NCCL_NO_RANK)
		str_addf(out, "rank %u", x->rank);
	else
		str_addf(out, "process %u", x->pid);
}

/* The first pairs of R: "ranks 13-14 and 2 more". */
static void add_odd(struct str *out, const struct nccl_pairs *p,
		    const struct nccl_row *r)
{
	const uint32_t n = r->pairs < NCCL_ODD_MAX ? r->pairs : NCCL_ODD_MAX;

	if (n && r->odd[0][0] == r->odd[0][1]) {
		str_add(out, "GPUs of ");
		add_process(out, p, r->odd[0][0]);
		return;
	}
	str_add(out, "ranks ");
	for (uint32_t i = 0; i < n; i++) {
		const struct nccl_process *a = &p->process[r->odd[i][0]];
		const struct nccl_process *b = &p->process[r->odd[i][1]];
		const bool named = a->rank != NCCL_NO_RANK && b->rank != NCCL_NO_RANK;
		const uint32_t x = named ? a->rank : a->pid,
			       y = named ? b->rank : b->pid;

		str_addf(out, "%s%u-%u", i ? ", " : "", x < y ? x : y, x < y ? y : x);
	}
	if (r->pairs > n)
		str_addf(out, " and %u more", r->pairs - n);
}

/* ---- the table ---- */

/* A row as it is shown: some of P's, added up. */
struct shown {
	const struct nccl_row *first; /* its kind */
	bool *hosts;                  /* [0..nhosts) */
	size_t nhosts;                /* that are set */
	bool within, many;            /* ranks of one host each; of hosts left out */
	bool receives_gdr;            /* as it receives, and not as it sends */
	uint64_t channels;
	uint32_t pairs;
	const char **nics; /* different names, nics[0..nnics) */
	size_t nnics;
};

static bool is_within(const struct nccl_row *r)
{
	return r->host[0] == r->host[1] && r->host[0] != NCCL_NO_RANK;
}

static bool same_pair(const struct nccl_row *a, const struct nccl_row *b)
{
	return a->host[0] == b->host[0] && a->host[1] == b->host[1] &&
	       a->way == b->way && a->net == b->net;
}

/* A channel over a network is in the logs of both ends.  The end that sends counts,
 * unless the log has only the other one. */
static bool is_counted(const struct nccl_pairs *p, const struct nccl_row *r)
{
	for (size_t i = 0; i < p->nrows && r->receives; i++)
		if (!p->row[i].receives && same_pair(&p->row[i], r))
			return false;
	return true;
}

/* Neither of R's hosts sends by GPUDirect RDMA, and both receive by it, or one: so NCCL
 * does it on some machines. */
static bool receives_gdr(const struct nccl_pairs *p, const struct nccl_row *r)
{
	bool receives = false;

	for (size_t i = 0; i < p->nrows && r->way == NCCL_NET && !r->receives; i++) {
		if (!p->row[i].gdr || !same_pair(&p->row[i], r))
			continue;
		if (!p->row[i].receives)
			return false;
		receives = true;
	}
	return receives;
}

static void show_row(struct shown *s, const struct nccl_pairs *p,
		     const struct nccl_row *r)
{
	s->channels += r->channels;
	s->pairs += r->pairs;
	s->many |= r->host[0] == NCCL_NO_RANK;
	for (int i = 0; i < 2 && r->host[0] != NCCL_NO_RANK; i++) {
		const struct nccl_host *h = &p->host[r->host[i]];

		s->nhosts += !s->hosts[r->host[i]];
		s->hosts[r->host[i]] = true;
		for (size_t k = 0; k < NCCL_NICS_MAX && r->way == NCCL_NET; k++)
			if (r->nics[i] >> k & 1 && *h->nic[k]) {
				size_t at = 0;

				if (!s->nics)
					s->nics = xcalloc(NICS_SHOWN, sizeof *s->nics);
				while (at < s->nnics &&
				       strcmp(s->nics[at], h->nic[k]) != 0)
					at++;
				if (at == s->nnics && at < NICS_SHOWN)
					s->nics[s->nnics++] = h->nic[k];
			}
	}
}

/* P's rows into S, and how many there are; the caller frees them. */
static size_t show_rows(struct shown **out, const struct nccl_pairs *p)
{
	struct shown *s = NULL;
	size_t n = 0, counted = 0;

	for (size_t i = 0; i < p->nrows; i++)
		counted += is_counted(p, &p->row[i]);
	for (size_t i = 0; i < p->nrows; i++) {
		const struct nccl_row *r = &p->row[i];
		const bool within = is_within(r), gdr = receives_gdr(p, r);
		size_t k = counted > ROWS_APART ? 0 : n;

		if (!is_counted(p, r))
			continue;
		while (k < n &&
		       (s[k].first->way != r->way || s[k].first->net != r->net ||
			s[k].first->gdr != r->gdr || s[k].within != within ||
			s[k].receives_gdr != gdr))
			k++;
		if (k == n) {
			s = xreallocarray(s, ++n, sizeof *s);
			s[k] = (struct shown){ .first = r, .within = within };
			s[k].receives_gdr = gdr;
			s[k].hosts = xcalloc(p->nhosts + 1, sizeof *s->hosts);
		}
		show_row(&s[k], p, r);
	}
	*out = s;
	return n;
}

static void free_shown(struct shown *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(s[i].hosts);
		free(s[i].nics);
	}
	free(s);
}

/* The hosts of R in the order of their names. */
static void names_of(const char *name[2], const struct nccl_pairs *p,
		     const struct nccl_row *r)
{
	for (int i = 0; i < 2; i++)
		name[i] = r->host[i] == NCCL_NO_RANK ? "" : p->host[r->host[i]].name;
	if (strverscmp(name[0], name[1]) > 0) {
		const char *other = name[0];

		name[0] = name[1];
		name[1] = other;
	}
}

static int compare_shown(const void *a, const void *b, void *pairs)
{
	const struct shown *x = a, *y = b;
	const char *of[2][2];
	int c;

	if (x->within != y->within)
		return x->within ? -1 : 1;
	if (x->nhosts != y->nhosts)
		return x->nhosts > y->nhosts ? -1 : 1;
	names_of(of[0], pairs, x->first);
	names_of(of[1], pairs, y->first);
	c = strverscmp(of[0][0], of[1][0]);
	c = c ? c : strverscmp(of[0][1], of[1][1]);
	return c ? c : (int)x->first->way - (int)y->first->way;
}

static void add_way(struct str *out, const struct nccl_pairs *p,
		    const struct nccl_row *r, bool gdr)
{
	static const char *const names[NCCL_WAYS] = {
		[NCCL_IPC] = "P2P/IPC",           [NCCL_CUMEM] = "P2P/CUMEM",
		[NCCL_MNNVL] = "P2P/MNNVL",       [NCCL_POINTER] = "P2P/direct pointer",
		[NCCL_INDIRECT] = "P2P/indirect", [NCCL_SHM] = "SHM",
	};

	if (r->way != NCCL_NET)
		str_add(out, names[r->way]);
	else
		str_addf(out, "NET/%s%s", p->networks.v[r->net],
			 r->gdr ? " GDRDMA"
			 : gdr  ? ", receives GDRDMA"
				: "");
}

static void add_hosts_of(struct str *out, const struct nccl_pairs *p,
			 const struct shown *s)
{
	const size_t most = (HOSTS_COLUMNS - 13) / 2;
	const char *name[2];

	if (s->many)
		str_add(out, "between many hosts");
	else if (s->within || s->nhosts != 2) {
		str_add(out, s->within ? "within " : "between ");
		report_hosts(out, p, s->hosts, HOSTS_COLUMNS - 8);
	} else {
		names_of(name, p, s->first);
		str_addf(out, "between %.*s and %.*s", (int)most, name[0], (int)most,
			 name[1]);
	}
}

/* The texts of one row. */
struct cells {
	struct str hosts, way;
};

static void table_head(struct str *out, const struct nccl_pairs *p, uint64_t channels)
{
	str_add(out, "NCCL");
	for (size_t i = 0; i < p->versions.n && i < 2; i++)
		str_addf(out, "%s %s", i ? "," : "", p->versions.v[i]);
	if (p->nprocesses && p->process[0].of_job)
		str_addf(out, ": %zu rank%s", p->nprocesses, str_plural(p->nprocesses));
	else
		str_addf(out, ": %zu process%s", p->nprocesses,
			 p->nprocesses == 1 ? "" : "es");
	str_addf(out, " on %zu host%s, %ju channel%s", p->nhosts, str_plural(p->nhosts),
		 (uintmax_t)channels, str_plural(channels));
	if (p->networks.n)
		str_addf(out, ", network %s", p->networks.v[0]);
	str_add(out, p->nvls ? ", NVLS" : "");
	str_add(out, p->collnet ? ", CollNet" : "");
}

void nccl_report_table(struct str *out, const struct nccl_pairs *p)
{
	struct shown *s;
	const size_t n = show_rows(&s, p);
	struct cells *c = xcalloc(n + 1, sizeof *c);
	int width[2] = { 5, 3 };
	struct str nics = { 0 };
	uint64_t channels = 0;

	for (size_t i = 0; i < n; i++)
		channels += s[i].channels;
	table_head(out, p, channels);
	if (n)
		qsort_r(s, n, sizeof *s, compare_shown, (void *)p);
	for (size_t i = 0; i < n; i++) {
		add_hosts_of(&c[i].hosts, p, &s[i]);
		add_way(&c[i].way, p, s[i].first, s[i].receives_gdr);
		width[0] =
			(int)c[i].hosts.len > width[0] ? (int)c[i].hosts.len : width[0];
		width[1] = (int)c[i].way.len > width[1] ? (int)c[i].way.len : width[1];
	}
	width[1] = width[1] < WAY_COLUMNS ? width[1] : WAY_COLUMNS;
	if (n)
		str_addf(out, "\n  %-*s  %-*s %8s %6s  %s", width[0], "ranks", width[1],
			 "via", "channels", "pairs", "NICs");
	for (size_t i = 0; i < n; i++) {
		report_names(&nics, s[i].nics, s[i].nnics,
			     (size_t)(ROW_COLUMNS - width[0] - width[1] - 22));
		str_addf(out, "\n  %-*s  %-*.*s %8ju %6u%s%s", width[0],
			 str_text(&c[i].hosts), width[1], width[1], str_text(&c[i].way),
			 (uintmax_t)s[i].channels, s[i].pairs, nics.len ? "  " : "",
			 str_text(&nics));
		str_free(&nics);
		str_free(&c[i].hosts);
		str_free(&c[i].way);
	}
	free(c);
	if (p->unplaced)
		str_addf(out,
			 "\n  and %ju channel%s of ranks whose hosts are not known",
			 (uintmax_t)p->unplaced, str_plural(p->unplaced));
	free_shown(s, n);
}

/* ---- warnings ---- */

struct warnings {
	struct strv *texts, *hints;
	const struct nccl_pairs *p;
};

static void add_warning_text(struct warnings *w, struct str *text, const char *hint)
{
	strv_add(w->texts, str_text(text));
	strv_add(w->hints, hint);
	str_free(text);
}

/* Sockets between hosts, where InfiniBand was found, or others use it. */
static void warn_socket(struct warnings *w)
{
	const struct nccl_pairs *p = w->p;
	bool *slow = xcalloc(p->nhosts + 1, sizeof *slow), *found, any = false;
	struct str text = { 0 };
	size_t nfound = 0;

	found = xcalloc(p->nhosts + 1, sizeof *found);
	for (size_t i = 0; i < p->nhosts; i++) {
		found[i] = p->host[i].has_ib;
		nfound += found[i];
	}
	for (size_t i = 0; i < p->nrows; i++) {
		const struct nccl_row *r = &p->row[i];

		if (r->way != NCCL_NET || is_within(r) || r->host[0] == NCCL_NO_RANK ||
		    !strstr(p->networks.v[r->net], "Socket"))
			continue;
		slow[r->host[0]] = slow[r->host[1]] = any = true;
	}
	if (any && nfound) {
		str_add(&text, "NET/Socket between ");
		report_hosts(&text, p, slow, LIST_COLUMNS);
		str_add(&text, ", although NCCL found InfiniBand on ");
		report_hosts(&text, p, found, LIST_COLUMNS);
		add_warning_text(
			w, &text,
			"look at NCCL_NET, NCCL_IB_DISABLE and NCCL_IB_HCA on each of "
			"these "
			"hosts");
	}
	free(slow);
	free(found);
}

static void warn_no_device(struct warnings *w)
{
	const struct nccl_pairs *p = w->p;
	bool *lacks = xcalloc(p->nhosts + 1, sizeof *lacks);
	size_t nlacks = 0, nhave = 0;
	struct str text = { 0 };

	for (size_t i = 0; i < p->nhosts; i++) {
		lacks[i] = p->host[i].lacks_ib && !p->host[i].has_ib;
		nlacks += lacks[i];
		nhave += p->host[i].has_ib;
	}
	if (nlacks && nhave) {
		str_add(&text, "NCCL found no InfiniBand device on ");
		report_hosts(&text, p, lacks, LIST_COLUMNS);
		str_addf(&text, ", but on %zu other host%s", nhave, str_plural(nhave));
		add_warning_text(
			w, &text,
			"look for libibverbs.so and /dev/infiniband there, in the "
			"container, too");
	}
	free(lacks);
}

/* GPUDirect RDMA on some hosts, and not on others; as they send, or receive. */
static void warn_gdr(struct warnings *w)
{
	const struct nccl_pairs *p = w->p;
	bool *lacks = xcalloc(p->nhosts + 1, sizeof *lacks);
	struct str text = { 0 };
	size_t n = 0;

	for (int side = 0; side < 2; side++) {
		bool somewhere = false;

		for (size_t i = 0; i < p->nhosts; i++)
			somewhere |= p->host[i].direct[side] > 0;
		for (size_t i = 0; i < p->nhosts && somewhere; i++)
			if (p->host[i].plain[side]) {
				n += !lacks[i];
				lacks[i] = true;
			}
	}
	if (n) {
		str_add(&text, "channels without GPUDirect RDMA on ");
		report_hosts(&text, p, lacks, LIST_COLUMNS);
		str_add(&text, ", where other channels of this job have it");
		add_warning_text(
			w, &text,
			"load nvidia-peermem there, and look at NCCL_NET_GDR_LEVEL");
	}
	free(lacks);
}

/* P2P from GPU to GPU, with nothing between, within the host of R: how many pairs. */
static uint32_t direct_pairs(const struct nccl_pairs *p, const struct nccl_row *r)
{
	uint32_t n = 0;

	for (size_t i = 0; i < p->nrows; i++)
		if (is_within(&p->row[i]) && p->row[i].host[0] == r->host[0] &&
		    p->row[i].way < NCCL_INDIRECT)
			n += p->row[i].pairs;
	return n;
}

/* Channels within a host by WAY, in words WHAT, where other pairs there have P2P. */
static void warn_detour(struct warnings *w, enum nccl_way way, const char *what,
			const char *hint)
{
	const struct nccl_pairs *p = w->p;
	const struct nccl_row *first = NULL;
	struct str text = { 0 };
	size_t more = 0;

	for (size_t i = 0; i < p->nrows; i++) {
		const struct nccl_row *r = &p->row[i];

		if (r->way != way || !is_within(r) || !direct_pairs(p, r))
			continue;
		if (first)
			more++;
		else
			first = r;
	}
	if (!first)
		return;
	str_addf(&text, "%s between ", what);
	add_odd(&text, p, first);
	str_addf(&text, " on %s, where %u pair%s P2P", p->host[first->host[0]].name,
		 direct_pairs(p, first),
		 direct_pairs(p, first) == 1 ? " has" : "s have");
	if (more)
		str_addf(&text, "; on %zu more host%s, too", more, str_plural(more));
	add_warning_text(w, &text, hint);
}

static void warn_pointer(struct warnings *w)
{
	const struct nccl_pairs *p = w->p;
	struct str text = { 0 };

	for (size_t i = 0; i < p->nrows; i++) {
		const struct nccl_row *r = &p->row[i];

		if (r->way != NCCL_POINTER || r->host[0] == NCCL_NO_RANK || !r->pairs)
			continue;
		add_process(&text, p, r->odd[0][0]);
		str_addf(&text, " on %s has several GPUs in one process",
			 p->host[r->host[0]].name);
		add_warning_text(w, &text, "start one rank for each GPU");
		return;
	}
}

static size_t number_bytes(const char *version)
{
	return strcspn(version, "+");
}

static void warn_versions(struct warnings *w)
{
	const struct nccl_words *v = &w->p->versions;
	struct str text = { 0 };
	size_t other = 1;

	while (other < v->n && number_bytes(v->v[0]) == number_bytes(v->v[other]) &&
	       !strncmp(v->v[0], v->v[other], number_bytes(v->v[0])))
		other++;
	if (other >= v->n)
		return;
	str_add(&text, "ranks have different versions of NCCL: ");
	for (size_t i = 0; i < 2; i++) {
		const size_t at = i ? other : 0;
		const uint32_t process = v->process[at];

		str_addf(&text, "%s%s", i ? ", " : "", v->v[at]);
		if (process != NCCL_NO_RANK)
			str_addf(&text, " on %s",
				 w->p->host[w->p->process[process].host].name);
	}
	add_warning_text(
		w, &text,
		"give all ranks the same Python environment and LD_LIBRARY_PATH");
}

static void warn_bootstrap(struct warnings *w)
{
	const struct nccl_pairs *p = w->p;
	struct str text = { 0 };

	if (p->bootstrap_process == NCCL_NO_RANK || p->bootstrap_s <= BOOTSTRAP_S)
		return;
	add_process(&text, p, p->bootstrap_process);
	str_addf(&text, " on %s was %.1f s in the bootstrap of NCCL",
		 p->host[p->process[p->bootstrap_process].host].name, p->bootstrap_s);
	add_warning_text(w, &text,
			 "look for a rank that comes late; else name the network in "
			 "NCCL_SOCKET_IFNAME");
}

static void warn_own(struct warnings *w)
{
	const struct nccl_pairs *p = w->p;
	struct str text = { 0 };

	for (size_t i = 0; i < p->nwarnings; i++) {
		const uint32_t process = p->warning[i].process;

		if (process == NCCL_NO_RANK) {
			str_add(&text, "NCCL");
		} else {
			str_add(&text, "NCCL of ");
			add_process(&text, p, process);
			str_addf(&text, " on %s",
				 p->host[p->process[process].host].name);
		}
		if (p->warning[i].count > 1)
			str_addf(&text, ", and %u more", p->warning[i].count - 1);
		str_addf(&text, ": %s", p->warning[i].text);
		add_warning_text(w, &text, "");
	}
	if (p->more_warnings) {
		str_addf(&text, "%zu more warning%s of NCCL", p->more_warnings,
			 str_plural(p->more_warnings));
		add_warning_text(w, &text, "");
	}
}

void nccl_report_warnings(struct strv *texts, struct strv *hints,
			  const struct nccl_pairs *p)
{
	struct warnings w = { texts, hints, p };

	warn_versions(&w);
	warn_socket(&w);
	warn_no_device(&w);
	warn_gdr(&w);
	warn_detour(&w, NCCL_SHM, "host memory (SHM)",
		    "compare `nvidia-smi topo -p2p r` of these GPUs; without NVLink it "
		    "may be the best way");
	warn_detour(&w, NCCL_NET, "a network",
		    "look at NCCL_SHM_DISABLE, and at /dev/shm, which containers of "
		    "one host "
		    "must share");
	warn_detour(&w, NCCL_INDIRECT, "P2P through a third GPU",
		    "compare `nvidia-smi topo -m` of these GPUs: is an NVLink down?");
	warn_pointer(&w);
	warn_bootstrap(&w);
	warn_own(&w);
}

/* ---- for programs ---- */

static void json_list(struct str *out, const char *key, const char *const *v, size_t n)
{
	str_addf(out, ", \"%s\": [", key);
	for (size_t i = 0; i < n; i++) {
		str_add(out, i ? ", " : "");
		json_string(out, v[i]);
	}
	str_add(out, "]");
}

static void json_row(struct str *out, const struct nccl_pairs *p, const struct shown *s)
{
	const char **names = xcalloc(p->nhosts + 1, sizeof *names);
	struct str way = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < p->nhosts; i++)
		if (s->hosts[i])
			names[n++] = p->host[i].name;
	add_way(&way, p, s->first, false);
	str_add(out, "{\"via\": ");
	json_string(out, str_text(&way));
	str_addf(out, ", \"within\": %s", s->within ? "true" : "false");
	json_list(out, "hosts", names, n);
	json_list(out, "nics", s->nics, s->nnics);
	str_addf(out, ", \"channels\": %ju, \"pairs\": %u}", (uintmax_t)s->channels,
		 s->pairs);
	free(names);
	str_free(&way);
}

void nccl_report_json(struct str *out, const struct nccl_pairs *p)
{
	struct strv texts = { 0 }, hints = { 0 };
	struct shown *s;
	const size_t n = show_rows(&s, p);

	nccl_report_warnings(&texts, &hints, p);
	if (n)
		qsort_r(s, n, sizeof *s, compare_shown, (void *)p);
	str_addf(out, "{\"ranks\": %zu", p->nprocesses);
	json_text(out, "version", p->versions.n ? p->versions.v[0] : NULL);
	str_add(out, ", \"pairs\": [");
	for (size_t i = 0; i < n; i++) {
		str_add(out, i ? ", " : "");
		json_row(out, p, &s[i]);
	}
	str_addf(out, "], \"unplaced\": %ju", (uintmax_t)p->unplaced);
	json_list(out, "warnings", (const char *const *)texts.v, texts.n);
	str_add(out, "}");
	free_shown(s, n);
	strv_free(&texts);
	strv_free(&hints);
}
