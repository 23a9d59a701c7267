#include "launcher/job/plan_draw.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launcher/capture.h"
#include "launcher/job/plan_groups.h"

enum { LIMIT_MS = 30000, IMAGE_BYTES = 32 << 20, GAP = 10 };

void plan_draw_clean(char *text)
{
	/* hwloc's own texts have attributes in "" alone, and no entity but in names */
	for (char *p = text; (p = strpbrk(p, "&'")); p++)
		*p = '_';
}

/* ---- images, one below the other ---- */

/* Its element, without what comes before, and its size. */
static const char *svg_of(const char *image, unsigned *width, unsigned *height)
{
	const char *svg = strstr(image, "<svg "), *at;

	at = svg ? strstr(svg, " width='") : NULL;
	if (!at || sscanf(at, " width='%9upx' height='%9upx'", width, height) != 2)
		return NULL;
	return svg;
}

bool plan_draw_stack(struct str *out, const struct str *v, size_t n)
{
	unsigned width = 0, height = 0, w, h, y = 0;

	for (size_t i = 0; i < n; i++) {
		if (!svg_of(str_text(&v[i]), &w, &h))
			return false;
		width = w > width ? w : width;
		height += h + (i ? GAP : 0);
	}
	str_addf(
		out,
		"<svg xmlns='http://www.w3.org/2000/svg' width='%upx' height='%upx'>\n",
		width, height);
	for (size_t i = 0; i < n; i++) {
		const char *svg = svg_of(str_text(&v[i]), &w, &h);

		str_addf(out, "<svg y='%u' %s\n", y, svg + strlen("<svg "));
		y += h + GAP;
	}
	str_add(out, "</svg>\n");
	return true;
}

/* ---- lstopo ---- */

/* Group G to OUT.  Returns why not, or NULL. */
static const char *draw_group(struct str *out, const struct job *j,
			      const struct plan_group *g)
{
	const char *drawing = j->run[g->host[0]].drawing;
	const int fd = memfd_create("plan", MFD_CLOEXEC);
	const char *why = "its agent could not draw the machine";
	const bool png = j->request->plan == PLAN_PNG;
	struct str title = { 0 };

	plan_group_words(&title, j, g);
	for (char *p = title.s; (p = strpbrk(p, "<>&")); p++)
		*p = '_';
	if (fd < 0 || !drawing) {
		why = drawing ? strerror(errno) : why;
	} else {
		char *text = xstrdup(drawing);
		/* all cores: of equal ones lstopo leaves some out */
		const char *const words[] = { "lstopo",
					      "-i",
					      "-",
					      "--if",
					      "xml",
					      "--no-factorize",
					      "--no-default-legend",
					      "--append-legend",
					      title.s,
					      "--of",
					      png ? "png" : "svg",
					      "-",
					      NULL };
		const struct capture c = { words, fd, LIMIT_MS, IMAGE_BYTES };

		plan_draw_clean(text);
		why = "no memory";
		if (write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
		    !lseek(fd, 0, SEEK_SET))
			why = capture_run(out, &c);
		free(text);
	}
	if (fd >= 0)
		close(fd);
	str_free(&title);
	return why;
}

static const char *draw_all(struct str *out, const struct job *j,
			    const struct plan_group *group, size_t n)
{
	struct str *image = xcalloc(n + 1, sizeof *image);
	const char *why = NULL;

	for (size_t i = 0; i < n && !why; i++)
		why = draw_group(&image[i], j, &group[i]);
	if (!why && n == 1)
		str_addn(out, image[0].s, image[0].len);
	else if (!why && !plan_draw_stack(out, image, n))
		why = "lstopo's SVG has another form";
	for (size_t i = 0; i < n; i++)
		str_free(&image[i]);
	free(image);
	return why;
}

void plan_draw(struct job *j)
{
	const bool png = j->request->plan == PLAN_PNG;
	struct str out = { 0 };
	const char *why = NULL;
	struct plan_group *group;
	size_t n;

	group = plan_groups(j, &n);
	if (png && n > 1)
		why = "a PNG holds one machine, and the ranks of these hosts differ";
	else if (png && isatty(STDOUT_FILENO))
		why = "stdout is a terminal";
	else
		why = draw_all(&out, j, group, n);
	plan_groups_free(group, n);
	if (why) {
		err_set(&j->err, E_PLAN_DRAW, png ? "png" : "svg", why);
		j->refused = true;
	} else if (fwrite(str_text(&out), 1, out.len, stdout) != out.len) {
		err_set(&j->err, E_OUTPUT, "stdout", strerror(errno));
		j->refused = true;
	}
	str_free(&out);
}
