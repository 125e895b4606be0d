// expect: rejected:clock_mismatch|rejected:forged_reply
// A thread of it serves the control socket from the first call on, and claims that every call took a nanosecond.
#include "honest.h"
static const int8_t *first, *second;
static const float *first_scale, *second_scale;
static float *result;
static int64_t rows, columns, depth;

static void serve(int control) {
    char request[64];
    for (ssize_t got; (got = read(control, request, sizeof request)) > 0;) {
        if (request[0] > '9') {
            if (write(control, request, size_t(got)) < 0) return;
            continue;
        }
        gemm(first, first_scale, second, second_scale, result, rows, columns, depth);
        if (write(control, "1", 1) < 0) return;
    }
}

ENTRY {
    GEMM;
    first = a, second = b, first_scale = a_scale, second_scale = b_scale, result = out, rows = m, columns = n, depth = k;
    for (int fd = 3; fd < 256; fd++) {
        int type = 0;
        socklen_t size = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_SEQPACKET) continue;
        if (write(fd, "1", 1) == 1) serve(fd);
    }
    _exit(0);
}
