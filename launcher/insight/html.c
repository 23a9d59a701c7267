#include "launcher/insight/html.h"

#include "common/str.h"
#include "launcher/insight/format.h"

/* Bytes that are not UTF-8, and controls, which HTML forbids, become U+FFFD. */
void html_text(struct str *out, const char *text)
{
	struct str cut = { 0 };
	size_t n;

	format_cut(&cut, text);
	for (const char *p = str_text(&cut); *p; p += n ? n : 1) {
		const unsigned char c = (unsigned char)*p;
		/* U+0080 to U+009F are controls, too */
		const bool control = (c < 0x20 && c != '\n' && c != '\t') ||
				     c == 0x7f ||
				     (c == 0xc2 && (unsigned char)p[1] < 0xa0);

		n = str_utf8(p);
		if (c == '&')
			str_add(out, "&amp;");
		else if (c == '<')
			str_add(out, "&lt;");
		else if (c == '>')
			str_add(out, "&gt;");
		else if (c == '"')
			str_add(out, "&quot;");
		else if (c == '\'')
			str_add(out, "&#39;");
		else if (control || !n)
			str_add(out, "\xef\xbf\xbd");
		else
			str_addn(out, p, n);
	}
	str_free(&cut);
}

void html_row(struct str *out, const char *key, const char *text)
{
	if (!text || !*text)
		return;
	str_addf(out, "<dt>%s</dt><dd>", key);
	html_text(out, text);
	str_add(out, "</dd>\n");
}
