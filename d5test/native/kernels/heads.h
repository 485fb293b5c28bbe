// Heads of attention as matrices, whether they are an axis or folded into the last one.
#pragma once

#include <vector>

#include "gemm.h"
#include <d5test/operator.h>

namespace kernels {

using d5test::Shape;
using d5test::Tensor;

/// The sizes of a call. `total` keys are `past` and `keys`; `ratio` heads share one of the keys'.
struct Extents {
    std::int64_t n, heads, kv, queries, keys, past, width, value_width;
    bool folded;

    std::int64_t total() const { return past + keys; }
    std::int64_t ratio() const { return heads / kv; }
    std::int64_t stage() const { return queries * total(); }
    Shape shape(std::int64_t count, std::int64_t length, std::int64_t each) const {
        return {n, count, length, each};
    }
};

/// A head of a sample as a matrix: of (n, heads, length, width), or of (n, length, heads width).
template <typename T>
Matrix<T> head(const Tensor<T>& x, const Extents& s, std::int64_t heads, std::int64_t i,
               std::int64_t h) {
    if (!s.folded) return {x.data() + (i * heads + h) * x.shape(2) * x.shape(3), x.shape(3)};
    return {x.data() + i * x.shape(1) * x.shape(2) + h * (x.shape(2) / heads), x.shape(2)};
}

/// The rows of a head of a tensor (n, heads, length, width) from one on.
template <typename T>
Matrix<T> rows(const Tensor<T>& x, std::int64_t i, std::int64_t h, std::int64_t from = 0) {
    const std::int64_t length = x.shape(2), width = x.shape(3);
    return {x.data() + ((i * x.shape(1) + h) * length + from) * width, width};
}

template <typename T>
void copy(Matrix<const T> from, Matrix<T> to, std::int64_t m, std::int64_t n) {
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) to(i, j) = from(i, j);
}

/// A matrix in rows of its own, times a factor.
template <typename T>
std::vector<T> copied(Matrix<const T> from, std::int64_t m, std::int64_t n, T factor) {
    std::vector<T> found(m * n);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) found[i * n + j] = from(i, j) * factor;
    return found;
}

/// c += a b, with a: (m, k) and b: (k, n).
template <typename T>
void add_product(std::int64_t m, std::int64_t n, std::int64_t k, Matrix<const T> a,
                 Matrix<const T> b, Matrix<T> c) {
    multiply(Packed<T>(m, k, a), b, c, n);
}

}  // namespace kernels
