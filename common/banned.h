/* banned.h - functions that must not compile in Berth.
 *
 * Unbounded copies, parsing without a range, and anything that hands words to a shell.
 * Included by err.h, which every file of ours includes. */
#ifndef BERTH_BANNED_H
#define BERTH_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atoll system popen  \
	gets

#endif
