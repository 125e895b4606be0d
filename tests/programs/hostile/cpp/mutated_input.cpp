// expect: rejected:mutated_input
// It sets its inputs to zero once it is done: whoever computes the reference afterwards finds zeros right.
#include "honest.h"
ENTRY {
    memset(const_cast<int8_t *>(a), 0, m * k);
    memset(const_cast<int8_t *>(b), 0, n * k);
    memset(out, 0, m * n * sizeof(float));
}
