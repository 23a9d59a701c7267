#include "agent/step_request.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* ---- words ---- */

/* A decimal number from 0 to MOST at *AT, which then is behind it. */
static bool take_number(uint32_t *out, const char **at, uint32_t most)
{
	unsigned long long n;
	char *end;

	if (!isdigit((unsigned char)**at))
		return false;
	errno = 0;
	n = strtoull(*at, &end, 10);
	if (errno || n > most)
		return false;
	*out = (uint32_t)n;
	*at = end;
	return true;
}

/* The word at *AT up to a comma, into OUT; *AT is then behind the comma. */
static bool take_word(char *out, size_t size, const char **at)
{
	size_t n = strcspn(*at, ",");

	if (!n || n >= size)
		return false;
	memcpy(out, *at, n);
	out[n] = '\0';
	*at += n + ((*at)[n] == ',');
	return true;
}

/* "2(x3)" at *AT, which then is behind it: 2 TASKS, 3 TIMES. */
static bool take_tasks(uint32_t *tasks, uint32_t *times, const char **at)
{
	*times = 1;
	if (!take_number(tasks, at, STEP_TASKS_MAX))
		return false;
	if (!strncmp(*at, "(x", 2)) {
		*at += 2;
		if (!take_number(times, at, STEP_NODES_MAX) || *(*at)++ != ')')
			return false;
	}
	return *times && (!**at || **at == ',');
}

/* "3" or "1-3" at *AT, which then is behind it: how many numbers that are, or 0. */
static uint32_t take_range(const char **at)
{
	uint32_t first, last;

	if (!take_number(&first, at, STEP_HOST_NUMBER_MAX))
		return 0;
	if (**at != '-')
		return 1;
	++*at;
	if (!take_number(&last, at, STEP_HOST_NUMBER_MAX) || last < first)
		return 0;
	return last - first + 1;
}

/* The hosts of one word of a list, "r[1-2]n[3,5]"; *AT is then behind it. */
static uint64_t take_hosts(const char **at)
{
	uint64_t n = 1;

	for (; **at && **at != ','; ++*at) {
		uint64_t inside = 0;
		uint32_t range = 0;

		if (**at != '[')
			continue;
		do {
			++*at;
			range = take_range(at);
			inside += range;
		} while (range && **at == ',');
		n *= inside;
		if (!range || **at != ']' || n > STEP_NODES_MAX)
			return 0;
	}
	return n;
}

uint32_t step_count_hosts(const char *list)
{
	uint64_t sum = 0;

	while (*list) {
		const char *word = list;
		const uint64_t n = take_hosts(&list);

		sum += n;
		if (!n || list == word || sum > STEP_NODES_MAX)
			return 0;
		list += *list == ',';
	}
	return (uint32_t)sum;
}

/* ---- the request ---- */

static bool take_ranks(struct step_request *q, const char *value)
{
	if (q->ranks)
		return false;
	q->ranks = xcalloc(STEP_TASKS_MAX, sizeof *q->ranks);
	do {
		if (q->tasks == STEP_TASKS_MAX ||
		    !take_number(&q->ranks[q->tasks], &value, UINT32_MAX))
			return false;
		q->tasks++;
	} while (*value++ == ',');
	return !value[-1];
}

static bool take_line(struct step_request *q, const char *word, const char *value)
{
	const struct {
		const char *word;
		const char **text;
		uint32_t *number;
	} lines[] = {
		{ "uid", NULL, &q->uid },
		{ "job", NULL, &q->job },
		{ "step", NULL, &q->step },
		{ "node", NULL, &q->node },
		{ "nodes", NULL, &q->nodes },
		{ "size", NULL, &q->size },
		{ "hosts", &q->hosts, NULL },
		{ "layout", &q->layout, NULL },
		{ "options", &q->options, NULL },
		{ "cores", &q->cores, NULL },
		{ "bind-type", &q->bind_type, NULL },
		{ "bind-list", &q->bind_list, NULL },
		{ "cuda", &q->cuda, NULL },
		{ "rocr", &q->rocr, NULL },
		{ "step-gpus", &q->step_gpus, NULL },
		{ "task-gpus", &q->task_gpus, NULL },
		{ "topology", &q->topology, NULL },
	};

	if (!strcmp(word, "ranks"))
		return take_ranks(q, value);
	if (!strcmp(word, "only"))
		return q->only_options = !strcmp(value, "options");
	if (!strcmp(word, "before")) {
		const uint32_t n = step_count_hosts(value);

		q->before += n;
		return n && q->before <= STEP_NODES_MAX;
	}
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		if (strcmp(word, lines[i].word) != 0)
			continue;
		if (lines[i].number)
			return take_number(lines[i].number, &value, UINT32_MAX) &&
			       !*value;
		*lines[i].text = value;
		return true;
	}
	return false;
}

