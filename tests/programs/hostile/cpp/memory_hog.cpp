// expect: crashed:out_of_memory
// It takes all the memory there is.
#include "honest.h"
ENTRY {
    for (;;) memset(malloc(8 << 20), 1, 8 << 20);
}
