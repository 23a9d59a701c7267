#include "launcher/insight/page_strip.h"

#include "common/str.h"
#include "launcher/insight/format.h"

enum {
	BAR = 6,         /* units of a bar and the gap beside it */
	BARS_LEAST = 80, /* of a strip: a column may have several */
	HIGH = 200,      /* units of a strip */
	QUARTERS = 4
};

static uint32_t bars_of_column(const struct columns *c)
{
	return (BARS_LEAST + c->n - 1) / c->n;
}

static uint32_t column_units(const struct columns *c)
{
	return BAR * bars_of_column(c);
}

static double strip_part(double x)
{
	return !(x > 0) ? 0 : x > 1 ? 1 : x;
}

static void svg_open(struct str *out, const struct columns *c, const char *style,
		     const char *label)
{
	const unsigned wide = c->n * column_units(c);

	str_addf(out,
		 "<svg class=\"%s\" viewBox=\"0 0 %u %d\" preserveAspectRatio=\"none\" "
		 "role=\"img\" aria-label=\"%s\">",
		 style, wide, HIGH, label);
	str_add(out, "<path class=\"g\" d=\"");
	for (unsigned i = 1; i < QUARTERS; i++)
		str_addf(out, "M%u 0V%d", wide * i / QUARTERS, HIGH);
	str_add(out, "\"/>");
}

/* Bars of STYLE in each column, from bottom FROM to top TO as parts of 1. */
struct bars {
	struct str d;
	const char *style;
	uint32_t each; /* bars of a column */
};

static void bar_add(struct bars *b, uint32_t column, double from, double to)
{
	const int low = (int)(HIGH * (1 - from) + 0.5);
	const int high = (int)(HIGH * (1 - to) + 0.5);

	for (uint32_t i = 0; low > high && i < b->each; i++)
		str_addf(&b->d, "M%u %dV%d", (column * b->each + i) * BAR + BAR / 2,
			 low, high);
}

static void bars_end(struct str *out, struct bars *b)
{
	if (b->d.len)
		str_addf(out, "<path class=\"%s\" d=\"%s\"/>", b->style, b->d.s);
	str_free(&b->d);
}

/* Lines where there was no process, or no sample, between others. */
static void add_gaps(struct str *out, const struct point *v, const struct columns *c)
{
	const uint32_t units = column_units(c);
	struct str d = { 0 };
	uint32_t since = 0; /* the column behind the last known one; 0: none yet */

	for (uint32_t i = 0; i < c->n; i++) {
		if (v[i].span_s <= 0)
			continue;
		if (since && since < i)
			str_addf(&d, "M%u %dH%u", since * units, HIGH / 2, i * units);
		since = i + 1;
	}
	if (d.len)
		str_addf(out, "<path class=\"z\" d=\"%s\"/>", d.s);
	str_free(&d);
}

void page_strip(struct str *out, const struct point *v, const struct columns *c,
		const char *style, const char *label)
{
	const uint32_t each = bars_of_column(c), units = column_units(c);
	struct bars none = { .style = "n", .each = each };
	struct bars waits = { .style = "b", .each = each };

	svg_open(out, c, style, label);
	add_gaps(out, v, c);
	str_addf(out, "<path class=\"w\" d=\"M0 %d", HIGH);
	for (uint32_t i = 0; i < c->n; i++) {
		const double main = strip_part((double)v[i].main);
		const double delay = strip_part(main + (double)v[i].delay);
		const double wait = strip_part((double)v[i].blocked);

		str_addf(out, "V%dh%u", (int)(HIGH * (1 - main) + 0.5), units);
		bar_add(&none, i, main, delay);
		/* a rank computes while it waits: what it computes is not hidden */
		bar_add(&waits, i, delay > 1 - wait ? delay : 1 - wait, 1);
	}
	str_addf(out, "V%dz\"/>", HIGH);
	bars_end(out, &none);
	bars_end(out, &waits);
	str_add(out, "</svg>\n");
}

void page_lane(struct str *out, const struct point *v, const struct columns *c,
	       const char *style, const char *label, double most,
	       double (*value)(const struct point *p))
{
	const uint32_t units = column_units(c);
	bool drawn = false;

	svg_open(out, c, style, label);
	str_add(out, "<path class=\"c\" d=\"");
	for (uint32_t i = 0; i < c->n; i++) {
		const double part = most > 0 ? strip_part(value(&v[i]) / most) : 0;
		const int y = (int)(HIGH * (1 - part) + 0.5);
		const bool known = v[i].span_s > 0;

		if (known && !drawn)
			str_addf(out, "M%u %dh%u", i * units, y, units);
		else if (known)
			str_addf(out, "V%dh%u", y, units);
		drawn = known;
	}
	str_add(out, "\"/>");
	if (*label)
		str_add(out, "</svg>\n");
}

void page_marks(struct str *out, const struct columns *c, const double *at_s, size_t n)
{
	str_add(out, "<path class=\"e\" d=\"");
	for (size_t i = 0; i < n; i++)
		str_addf(out, "M%.1f 0V%d",
			 strip_part(at_s[i] / c->width_s / c->n) * c->n *
				 column_units(c),
			 HIGH);
	str_add(out, "\"/></svg>\n");
}

void page_axis(struct str *out, const struct columns *c)
{
	str_add(out, "<div class=\"axis\">");
	for (unsigned i = 0; i <= QUARTERS; i++) {
		struct str time = { 0 };

		format_time(&time, c->n * c->width_s * i / QUARTERS);
		str_addf(out, "<span%s>%s</span>", i % 2 ? " class=\"hide\"" : "",
			 i ? time.s : "0");
		str_free(&time);
	}
	str_add(out, "</div>\n");
}

void page_legend(struct str *out)
{
	static const char *const rows[][2] = {
		{ "<path class=\"w\" d=\"M0 18V6h36V18z\"/>",
		  "solid, from below: the main thread computes" },
		{ "<path class=\"n\" d=\"M6 18V2M14 18V2M22 18V2M30 18V2\"/>",
		  "thin bars on it: it has no CPU" },
		{ "<path class=\"b\" d=\"M6 0V13M14 0V13M22 0V13M30 0V13\"/>",
		  "bars from above: it waits for other ranks" },
		{ "<path class=\"z\" d=\"M0 9H36\"/>",
		  "dashed: no process, between two of its lives, or no sample" },
		{ "", "blank: another wait (a disk, a GPU, a lock), or no sample" },
		{ "<path class=\"c\" d=\"M0 12H12V5H26V10H36\"/>",
		  "line: CPUs of all its threads and children" },
	};

	str_add(out, "<div class=\"key\">");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		str_addf(out,
			 "<span><svg viewBox=\"0 0 36 18\" aria-hidden=\"true\">%s"
			 "</svg>%s</span>\n",
			 rows[i][0], rows[i][1]);
	str_add(out, "</div>\n");
}
