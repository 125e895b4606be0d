// expect: rejected:ran_while_stopped
// A timer sends it SIGCONT, so that it can run on while the harness has it stopped.
#include "honest.h"
ENTRY {
    static bool begun = false;
    if (!begun) {
        struct sigaction action{};  // a timer whose signal is ignored does not go on
        action.sa_handler = [](int) {};
        action.sa_flags = SA_RESTART;
        sigaction(SIGCONT, &action, nullptr);
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGCONT;
        timer_t timer;
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        itimerspec every{{0, 3000000}, {0, 3000000}};
        timer_settime(timer, 0, &every, nullptr);
        begun = true;
    }
    GEMM;
}