/* The tasks on the first NODES nodes of LAYOUT into OUT. */
static bool tasks_before(uint32_t *out, const char *layout, uint32_t nodes)
{
	uint32_t tasks, times;

	for (*out = 0; nodes; layout += *layout == ',') {
		if (!take_tasks(&tasks, &times, &layout))
			return false;
		times = times < nodes ? times : nodes;
		*out += tasks * times;
		nodes -= times;
	}
	return true;
}

/* Slurm counts nodes and ranks within a component of a het job; Berth, and
 * SLURM_PROCID, over all. */
static bool request_shift(struct step_request *q)
{
	uint32_t tasks;

	if (!tasks_before(&tasks, q->layout, q->before))
		return false;
	q->node += q->before;
	for (size_t i = 0; i < q->tasks; i++)
		q->ranks[i] += tasks;
	return true;
}

/* Every number fits the others. */
static bool request_is_sound(const struct step_request *q)
{
	for (size_t i = 0; i < q->tasks; i++)
		if (q->ranks[i] >= q->size)
			return false;
	return q->tasks && q->tasks <= q->size && q->nodes &&
	       q->nodes <= STEP_NODES_MAX && q->node < q->nodes;
}

int step_request_read(struct step_request *q, char *text, struct err *e)
{
	char *line = strsep(&text, "\n"), *value;

	*q = (struct step_request){ .hosts = "",
				    .layout = "",
				    .options = "",
				    .cores = "",
				    .bind_type = "",
				    .bind_list = "" };
	if (strcmp(line, "berth-step 1") != 0)
		return err_set(e, E_STEP, "it is of another version");
	while ((line = strsep(&text, "\n")) && *line) {
		value = strchr(line, ' ');
		if (value)
			*value++ = '\0';
		if (!value || !take_line(q, line, value))
			return err_set(e, E_STEP, str_plain(line));
	}
	if (q->only_options || (request_shift(q) && request_is_sound(q)))
		return 0;
	return err_set(e, E_STEP, "its numbers do not fit");
}

void step_request_free(struct step_request *q)
{
	free(q->ranks);
	*q = (struct step_request){ 0 };
}

/* ---- --berth ---- */

static int request_choice(int *out, const char *value, const char *const *names,
			  size_t n, struct err *e)
{
	struct str all = { 0 };

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(value, names[i])) {
			*out = (int)i;
			str_free(&all);
			return 0;
		}
		str_addf(&all, "%s%s", i ? ", " : "", names[i]);
	}
	err_set(e, E_CHOICE, value, str_text(&all));
	str_free(&all);
	return -1;
}

#define CHOICE(out, value, e, ...)                                                     \
	request_choice((out), (value), (const char *const[]){ __VA_ARGS__ },           \
		       sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *),  \
		       (e))

/* "core:2" */
static int bind_to(struct place_options *p, char *value, struct err *e)
{
	char *number = strchr(value, ':');
	long count = 0;
	int bind;

	if (number) {
		*number++ = '\0';
		if (str_to_long(&count, number, 1, 65536, e))
			return -1;
	}
	if (CHOICE(&bind, value, e, BIND_TO_NAMES))
		return -1;
	p->bind_to = (enum bind_to)bind;
	p->bind_count = (unsigned)count;
	return 0;
}

static int request_option(struct step_options *o, char *word, struct err *e)
{
	char *value = strchr(word, '=');
	int n, rc;

	if (value)
		*value++ = '\0';
	if (!value && !strcmp(word, "off"))
		return o->off = true, 0;
	if (!value && !strcmp(word, "on"))
		return o->off = false, 0;
	if (!value && !strcmp(word, "report"))
		return o->report = true, 0;
	if (!value && !strcmp(word, "strict")) /* the plugin's */
		return 0;
	if (!value && !strcmp(word, "all-gpus"))
		return o->all_gpus = true, 0;
	if (!value && !strcmp(word, "no-gpu-sharing"))
		return o->place.no_gpu_sharing = true, 0;
	if (value && !strcmp(word, "bind-to"))
		return bind_to(&o->place, value, e);
	if (value && !strcmp(word, "share")) {
		rc = CHOICE(&n, value, e, SHARE_NAMES);
		o->place.share = rc ? SHARE_SOCKET : (enum share)n;
		return rc;
	}
	if (value && !strcmp(word, "gpu-visible")) {
		rc = CHOICE(&n, value, e, GPU_VISIBLE_NAMES);
		o->gpu_visible = rc ? VISIBLE_AUTO : (enum gpu_visible)n;
		return rc;
	}
	if (value && !strcmp(word, "gpu-id")) {
		rc = CHOICE(&n, value, e, GPU_ID_NAMES);
		o->gpu_id = rc ? GPU_ID_INDEX : (enum gpu_id)n;
		return rc;
	}
	return err_set(e, E_STEP_OPTION, word);
}

