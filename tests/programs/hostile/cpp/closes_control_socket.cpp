// expect: rejected:broken_channel
// It closes every descriptor, the control socket too, and goes on running.
#include "honest.h"
ENTRY {
    GEMM;
    for (int fd = 0; fd < 256; fd++) close(fd);
    for (;;) pause();
}
