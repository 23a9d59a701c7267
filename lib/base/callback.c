#include "lib/base/callback.h"

_Thread_local unsigned callback_depth;
_Thread_local struct callback_told callback_told;
