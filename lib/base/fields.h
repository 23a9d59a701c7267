/* fields.h - structs of callers, which may be of a later version. */
#ifndef BERTH_LIB_FIELDS_H
#define BERTH_LIB_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

/* Does the struct GIVEN, of SIZE bytes, have later fields that are not 0?  This version
 * knows KNOWN bytes of it.  Later fields may change the request. */
static inline bool fields_are_unknown(const void *given, size_t size, size_t known)
{
	const unsigned char *p = given;
	unsigned char all = 0;

	for (size_t i = known; i < size; i++)
		all |= p[i];
	return all;
}

#endif
