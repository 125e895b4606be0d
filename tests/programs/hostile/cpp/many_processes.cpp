// expect: rejected:left_process
// A fork bomb.
#include "honest.h"
ENTRY {
    for (;;) fork();
}
