// expect: rejected:out_of_bounds_write
// A vector store runs past the end of its output.
#include "honest.h"
ENTRY {
    GEMM;
    volatile float *end = out + m * n;
    for (int i = 0; i < 8; i++) end[i] = 0.0f;
}
