// A view of a tensor: shape, strides, elements. It owns nothing.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "interface.h"

namespace d5test {

using Shape = std::vector<std::int64_t>;
using Shapes = std::vector<Shape>;

/// Thrown by an author for what the operator does not have: counted as unsupported, not as a fault.
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throw what is told as the operator's own error, unless inputs and attributes fit.
inline void require(bool fits, const char* what) {
    if (!fits) throw std::invalid_argument(what);
}

inline std::string written(const Shape& shape) {
    std::ostringstream text;
    text << '(';
    for (std::size_t k = 0; k < shape.size(); ++k) text << (k ? ", " : "") << shape[k];
    text << (shape.size() == 1 ? ",)" : ")");
    return text.str();
}

/// Whether the elements of a tensor are of type T.
template <typename T>
bool holds(const D5Tensor& given) {
    using Plain = std::remove_const_t<T>;
    const int code = std::is_same_v<Plain, bool> ? D5_BOOL
                     : std::is_integral_v<Plain> ? D5_INT
                                                 : D5_FLOAT;
    return given.ndim >= 0 && given.dtype.code == code && given.dtype.bits == 8 * sizeof(T);
}

/// Elements of type T (const for what is read), reached whatever the strides are.
template <typename T>
class Tensor {
public:
    explicit Tensor(const D5Tensor& given)
        : shape_(given.shape), strides_(given.strides), rank_(given.ndim < 0 ? 0 : given.ndim),
          present_(given.ndim >= 0), size_(present_) {
        if (holds<T>(given))
            data_ = reinterpret_cast<T*>(static_cast<char*>(given.data) + given.byte_offset);
        for (int axis = rank_ - 1; axis >= 0; --axis) {
            contiguous_ = contiguous_ && (shape_[axis] == 1 || strides_[axis] == size_);
            size_ *= shape_[axis];
        }
        contiguous_ = contiguous_ || size_ == 0;
    }

    /// Whether it was given at all: what is `.optional()` may be absent, and has no elements then.
    bool present() const { return present_; }
    /// The first element, null if the elements are of another type than T. The others follow it in row-major order only if `contiguous()`.
    T* data() const { return data_; }
    int rank() const { return rank_; }
    /// The number of elements.
    std::int64_t size() const { return size_; }
    /// The size of an axis; negative axes count from the last.
    std::int64_t shape(int axis) const { return shape_[axis < 0 ? axis + rank_ : axis]; }
    Shape shape() const { return Shape(shape_, shape_ + rank_); }
    /// The distance of two neighbours along an axis, in elements.
    std::int64_t stride(int axis) const { return strides_[axis < 0 ? axis + rank_ : axis]; }
    bool contiguous() const { return contiguous_; }

    /// The i-th element in row-major order, whatever the strides are: outputs are row-major.
    T& operator[](std::int64_t i) const {
        if constexpr (std::is_const_v<T>)
            return data_[__builtin_expect(contiguous_, 1) ? i : offset(i)];
        else
            return data_[i];
    }

    /// The element at an index for each axis: x(n, c, h, w).
    template <typename... Index>
    T& operator()(Index... index) const {
        std::int64_t at = 0;
        int axis = 0;
        ((at += static_cast<std::int64_t>(index) * strides_[axis++]), ...);
        return data_[at];
    }

private:
    // Never inlined: g++ makes a vectorised loop of its own for row-major tensors only of a loop that
    // has no other loop in it. With this one inlined, x[i] took 9 times as long as a plain pointer.
    __attribute__((pure, noinline)) std::int64_t offset(std::int64_t i) const {
        std::int64_t at = 0;
        for (int axis = rank_ - 1; axis >= 0; --axis) {
            at += (i % shape_[axis]) * strides_[axis];
            i /= shape_[axis];
        }
        return at;
    }

    T* data_ = nullptr;
    const std::int64_t *shape_, *strides_;
    int rank_;
    bool present_, contiguous_ = true;
    std::int64_t size_;
};

/// The tensors of a call, by position.
template <typename T>
class Tensors {
    template <typename U>
    using Like = std::conditional_t<std::is_const_v<T>, const U, U>;

public:
    Tensors(const D5Tensor* first, std::size_t count) : first_(first), all_(first, first + count) {}

    std::size_t size() const { return all_.size(); }
    const Tensor<T>& operator[](std::size_t i) const { return all_[i]; }
    /// One that is registered as `.integers()`.
    Tensor<Like<std::int64_t>> integers(std::size_t i) const { return as<std::int64_t>(i); }
    /// Whether one that is registered as `.mask()` has come in booleans, and it as such.
    bool boolean(std::size_t i) const { return holds<bool>(first_[i]); }
    Tensor<Like<bool>> booleans(std::size_t i) const { return as<bool>(i); }

private:
    template <typename U>
    Tensor<Like<U>> as(std::size_t i) const {
        if (all_[i].present() && !holds<U>(first_[i]))
            throw std::logic_error("tensor " + std::to_string(i) + " is of another type");
        return Tensor<Like<U>>(first_[i]);
    }

    const D5Tensor* first_;
    std::vector<Tensor<T>> all_;
};

/// What is read, and what is written.
template <typename T> using Inputs = Tensors<const T>;
template <typename T> using Outputs = Tensors<T>;

}  // namespace d5test
