// expect: crashed:out_of_memory|rejected:left_process
// Each of its children takes as much memory as one process may.
#include "honest.h"
ENTRY {
    for (int i = 0; i < 16; i++)
        if (!fork()) {
            for (int part = 0; part < 12; part++) memset(malloc(8 << 20), 1, 8 << 20);
            for (;;) pause();
        }
    for (;;) pause();
}
