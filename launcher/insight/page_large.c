#include "launcher/insight/page_large.h"

#include "common/str.h"
#include "launcher/insight/large_rows.h"

static void large_time(struct str *out, double s)
{
	str_add(out, "<td class=\"r\">");
	str_addf(out, s < 0.01 ? "%.3f" : s < 1 ? "%.1f" : "%.0f", 1000 * s);
	str_add(out, "</td>");
}

static void large_line(struct str *out, const struct large_row *row)
{
	static const char *const unit[] = { "B",   "KiB", "MiB", "GiB",
					    "TiB", "PiB", "EiB" };

	str_addf(out,
		 "<tr><td>%s</td><td class=\"r\">%u %s</td><td class=\"r\">%.0f</td>",
		 row->kind, 1u << row->size % 10, unit[row->size / 10], row->ops);
	large_time(out, row->least_s);
	large_time(out, row->mean_s);
	str_addf(out, "<td class=\"r\">%.2f <a href=\"#r%u\">r%u</a></td></tr>\n",
		 row->bandwidth / 1e9, row->fastest, row->fastest);
}

void page_large(struct str *out, const struct record *r)
{
	struct large_row row[LARGE_MOST];
	const size_t n = large_rows(r, row);

	if (!n)
		return;
	str_add(out, "<h2>Collectives</h2>\n<div "
		     "class=\"card\"><table><tr><th>operation</th>"
		     "<th class=\"r\">from</th><th class=\"r\">times</th>"
		     "<th class=\"r\">ms, least</th><th class=\"r\">ms, mean</th>"
		     "<th class=\"r\">bus, GB/s</th></tr>\n");
	for (size_t i = 0; i < n; i++)
		large_line(out, &row[i]);
	str_add(out,
		"</table>\n<p class=\"soft\">Arrays of 64 KiB and more in the hosts' "
		"memory, the same count on all ranks, by their size; each row ends "
		"where the next power of 2 "
		"begins. "
		"A rank waits in an operation for the last one that comes: the rank "
		"that "
		"waits least tells how long the operation takes. Its bandwidth is the "
		"bus bandwidth of NCCL's tests.</p></div>\n");
}
