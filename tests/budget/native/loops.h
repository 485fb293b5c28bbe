// The loops of cube.cpp over plain pointers, for the operators that are written by hand.
#pragma once

#include <cstdint>

template <typename T>
void cube(const T* x, T* y, std::int64_t size, T factor) {
    #pragma omp parallel for
    for (std::int64_t i = 0; i < size; ++i) y[i] = factor * x[i] * x[i] * x[i];
}

template <typename T>
void cube_backward(const T* dy, const T* x, T* dx, std::int64_t size, T factor) {
    #pragma omp parallel for
    for (std::int64_t i = 0; i < size; ++i) dx[i] = 3 * factor * dy[i] * x[i] * x[i];
}
