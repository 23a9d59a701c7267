#include "launcher/job/warm.h"

#include "launcher/job/python.h"

__asm__(".pushsection .rodata\n"
	"launcher_warm_py:\n"
	".incbin \"launcher/job/warm.py\"\n"
	".byte 0\n"
	".popsection\n");
extern const char launcher_warm_py[];

/* Stacks show the name, and warm.py leaves the frames of that name out. */
static const char reader[] = "import sys;exec(compile(sys.stdin.buffer.read(),"
			     "'<berth warm>','exec'),{'__name__':'berth_warm'})";

/* A rank would get twice what a wrapper sets, as CPUs. */
bool warm_command(struct strv *out, const struct strv *argv, const char *wdir)
{
	return !python_wraps(argv) && python_command(out, argv, wdir, reader);
}

const char *warm_text(void)
{
	return launcher_warm_py;
}
