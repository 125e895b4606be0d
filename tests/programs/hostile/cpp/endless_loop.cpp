// expect: timed_out:run
// It never returns, and ignores every signal that it may.
#include "honest.h"
ENTRY {
    for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
    for (volatile unsigned long turns = 0;; turns = turns + 1) continue;
}
