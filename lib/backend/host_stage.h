/* host_stage.h - stages (device.h) of the host's own memory, in which copies are made
 * at once: for ranks whose arrays are there, beside others that have a device's. */
#ifndef BERTH_LIB_HOST_STAGE_H
#define BERTH_LIB_HOST_STAGE_H

#include "lib/backend/device.h"

/* It has stages, and no group.  It has no marks: those of copies are NULL. */
extern const struct device_backend host_stage;

#endif
