// expect: rejected:ran_while_stopped|rejected:busy_after_return
// Threads send SIGCONT to their own process without end, which takes back every SIGSTOP that is on its way.
#include "honest.h"
static void *go_on(void *) {
    for (;;) kill(getpid(), SIGCONT);
    return nullptr;
}

ENTRY {
    static bool begun = false;
    for (int i = 0; i < 2 && !begun; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, go_on, nullptr);
    }
    begun = true;
    GEMM;
}
