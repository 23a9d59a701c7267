/* udev_stub.c - the six libudev functions that a static libhwloc refers to.
 *
 * hwloc would ask udev for the vendor and model of disks, which Berth never looks at: a
 * udev that can't be reached is all it needs, and the agent then links nothing but libc
 * and libm. */
#include <stddef.h>

struct udev;
struct udev_device;

struct udev *udev_new(void);
struct udev *udev_unref(struct udev *u);
struct udev_device *
udev_device_new_from_subsystem_sysname(struct udev *u, const char *a, const char *b);
struct udev_device *udev_device_new_from_devnum(struct udev *u, char type,
						unsigned long devnum);
const char *udev_device_get_property_value(struct udev_device *d, const char *key);
struct udev_device *udev_device_unref(struct udev_device *d);

struct udev *udev_new(void)
{
	return NULL;
}

struct udev *udev_unref(struct udev *u)
{
	(void)u;
	return NULL;
}

struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *u,
							   const char *a, const char *b)
{
	(void)u;
	(void)a;
	(void)b;
	return NULL;
}

struct udev_device *udev_device_new_from_devnum(struct udev *u, char type,
						unsigned long devnum)
{
	(void)u;
	(void)type;
	(void)devnum;
	return NULL;
}

const char *udev_device_get_property_value(struct udev_device *d, const char *key)
{
	(void)d;
	(void)key;
	return NULL;
}

struct udev_device *udev_device_unref(struct udev_device *d)
{
	(void)d;
	return NULL;
}
