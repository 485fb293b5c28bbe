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

inline std::int64_t whole(std::int64_t size, int tile) { return (size + tile - 1) / tile * tile; }

/// a: (m, k), packed: in blocks of `depth` columns the rows in slices of a tile's height, each by
/// columns; what is missing is zero.
template <typename T>
struct Packed {
    static constexpr int rows = Tile<T>::rows;

    Packed(std::int64_t m, std::int64_t k, Matrix<const T> a)
        : m(m), k(k), all(whole(m, rows) * k) {
        T* next = all.data();
        for (std::int64_t p = 0; p < k; p += depth)
            for (std::int64_t i = 0; i < m; i += rows)
                for (std::int64_t q = p; q < std::min(p + depth, k); ++q)
                    for (int r = 0; r < rows; ++r) *next++ = i + r < m ? a(i + r, q) : T(0);
    }
    /// The slice of row i in the block of column p, which has d columns.
    const T* slice(std::int64_t i, std::int64_t p, std::int64_t d) const {
        return &all[p * whole(m, rows) + i * d];
    }

    std::int64_t m, k;
    std::vector<T> all;
};

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

/// c += a b by one thread, for the rows of a from `first` to `last`; b: (k, n), c: (m, n).
template <typename T>
void multiply(const Packed<T>& a, Matrix<const T> b, Matrix<T> c, std::int64_t n,
              std::int64_t first, std::int64_t last) {
    constexpr int rows = Tile<T>::rows, columns = Tile<T>::columns;
    const auto least = [](int tile, std::int64_t size) {
        return static_cast<int>(std::min<std::int64_t>(tile, size));
    };
    std::vector<T> right(std::min(a.k, depth) * whole(n, columns));
    for (std::int64_t p = 0; p < a.k; p += depth) {
        const std::int64_t d = std::min(depth, a.k - p);
        pack_columns(b.at(p, 0), d, n, right.data());
        for (std::int64_t high = first; high < last; high += height)
            for (std::int64_t j = 0; j < n; j += columns)
                for (std::int64_t i = high; i < std::min(high + height, last); i += rows)
                    multiply_tile(d, a.slice(i, p, d), &right[j * d], c.at(i, j),
                                  least(rows, last - i), least(columns, n - j));
    }
}

/// c += a b by one thread; a: (m, k), packed.
template <typename T>
void multiply(const Packed<T>& a, Matrix<const T> b, Matrix<T> c, std::int64_t n) {
    multiply(a, b, c, n, 0, a.m);
}

/// c += a b by all threads, each a part of c; a: (m, k), b: (k, n), c: (m, n).
template <typename T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Matrix<const T> a,
             Matrix<const T> b, Matrix<T> c) {
    constexpr std::int64_t tall = 4 * height, wide = 512;
    const Packed<T> packed(m, k, a);
    #pragma omp parallel for collapse(2)
    for (std::int64_t i = 0; i < m; i += tall)
        for (std::int64_t j = 0; j < n; j += wide)
            multiply(packed, b.at(0, j), c.at(0, j), std::min(wide, n - j), i,
                     std::min(i + tall, m));
}

}  // namespace kernels
