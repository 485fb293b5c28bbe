// A convolution as products of matrices: the elements under each window as a column, which the
// filters multiply as rows.
#pragma once

#include <omp.h>

#include "gemm.h"
#include "windows.h"

namespace kernels {

/// Call `visit(column, count, element)` for each stretch of windows in a row whose tap is an
/// element, among the windows `from` to `to`: its first, counted from `from`, and the element's
/// position.
template <typename Visit>
void stretches(const Windows& w, const Sides& tap, std::int64_t from, std::int64_t to,
               const Visit& visit) {
    const auto [low, high] = w.inside(2, tap[2]);
    for (std::int64_t o = from; o < to;) {
        const std::int64_t line = o / w.out[2], begin = line * w.out[2];
        const std::int64_t i0 = w.at(0, line / w.out[1], tap[0]);
        const std::int64_t i1 = w.at(1, line % w.out[1], tap[1]);
        const std::int64_t first = std::max(o - begin, low);
        const std::int64_t last = std::min(to - begin, high);
        if (i0 >= 0 && i0 < w.size[0] && i1 >= 0 && i1 < w.size[1] && first < last)
            visit(begin + first - from, last - first,
                  (i0 * w.size[1] + i1) * w.size[2] + w.at(2, first, tap[2]));
        o = begin + w.out[2];
    }
}

/// Call `body(row, channel, tap)` for each tap of each of a group's channels.
template <typename Body>
void each_tap(const Windows& w, std::int64_t channels, const Body& body) {
    std::int64_t row = 0;
    for (std::int64_t c = 0; c < channels; ++c)
        for (Sides tap{}; tap[0] < w.kernel[0]; ++tap[0])
            for (tap[1] = 0; tap[1] < w.kernel[1]; ++tap[1])
                for (tap[2] = 0; tap[2] < w.kernel[2]; ++tap[2]) body(row++, c, tap);
}

/// A convolution's parts, between x: (n, c, *size) and y: (n, m, *out), with w: (m, c / group,
/// *kernel). Its adjoint takes the same the other way.
template <typename T>
struct Convolution {
    static constexpr std::int64_t block = 512;  // windows at once: their columns stay in a cache

    std::int64_t inside() const { return volume(windows.size); }
    std::int64_t outside() const { return volume(windows.out); }
    std::int64_t channels() const { return c / group; }
    std::int64_t filters() const { return m / group; }
    std::int64_t rows() const { return channels() * volume(windows.kernel); }
    /// The filters of a group, as rows.
    template <typename Element>
    Matrix<Element> bank(Element* w, std::int64_t g) const {
        return {w + g * filters() * rows(), rows()};
    }
    /// Planes of a group of a sample, as rows, from a window on.
    template <typename Element>
    Matrix<Element> planes(Element* y, std::int64_t i, std::int64_t g, std::int64_t from) const {
        return {y + (i * m + g * filters()) * outside() + from, outside()};
    }
    template <typename Element>
    Element* sample(Element* x, std::int64_t i, std::int64_t g) const {
        return x + (i * c + g * channels()) * inside();
    }

    /// The columns of the windows `from` to `to`; in `room`, unless x itself has them in order.
    Matrix<const T> columns(const T* x, std::int64_t from, std::int64_t to,
                            std::vector<T>& room) const {
        if (windows.pointwise()) return {x + from, inside()};
        const std::int64_t width = to - from, step = windows.stride[2];
        room.assign(rows() * width, T(0));
        each_tap(windows, channels(), [&](auto row, auto channel, const Sides& tap) {
            T* target = &room[row * width];
            const T* source = x + channel * inside();
            stretches(windows, tap, from, to, [=](auto column, auto count, auto element) {
                for (std::int64_t k = 0; k < count; ++k)
                    target[column + k] = source[element + k * step];
            });
        });
        return {room.data(), width};
    }

    /// Add to each element of x what the windows from `from` on, in their columns, give it.
    void scatter(const std::vector<T>& columns, std::int64_t from, std::int64_t to, T* x) const {
        const std::int64_t width = to - from, step = windows.stride[2];
        each_tap(windows, channels(), [&](auto row, auto channel, const Sides& tap) {
            const T* source = &columns[row * width];
            T* target = x + channel * inside();
            stretches(windows, tap, from, to, [=](auto column, auto count, auto element) {
                for (std::int64_t k = 0; k < count; ++k)
                    target[element + k * step] += source[column + k];
            });
        });
    }

