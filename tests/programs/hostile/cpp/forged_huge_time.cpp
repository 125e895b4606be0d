// expect: rejected:clock_mismatch
// It answers in place of the harness's own code, with a number that no float can hold.
#include "honest.h"
ENTRY {
    GEMM;
    std::string claim(400, '9');
    for (int fd = 3; fd < 256; fd++) send(fd, claim.data(), claim.size(), 0);
    for (;;) pause();
}
