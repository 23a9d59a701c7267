/* udev_stub.c - the six libudev functions that a static libhwloc refers to.
 *
 * hwloc asks udev for the vendor and model of disks, which Berth never reads.  With
 * these functions udev is never reached, and the agent links only libc and libm. */
#include <stddef.h>

/* NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct udev;
struct udev_device;

#define STUB(type, name, ...)                                                          \
	type *name(__VA_ARGS__);                                                       \
	type *name(__VA_ARGS__)                                                        \
	{                                                                              \
		return NULL;                                                           \
	}

STUB(struct udev, udev_new, void)
STUB(struct udev, udev_unref, struct udev *u)
STUB(struct udev_device, udev_device_new_from_subsystem_sysname, struct udev *u,
     const char *subsystem, const char *name)
STUB(struct udev_device, udev_device_new_from_devnum, struct udev *u, char type,
     unsigned long number)
STUB(const char, udev_device_get_property_value, struct udev_device *d, const char *key)
STUB(struct udev_device, udev_device_unref, struct udev_device *d)
/* NOLINTEND(misc-unused-parameters) */
