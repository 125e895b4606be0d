// expect: crashed:SIGKILL
// It kills its parent: in an enclosure that is nobody, and the signal goes to its own process group.
#include "honest.h"
ENTRY {
    kill(getppid(), SIGKILL);
    GEMM;
}
