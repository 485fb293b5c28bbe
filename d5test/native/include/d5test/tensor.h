// A view of a tensor: shape, strides, elements. It owns nothing.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "interface.h"

namespace d5test {

using Shape = std::vector<std::int64_t>;
using Shapes = std::vector<Shape>;

/// Thrown by an author for what the operator does not have: counted as unsupported, not as a fault.
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline std::string written(const Shape& shape) {
    std::ostringstream text;
    text << '(';
    for (std::size_t k = 0; k < shape.size(); ++k) text << (k ? ", " : "") << shape[k];
    text << (shape.size() == 1 ? ",)" : ")");
    return text.str();
}

/// Elements of type T (const for what is read), reached whatever the strides are.
template <typename T>
class Tensor {
public:
    explicit Tensor(const D5Tensor& given)
        : data_(reinterpret_cast<T*>(static_cast<char*>(given.data) + given.byte_offset)),
          shape_(given.shape), strides_(given.strides), rank_(given.ndim) {
        for (int axis = rank_ - 1; axis >= 0; --axis) {
            contiguous_ = contiguous_ && (shape_[axis] == 1 || strides_[axis] == size_);
            size_ *= shape_[axis];
        }
        contiguous_ = contiguous_ || size_ == 0;
    }

    /// The first element. The others follow it in row-major order only if `contiguous()`.
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

    /// The i-th element in row-major order, whatever the strides are.
    T& operator[](std::int64_t i) const { return data_[contiguous_ ? i : offset(i)]; }

    /// The element at an index for each axis: x(n, c, h, w).
    template <typename... Index>
    T& operator()(Index... index) const {
        std::int64_t at = 0;
        int axis = 0;
        ((at += static_cast<std::int64_t>(index) * strides_[axis++]), ...);
        return data_[at];
    }

private:
    std::int64_t offset(std::int64_t i) const {
        std::int64_t at = 0;
        for (int axis = rank_ - 1; axis >= 0; --axis) {
            at += (i % shape_[axis]) * strides_[axis];
            i /= shape_[axis];
        }
        return at;
    }

    T* data_;
    const std::int64_t *shape_, *strides_;
    int rank_;
    std::int64_t size_ = 1;
    bool contiguous_ = true;
};

/// What is read, and what is written.
template <typename T> using Inputs = std::vector<Tensor<const T>>;
template <typename T> using Outputs = std::vector<Tensor<T>>;

}  // namespace d5test
