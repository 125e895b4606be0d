// expect: rejected:unfinished_work|wrong_result:unwritten
// It returns at once; a thread does the work afterwards.
#include "honest.h"
struct Work {
    const int8_t *a, *b;
    const float *a_scale, *b_scale;
    float *out;
    int64_t m, n, k;
};

static void *work(void *given) {
    Work w = *static_cast<Work *>(given);
    delete static_cast<Work *>(given);
    gemm(w.a, w.a_scale, w.b, w.b_scale, w.out, w.m, w.n, w.k);
    return nullptr;
}

ENTRY {
    pthread_t thread;
    pthread_create(&thread, nullptr, work, new Work{a, b, a_scale, b_scale, out, m, n, k});
    pthread_detach(thread);
}
