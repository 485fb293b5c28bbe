// Row-major tensors as the interface has them, for frameworks that have no others, and what a call of
// theirs is bound to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "d5test/interface.h"

namespace bridge {

/// Room for some of T, on the stack unless there are many: a call allocates nothing.
template <typename T, std::size_t Few = 4>
class Room {
public:
    explicit Room(std::size_t count) : more_(count > Few ? new T[count] : nullptr) {}
    T* data() { return more_ ? more_.get() : few_.data(); }

private:
    std::array<T, Few> few_;
    std::unique_ptr<T[]> more_;
};

/// An operator, and a bit for each of its tensors: the inputs that are there, those of them that have a
/// gradient, and the outputs that are there. Python keeps it for ever (`bridges/__init__.py`).
struct Bound {
    const D5Operator* table;
    void* made;
    std::uint64_t inputs, slopes, outputs;

    static const Bound& at(std::int64_t address) { return *reinterpret_cast<Bound*>(address); }
    bool has_input(std::int32_t k) const { return inputs >> k & 1; }
    bool has_slope(std::int32_t k) const { return slopes >> k & 1; }
    bool has_output(std::int32_t k) const { return outputs >> k & 1; }
    /// Whether `backward` is handed an output.
    bool reads_output(std::int32_t k) const {
        return has_output(k) && !(table->outputs[k].flags & D5_PORT_UNREAD);
    }
    /// Whether a gradient comes in from an output: from one that is there, and of no integers.
    bool has_grad(std::int32_t k) const {
        return has_output(k) && !(table->outputs[k].flags & D5_PORT_INTEGERS);
    }
};

/// Up to `most` tensors.
class RowMajor {
public:
    RowMajor(std::size_t most, std::int32_t device) : device_(device), axes_(most), views_(most) {}

    /// One more; `side` says the size of an axis.
    template <typename Side>
    void add(void* data, D5Type type, std::int32_t rank, const Side& side) {
        auto& axes = axes_.data()[count_];
        std::int64_t size = 1;
        for (std::int32_t axis = rank; axis-- > 0; size *= axes.sides[axis]) {
            axes.sides[axis] = side(axis);
            axes.strides[axis] = size;
        }
        views_.data()[count_++] = {data, {device_, 0}, rank, type,
                                   axes.sides.data(), axes.strides.data(), 0};
    }
    /// One more of which nothing is known: the operator fills its shape.
    void add_unknown() {
        add(nullptr, {}, 0, [](std::int32_t) { return 0; });
    }
    /// One more that is not there.
    void add_absent() {
        add_unknown();
        views_.data()[count_ - 1].ndim = -1;
    }
    D5Tensor* data() { return views_.data(); }

private:
    struct Axes {
        std::array<std::int64_t, D5_MOST_DIMENSIONS> sides, strides;
    };

    std::int32_t device_;
    std::size_t count_ = 0;
    Room<Axes> axes_;
    Room<D5Tensor> views_;
};

/// Where an error is said: room that is not cleared, for it is read after an error alone.
class Said {
public:
    Said() { room_[0] = 0; }
    D5Message message() { return {room_.data(), room_.size()}; }
    const char* text() const { return room_.data(); }

private:
    std::array<char, 4096> room_;
};

}  // namespace bridge
