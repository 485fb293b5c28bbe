// Where the windows of a kernel lie on the spatial axes of (n, c, *size), as ONNX defines it.
//
// One and two spatial axes are three, the first of which have one element.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <d5test/operator.h>

namespace kernels {

using Sides = std::array<std::int64_t, 3>;
using List = std::vector<std::int64_t>;

inline std::int64_t volume(const Sides& s) { return s[0] * s[1] * s[2]; }

/// Sizes of 1 to 3 axes as those of three.
inline Sides three(const List& list, std::int64_t missing = 1) {
    if (list.empty() || list.size() > 3)
        throw d5test::Unsupported("kernels have 1 to 3 spatial axes");
    Sides sides{missing, missing, missing};
    std::copy(list.begin(), list.end(), sides.end() - list.size());
    return sides;
}

/// The spatial axes of a shape (n, c, *size).
inline List spatial(const d5test::Shape& shape) {
    return List(shape.begin() + std::min<std::size_t>(2, shape.size()), shape.end());
}

/// What is said of windows by attributes; an empty list is ONNX's default.
struct Steps {
    explicit Steps(const d5test::Attributes& given)
        : strides(given.integers("strides")), dilations(given.integers("dilations")),
          pads(given.integers("pads")), auto_pad(given.text("auto_pad")) {}

    bool same() const { return auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER"; }
    Sides stride() const { return strides.empty() ? Sides{1, 1, 1} : three(strides); }
    Sides dilation() const { return dilations.empty() ? Sides{1, 1, 1} : three(dilations); }
    /// The padding before, and behind.
    std::pair<Sides, Sides> padding() const {
        if (pads.empty() || auto_pad != "NOTSET") return {Sides{}, Sides{}};
        const auto half = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
        return {three(List(pads.begin(), half), 0), three(List(half, pads.end()), 0)};
    }
    /// The part of a whole padding that lies before: of an odd one the smaller half if upper.
    std::int64_t before(std::int64_t whole) const {
        return auto_pad == "SAME_UPPER" ? whole / 2 : whole - whole / 2;
    }

    List strides, dilations, pads;
    std::string auto_pad;
};

/// `out` windows of `kernel` elements, `stride` apart, on axes of `size`, padded by `begin`, `end`.
struct Windows {
    /// Those of a convolution or a pooling on an input.
    static Windows on_input(const List& sizes, const List& taps, const Steps& given,
                            bool ceil = false) {
        if (sizes.size() != taps.size())
            throw std::invalid_argument("the kernel has other axes than the input");
        Windows w{three(sizes), three(taps), given.stride(), given.dilation(), {}, {}, {}};
        std::tie(w.begin, w.end) = given.padding();
        for (int i = 0; i < 3; ++i) {
            const std::int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1;
            if (given.same()) {
                w.out[i] = (w.size[i] + w.stride[i] - 1) / w.stride[i];
                const std::int64_t reach = (w.out[i] - 1) * w.stride[i] + extent;
                const std::int64_t whole = std::max<std::int64_t>(0, reach - w.size[i]);
                w.begin[i] = given.before(whole), w.end[i] = whole - w.begin[i];
                continue;
            }
            const std::int64_t padded = w.begin[i] + w.size[i] + w.end[i], room = padded - extent;
            const bool up = ceil && given.auto_pad == "NOTSET";
            w.out[i] = room < 0 && !up ? 0 : (room + (up ? w.stride[i] - 1 : 0)) / w.stride[i] + 1;
            if (up && (w.out[i] - 1) * w.stride[i] >= w.begin[i] + w.size[i]) --w.out[i];
            w.out[i] = std::max<std::int64_t>(0, w.out[i]);
        }
        return w;
    }

    /// Those on the output of a transposed convolution, one for each element of its input.
    static Windows to_output(const List& sizes, const List& taps, const Steps& given,
                             const List& output_padding, const List& output_shape) {
        if (sizes.size() != taps.size())
            throw std::invalid_argument("the kernel has other axes than the input");
        Windows w{{}, three(taps), given.stride(), given.dilation(), {}, {}, three(sizes)};
        std::tie(w.begin, w.end) = given.padding();
        const Sides more = output_padding.empty() ? Sides{} : three(output_padding, 0);
        Sides wanted{w.out[0] * w.stride[0], w.out[1] * w.stride[1], w.out[2] * w.stride[2]};
        if (!output_shape.empty())  // of its spatial axes, or of all
            wanted = three(List(output_shape.end() - static_cast<std::ptrdiff_t>(sizes.size()),
                                output_shape.end()));
        for (int i = 0; i < 3; ++i) {
            const std::int64_t full = (w.out[i] - 1) * w.stride[i] + more[i] +
                                      (w.kernel[i] - 1) * w.dilation[i] + 1;
            w.size[i] = full - w.begin[i] - w.end[i];
            if (!output_shape.empty() || given.same()) {
                w.begin[i] = given.before(std::max<std::int64_t>(0, full - wanted[i]));
                w.size[i] = wanted[i];
            }
            if (w.size[i] < 0) throw std::invalid_argument("the padding is larger than the output");
        }
        return w;
    }

    /// The shape (n, channels, *out), with as many spatial axes as there are.
    d5test::Shape shape(std::int64_t n, std::int64_t channels, std::size_t axes) const {
        d5test::Shape found{n, channels};
        found.insert(found.end(), out.end() - axes, out.end());
        return found;
    }
    /// Where the element of tap k under window o is along an axis; perhaps in the padding.
    std::int64_t at(int axis, std::int64_t o, std::int64_t k) const {
        return o * stride[axis] + k * dilation[axis] - begin[axis];
    }
    /// Of the windows along an axis, those whose tap k is an element: the first, and one behind.
    std::pair<std::int64_t, std::int64_t> inside(int axis, std::int64_t k) const {
        const std::int64_t first = at(axis, 0, k), step = stride[axis];
        const std::int64_t low = first < 0 ? (-first + step - 1) / step : 0;
        const std::int64_t left = size[axis] - first;
        const std::int64_t high = left <= 0 ? 0 : (left + step - 1) / step;
        return {std::min(low, out[axis]), std::clamp(high, std::min(low, out[axis]), out[axis])};
    }
    /// Whether each window is one element, and they are all elements in order.
    bool pointwise() const { return kernel == Sides{1, 1, 1} && out == size && begin == Sides{}; }

    Sides size, kernel, stride, dilation, begin, end, out;
};

}  // namespace kernels
