// Windows (`kernels/windows.h`) as oneDNN is told of them.
#pragma once

#include "../kernels/windows.h"
#include "primitives.h"

namespace onednn {

/// The last `axes` of three sides, each less `less`: oneDNN counts dilations from zero.
inline Dims last(const kernels::Sides& sides, std::size_t axes, std::int64_t less = 0) {
    Dims found(sides.end() - static_cast<std::ptrdiff_t>(axes), sides.end());
    for (auto& side : found) side -= less;
    return found;
}

/// The end's padding with which the windows just fit; negative where elements are left over.
inline kernels::Sides fitted(const kernels::Windows& w) {
    kernels::Sides end{};
    for (int i = 0; i < 3; ++i)
        end[i] = (w.out[i] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1 - w.size[i] -
                 w.begin[i];
    return end;
}

}  // namespace onednn