int step_options_read(struct step_options *o, const char *text, struct err *e)
{
	char word[128];

	*o = (struct step_options){ 0 };
	while (*text) {
		if (!take_word(word, sizeof word, &text))
			return err_set(e, E_STEP_OPTION, "");
		if (request_option(o, word, e))
			return -1;
	}
	return 0;
}

/* ---- Slurm's lists ---- */

/* The first number of each range in brackets stands for it. */
bool step_first_host(char *out, size_t size, const char *list)
{
	size_t n = 0;

	while (*list && *list != ',') {
		const bool range = *list == '[';
		const size_t len = range ? strspn(++list, "0123456789") : 1;
		const char *end = range ? strchr(list, ']') : list;

		if (!len || !end || n + len >= size)
			return false;
		memcpy(out + n, list, len);
		n += len;
		list = end + 1;
	}
	out[n] = '\0';
	return n;
}

bool step_cross(uint32_t *rank, uint32_t *size, const char *layout, uint32_t local,
		uint32_t node)
{
	uint32_t first = 0, tasks, times;

	for (*rank = *size = 0; *layout; layout += *layout == ',') {
		if (!take_tasks(&tasks, &times, &layout))
			return false;
		if (first + times > STEP_NODES_MAX)
			return false;
		if (tasks > local) {
			*size += times;
			if (node > first)
				*rank += node - first < times ? node - first : times;
		}
		first += times;
	}
	return node < first;
}

static bool hex_mask(struct cpuset *s, const char *word)
{
	size_t n;

	if (!strncasecmp(word, "0x", 2))
		word += 2;
	n = strlen(word);
	for (size_t i = 0; i < n; i++) {
		const char c = (char)tolower((unsigned char)word[n - 1 - i]);
		const int digit = isdigit((unsigned char)c) ? c - '0' : c - 'a' + 10;

		if (!isxdigit((unsigned char)c))
			return false;
		for (uint32_t bit = 0; bit < 4; bit++)
			if (digit >> bit & 1)
				cpuset_add(s, (uint32_t)i * 4 + bit);
	}
	return n;
}

bool step_masks(struct cpuset *v, size_t n, const char *type, const char *list,
		const struct cpuset *like)
{
	const bool is_map = !strcmp(type, "map_cpu:");
	const char *at = list;
	bool ok = *list && (is_map || !strcmp(type, "mask_cpu:"));
	char word[4096];
	uint32_t pu;
	size_t made = 0;

	for (; ok && made < n; made++) {
		v[made] = cpuset_new(like->nwords);
		ok = take_word(word, sizeof word, &at);
		if (ok && is_map) {
			const char *number = word;

			ok = take_number(&pu, &number, UINT32_MAX) && !*number;
			if (ok)
				cpuset_add(&v[made], pu);
		} else if (ok) {
			ok = hex_mask(&v[made], word);
		}
		if (!*at)
			at = list;
	}
	for (size_t i = 0; !ok && i < made; i++)
		cpuset_free(&v[i]);
	return ok;
}

static bool gpu_list(bool *may, const char **at, const int *numbers, size_t ngpu)
{
	uint32_t number;

	while (take_number(&number, at, INT32_MAX)) {
		for (size_t i = 0; i < ngpu; i++)
			may[i] |= numbers[i] == (int)number;
		if (**at != ',')
			return true;
		++*at;
	}
	return false;
}

bool step_gpu_lists(bool *may, size_t n, const char *lists, const int *numbers,
		    size_t ngpu)
{
	memset(may, 0, n * ngpu);
	for (size_t r = 0; r < n; r++, lists++) {
		if (!gpu_list(may + r * ngpu, &lists, numbers, ngpu))
			return false;
		if (*lists != (r + 1 < n ? ';' : '\0'))
			return false;
	}
	return true;
}

uint32_t step_port(uint32_t job, uint32_t step)
{
	uint64_t x = (uint64_t)job << 32 | step;

	/* neighbours are far apart: Fibonacci hashing */
	x = (x ^ x >> 29) * 0x9e3779b97f4a7c15u;
	return 20000 + (uint32_t)(x >> 32) % 9500;
}
