/* html.h - pure: any bytes as text of HTML, which can be nothing else. */
#ifndef BERTH_LAUNCHER_INSIGHT_HTML_H
#define BERTH_LAUNCHER_INSIGHT_HTML_H

struct str;

/* Append TEXT, cut (facts.h), for a place between tags or inside of quotes. */
void html_text(struct str *out, const char *text);
/* <dt>KEY</dt><dd>TEXT</dd>; nothing if TEXT is NULL or empty. */
void html_row(struct str *out, const char *key, const char *text);

#endif
