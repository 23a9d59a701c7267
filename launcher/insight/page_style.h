/* page_style.h - pure: how the page looks: light and dark, on phones and desktops. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_STYLE_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_STYLE_H

/* CSS.  The colours of ranks are .k0 to .k7. */
extern const char page_style[];

enum { PAGE_COLOURS = 8 };

#endif
