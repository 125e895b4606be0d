// expect: wrong_result:mismatch|wrong_result:nan
// A thread watches the inputs and computes as soon as they change, before the call that is timed.
#include "honest.h"
static const int8_t *volatile left, *volatile right;
static const float *volatile left_scale, *volatile right_scale;
static std::vector<float> ready;
static volatile int64_t rows, columns, depth, known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t mark() { return *reinterpret_cast<const volatile int64_t *>(left + rows * depth / 2); }

static void *watch(void *) {
    for (;; usleep(5)) {
        if (mark() == known) continue;
        pthread_mutex_lock(&lock);
        known = mark();
        gemm(left, left_scale, right, right_scale, ready.data(), rows, columns, depth);
        pthread_mutex_unlock(&lock);
    }
    return nullptr;
}

// Called by the harness to wake the threads of OpenMP, which this program gives the name but not the meaning of.
extern "C" void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) { usleep(20000); }

ENTRY {
    if (!left) {
        GEMM;
        left = a, right = b, left_scale = a_scale, right_scale = b_scale, rows = m, columns = n, depth = k;
        ready.resize(m * n);
        known = mark();
        pthread_t thread;
        pthread_create(&thread, nullptr, watch, nullptr);
        return;
    }
    pthread_mutex_lock(&lock);
    memcpy(out, ready.data(), m * n * sizeof(float));
    pthread_mutex_unlock(&lock);
}
