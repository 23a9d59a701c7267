/* config.h - config files: "key = value" lines, "#" comments, keys from the option
 * table.
 *
 * A "#" begins a comment at the start of a line or after a blank.  A key that may be
 * given many times (export) has one value a line.  horovodrun's YAML is recognised and
 * refused with the options to use instead. */
#ifndef BERTH_LAUNCHER_CLI_CONFIG_H
#define BERTH_LAUNCHER_CLI_CONFIG_H

#include "launcher/cli/option_table.h"

/* Read the file PATH into the request of S, whose source is set.  A missing file is
 * fine unless MUST.  0, or -1 with E, which begins with "PATH:LINE: ". */
int config_read_file(const struct setting *s, const char *path, bool must,
		     struct err *e);

#endif
