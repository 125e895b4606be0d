// expect: crashed:exit
// It ends its process with status 0 before anything is checked.
#include "honest.h"
ENTRY { _exit(0); }
