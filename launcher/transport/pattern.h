/* pattern.h - the patterns of ssh_config and known_hosts: '*', '?', and lists of them.
 *
 * Brackets have no meaning, unlike in fnmatch(3).  Source: ssh_config(5),
 * "PATTERNS". */
#ifndef BERTH_LAUNCHER_TRANSPORT_PATTERN_H
#define BERTH_LAUNCHER_TRANSPORT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the N characters at PATTERN match TEXT; FOLD: in either case. */
bool pattern_match(const char *pattern, size_t n, const char *text, bool fold);

/* Match TEXT with the list "a,b*,!c": whether one matches, and no negated one. */
bool pattern_list(const char *list, const char *text, bool fold);

#endif
