// A rectifier with a kernel for few numbers and one for many, and what else a library does.

#include <algorithm>
#include <csignal>

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define APART __attribute__((noinline, noclone))

static APART void few(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i)
        y[i] = std::max(x[i], 0.0f);
}

static APART void many(const float* x, float* y, long n) {
    for (long i = n; i-- > 0;)
        y[i] = std::max(x[i], 0.0f);
}

static APART void gradient(const float* x, const float* dy, float* dx, long n) {
    for (long i = 0; i < n; ++i)
        dx[i] = x[i] > 0 ? dy[i] : 0.0f;
}

template <int N>
APART long step(long n) {
    return 3 * n + N + step<N - 1>(n ^ N);
}

template <>
APART long step<0>(long n) {
    return n;
}

EXPORTED void relu(const float* x, float* y, long n) { (n < 1000 ? few : many)(x, y, n); }

EXPORTED void relu_gradient(const float* x, const float* dy, float* dx, long n) {
    gradient(x, dy, dx, n);
}

EXPORTED void never(float* y) { *y = 0; }

// What eight threads find that go through the same hundred functions at the same time.
EXPORTED long together() {
    long sum = 0;
#pragma omp parallel for num_threads(8) reduction(+ : sum) schedule(static, 1)
    for (long i = 0; i < 8; ++i)
        sum += step<100>(i);
    return sum;
}

EXPORTED void crash() { *static_cast<volatile int*>(nullptr) = 1; }

EXPORTED void foreign() { __asm__ volatile("int3"); }
