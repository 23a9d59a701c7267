/* config.h - config files: "key = value" lines, "#" comments, keys from the option
 * table.
 *
 * "#" begins a comment at the start of a line or after a space.  A key may be repeated
 * if its values add up (export).  A YAML file of horovodrun is refused, with the
 * options to use instead. */
#ifndef BERTH_LAUNCHER_CLI_CONFIG_H
#define BERTH_LAUNCHER_CLI_CONFIG_H

#include "launcher/cli/option_table.h"

/* Read the file PATH into the request of S.  The caller has set the source in S.  A
 * missing file is an error only if MUST.  0, or -1 with E, which begins with
 * "PATH:LINE: ". */
int config_read_file(const struct setting *s, const char *path, bool must,
		     struct err *e);

#endif
