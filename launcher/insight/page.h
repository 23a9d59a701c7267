/* page.h - pure: --report FILE.html: the report of a job as a page for a browser.
 *
 * One file without anything from elsewhere, and without JavaScript: pictures are SVG
 * inside it, and <details> fold.  Its policy (Content-Security-Policy) forbids all
 * requests, so that no text of a hostile host can make one. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_H

#include "launcher/insight/facts.h"

/* The whole page, in parts. */
void page_html(const struct facts *f, facts_put *put, void *ctx);

#endif
