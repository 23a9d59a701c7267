#include "launcher/insight/page_table.h"

#include "common/str.h"

/* Values of a rank; below 0: unknown. */

static double table_main(const struct rank_record *r)
{
	return r->sums.use_s > 0 ? 100 * r->sums.main_s / r->sums.use_s : -1;
}

static double table_delay(const struct rank_record *r)
{
	return r->sums.use_s > 0 ? 100 * r->sums.delay_s / r->sums.use_s : -1;
}

static double table_blocked(const struct rank_record *r)
{
	return r->sums.ops_s > 0 ? 100 * r->sums.blocked_s / r->sums.ops_s : -1;
}

static double table_cpus(const struct rank_record *r)
{
	return r->sums.use_s > 0 ? (r->sums.cpu_s + r->sums.children_s) / r->sums.use_s
				 : -1;
}

static double table_memory(const struct rank_record *r)
{
	return r->peak_bytes ? (double)r->peak_bytes / (1 << 30) : -1;
}

static double table_reads(const struct rank_record *r)
{
	return r->sums.use_s > 0 ? r->sums.read_bytes / r->sums.use_s / 1e6 : -1;
}

/* A row of the table: the least, the mean and the most of a value; below 0: unknown. */
static void table_row(struct str *out, const struct record *r, const char *name,
		      int decimals, double (*value)(const struct rank_record *r))
{
	double least = 0, most = 0, sum = 0, n = 0;
	uint32_t low = 0, high = 0;

	for (uint32_t i = 0; i < r->nranks; i++) {
		const double x = value(&r->rank[i]);

		if (x < 0)
			continue;
		if (n < 1 || x < least) {
			least = x;
			low = i;
		}
		if (n < 1 || x > most) {
			most = x;
			high = i;
		}
		sum += x;
		n++;
	}
	if (n < 1)
		return;
	str_addf(out, "<tr><td>%s</td>", name);
	str_add(out, "<td class=\"r\">");
	str_addf(out, "%.*f", decimals, least);
	str_addf(out, " <a href=\"#r%u\">r%u</a></td><td class=\"r\">", low, low);
	str_addf(out, "%.*f", decimals, sum / n);
	str_add(out, "</td><td class=\"r\">");
	str_addf(out, "%.*f", decimals, most);
	str_addf(out, " <a href=\"#r%u\">r%u</a></td></tr>\n", high, high);
}

void page_table(struct str *out, const struct record *r)
{
	static const struct {
		const char *name;
		int decimals;
		double (*value)(const struct rank_record *r);
	} rows[] = {
		{ "computes, %", 0, table_main },
		{ "has no CPU, %", 0, table_delay },
		{ "waits for other ranks, %", 0, table_blocked },
		{ "CPUs used", 1, table_cpus },
		{ "memory, GiB at most", 2, table_memory },
		{ "reads, MB/s", 1, table_reads },
	};

	str_add(out, "<table><tr><th>of a rank</th><th class=\"r\">least</th>"
		     "<th class=\"r\">mean</th><th class=\"r\">most</th></tr>\n");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		table_row(out, r, rows[i].name, rows[i].decimals, rows[i].value);
	str_add(out, "</table>\n");
}