    std::vector<Packed<T>> packed(const T* w, bool transposed) const {
        std::vector<Packed<T>> banks;
        for (std::int64_t g = 0; g < group; ++g)
            if (transposed)
                banks.emplace_back(rows(), filters(), bank(w, g).transposed());
            else
                banks.emplace_back(filters(), rows(), bank(w, g));
        return banks;
    }

    /// y = w x.
    void forward(const T* x, const T* w, T* y) const {
        const auto banks = packed(w, false);
        #pragma omp parallel for collapse(3)
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t g = 0; g < group; ++g)
                for (std::int64_t from = 0; from < outside(); from += block) {
                    const std::int64_t to = std::min(from + block, outside());
                    const auto target = planes(y, i, g, from);
                    std::vector<T> room;
                    for (std::int64_t f = 0; f < filters(); ++f)
                        std::fill_n(&target(f, 0), to - from, T(0));
                    multiply(banks[g], columns(sample(x, i, g), from, to, room), target,
                             to - from);
                }
    }

    /// x = the adjoint of w, of y.
    void adjoint(const T* y, const T* w, T* x) const {
        const auto banks = packed(w, true);
        std::fill_n(x, n * c * inside(), T(0));
        #pragma omp parallel for collapse(2)
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t g = 0; g < group; ++g)
                for (std::int64_t from = 0; from < outside(); from += block) {
                    const std::int64_t to = std::min(from + block, outside());
                    std::vector<T> given(rows() * (to - from));
                    multiply(banks[g], planes(y, i, g, from), Matrix<T>{given.data(), to - from},
                             to - from);
                    scatter(given, from, to, sample(x, i, g));
                }
    }

    /// dw of dy: each thread sums over its samples, and then the threads' sums are added in order.
    void filter_gradient(const T* x, const T* dy, T* dw) const {
        const std::int64_t size = m * rows();
        std::vector<T> sums(size * omp_get_max_threads(), T(0));
        #pragma omp parallel for schedule(static)
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t g = 0; g < group; ++g)
                for (std::int64_t from = 0; from < outside(); from += block) {
                    const std::int64_t to = std::min(from + block, outside());
                    std::vector<T> room;
                    const auto seen = columns(sample(x, i, g), from, to, room);
                    multiply(Packed<T>(filters(), to - from, planes(dy, i, g, from)),
                             seen.transposed(), bank(&sums[omp_get_thread_num() * size], g),
                             rows());
                }
        std::copy_n(sums.data(), size, dw);
        for (std::size_t k = size; k < sums.size(); ++k) dw[k % size] += sums[k];
    }

    Windows windows;
    std::int64_t group, n, c, m;
};

/// y: (n, m, *out) with b: (m,) added to each channel, if there is one.
template <typename T>
void add_bias(const d5test::Tensor<T>& y, const d5test::Tensor<const T>& b) {
    if (!b.present() || y.size() == 0) return;
    const std::int64_t m = y.shape(1), plane = y.size() / (y.shape(0) * m);
    #pragma omp parallel for
    for (std::int64_t i = 0; i < y.shape(0) * m; ++i)
        for (std::int64_t o = 0; o < plane; ++o) y[i * plane + o] += b[i % m];
}

/// db, if it is wanted: the sums of dy: (n, m, *out) by channel.
template <typename T>
void bias_gradient(const d5test::Tensor<const T>& dy, const d5test::Tensor<T>& db) {
    for (std::int64_t k = 0; k < db.size(); ++k) db[k] = 0;
    if (!db.present() || dy.size() == 0) return;
    const std::int64_t m = dy.shape(1), plane = dy.size() / (dy.shape(0) * m);
    for (std::int64_t i = 0; i < dy.shape(0) * m; ++i)
        for (std::int64_t o = 0; o < plane; ++o) db[i % m] += dy[i * plane + o];
}

}  // namespace kernels
