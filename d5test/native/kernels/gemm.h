// Products of matrices, blocked for the caches and tiled for the registers: Goto and van de Geijn,
// Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34 (2008).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kernels {

/// A view of a matrix: the distance of its rows and of its columns, in elements.
template <typename T>
struct Matrix {
    T& operator()(std::int64_t i, std::int64_t j) const { return data[i * row + j * column]; }
    Matrix at(std::int64_t i, std::int64_t j) const { return {&(*this)(i, j), row, column}; }
    Matrix transposed() const { return {data, column, row}; }

    T* data;
    std::int64_t row, column = 1;
};

/// Numbers in one register, and the tile of the product that is kept in registers.
template <typename T>
struct Tile {
#ifdef __AVX512F__
    static constexpr int bytes = 64, rows = 8;
#else
    static constexpr int bytes = 32, rows = 4;
#endif
    typedef T Lanes __attribute__((vector_size(bytes)));
    static constexpr int lanes = bytes / sizeof(T), columns = 2 * lanes;
};

constexpr std::int64_t depth = 256;   // of a block: its rows of b stay in the first-level cache
constexpr std::int64_t height = 64;   // of a block of a, which stays in the second-level cache

/// The rows of a in slices of a tile's height, each by columns; what is missing is zero.
template <typename T>
void pack_rows(Matrix<const T> a, std::int64_t m, std::int64_t k, T* packed) {
    constexpr int rows = Tile<T>::rows;
    for (std::int64_t i = 0; i < m; i += rows)
        for (std::int64_t p = 0; p < k; ++p)
            for (int r = 0; r < rows; ++r) *packed++ = i + r < m ? a(i + r, p) : T(0);
}

/// The columns of b in slices of a tile's width, each by rows; what is missing is zero.
template <typename T>
void pack_columns(Matrix<const T> b, std::int64_t k, std::int64_t n, T* packed) {
    constexpr int columns = Tile<T>::columns;
    for (std::int64_t j = 0; j < n; j += columns)
        for (std::int64_t p = 0; p < k; ++p, packed += columns) {
            if (j + columns <= n && b.column == 1)
                std::memcpy(packed, &b(p, j), columns * sizeof(T));
            else
                for (int c = 0; c < columns; ++c) packed[c] = j + c < n ? b(p, j + c) : T(0);
        }
}

/// c += a b for one tile, of which m x n are wanted, from a slice of each.
template <typename T>
void multiply_tile(std::int64_t k, const T* a, const T* b, Matrix<T> c, int m, int n) {
    using Lanes = typename Tile<T>::Lanes;
    constexpr int rows = Tile<T>::rows, columns = Tile<T>::columns, lanes = Tile<T>::lanes;
    Lanes sum[rows][2] = {};
    for (std::int64_t p = 0; p < k; ++p, a += rows, b += columns) {
        Lanes left, right;
        std::memcpy(&left, b, sizeof left);
        std::memcpy(&right, b + lanes, sizeof right);
        #pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            sum[r][0] += a[r] * left;
            sum[r][1] += a[r] * right;
        }
    }
    T all[rows][columns];
    std::memcpy(all, sum, sizeof all);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) c(i, j) += all[i][j];
}

/// c += a b by one thread; a: (m, k), b: (k, n), c: (m, n).
template <typename T>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Matrix<const T> a,
              Matrix<const T> b, Matrix<T> c) {
    constexpr int rows = Tile<T>::rows, columns = Tile<T>::columns;
    const auto whole = [](std::int64_t size, int tile) { return (size + tile - 1) / tile * tile; };
    const std::int64_t deep = std::min(k, depth);
    std::vector<T> left(deep * whole(std::min(m, height), rows)), right(deep * whole(n, columns));
    for (std::int64_t p = 0; p < k; p += depth) {
        const std::int64_t d = std::min(depth, k - p);
        pack_columns(b.at(p, 0), d, n, right.data());
        for (std::int64_t i = 0; i < m; i += height) {
            const std::int64_t h = std::min(height, m - i);
            pack_rows(a.at(i, p), h, d, left.data());
            for (std::int64_t j = 0; j < n; j += columns)
                for (std::int64_t r = 0; r < h; r += rows)
                    multiply_tile(d, &left[r * d], &right[j * d], c.at(i + r, j),
                                  static_cast<int>(std::min<std::int64_t>(rows, h - r)),
                                  static_cast<int>(std::min<std::int64_t>(columns, n - j)));
        }
    }
}

/// c += a b by all threads, each a part of c.
template <typename T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Matrix<const T> a,
             Matrix<const T> b, Matrix<T> c) {
    constexpr std::int64_t tall = 256, wide = 512;
    #pragma omp parallel for collapse(2)
    for (std::int64_t i = 0; i < m; i += tall)
        for (std::int64_t j = 0; j < n; j += wide)
            multiply(std::min(tall, m - i), std::min(wide, n - j), k, a.at(i, 0), b.at(0, j),
                     c.at(i, j));
}

}  // namespace kernels
