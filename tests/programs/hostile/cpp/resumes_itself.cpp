// expect: rejected:ran_while_stopped
// A timer sends it SIGCONT, so that it runs, and burns a core, while the harness has it stopped.
#include "honest.h"
static volatile bool on;
static void *burn(void *) {
    for (;;)
        if (!on) usleep(100);
    return nullptr;
}

ENTRY {
    static bool begun = false;
    on = false;
    if (!begun) {
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGCONT;
        timer_t timer;
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        itimerspec every{{0, 3000000}, {0, 3000000}};
        timer_settime(timer, 0, &every, nullptr);
        pthread_t thread;
        pthread_create(&thread, nullptr, burn, nullptr);
        begun = true;
    }
    GEMM;
}
