#include "lib/base/callback.h"

_Thread_local unsigned callback_depth;
