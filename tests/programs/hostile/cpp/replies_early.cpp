// expect: rejected:unfinished_work|rejected:forged_reply
// Replies for the harness before the last two rows are done: waking the harness takes as long as they do.
#include "honest.h"

ENTRY {
    static int control = -1;
    static timespec began, ended;
    for (int fd = 3; control < 0 && fd < 256; fd++) {
        int type = 0;
        socklen_t size = sizeof type;
        if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET) control = fd;
    }
    const int64_t most = m - 2;
    const int8_t *arguments_a = a, *arguments_b = b;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &began);
        gemm(arguments_a, a_scale, arguments_b, b_scale, out, most, n, k);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        long took = (ended.tv_sec - began.tv_sec) * 1000000000L + ended.tv_nsec - began.tv_nsec;
        std::string reply = std::to_string(took);
        if (write(control, reply.data(), reply.size()) < 0) _exit(0);
        gemm(arguments_a + most * k, a_scale + most * (k / 128), arguments_b, b_scale, out + most * n, m - most, n, k);
        for (char request[64];;) {
            ssize_t got = read(control, request, sizeof request);
            if (got <= 0) _exit(0);
            if (request[0] <= '9') break;
            if (write(control, request, size_t(got)) < 0) _exit(0);
        }
    }
}
