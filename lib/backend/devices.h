/* devices.h - the device back ends of the library (device.h), one for each kind of
 * memory. */
#ifndef BERTH_LIB_DEVICES_H
#define BERTH_LIB_DEVICES_H

#include "lib/backend/device.h"

/* The device back end of MEMORY, or NULL. */
const struct device_backend *device_of(berth_memory memory);
/* Look for each kind of memory. */
void device_look(void);
/* The kind of memory that P is in, as far as is known since the last look.  *DEVICE
 * becomes its device. */
berth_memory device_find(const void *p, int *device);
/* Can the process have memory of a device?  False until a look, or a mark, has found
 * that. */
extern _Atomic bool device_is_there;
/* Puts a device back end in the place of another one, before the first operation.  For
 * tests, which link the objects. */
void device_register(const struct device_backend *b);

#endif
