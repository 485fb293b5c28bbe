// Tensors of PyTorch's as the interface has them, zero copy, and as they lie on the dispatcher's stack.
// A tensor that is absent is undefined here, and None there.
#pragma once

#include <torch/library.h>

#include "d5test/interface.h"

namespace bridge {

using c10::IValue;
using torch::jit::Stack;
using Tensors = c10::SmallVector<at::Tensor, 4>;  // on the stack: most operators have no more

/// Tensors as the interface has them. They must outlive it.
class Views {
public:
    /// `count`, of which those that are not given are absent.
    Views(at::TensorList tensors, std::size_t count) {
        for (const auto& x : tensors) views_.push_back(view(x));
        while (views_.size() < count) views_.push_back(view({}));
    }
    const D5Tensor* data() const { return views_.data(); }

private:
    static D5Tensor view(const at::Tensor& x) {
        D5Tensor one{};
        one.ndim = -1;
        if (!x.defined()) return one;
        one.data = x.data_ptr();
        one.device = {x.is_cuda() ? D5_CUDA : D5_CPU, x.is_cuda() ? x.get_device() : 0};
        one.ndim = static_cast<std::int32_t>(x.dim());
        one.dtype = {code(x), static_cast<std::uint8_t>(8 * x.element_size()), 1};
        one.shape = const_cast<std::int64_t*>(x.sizes().data());
        one.strides = const_cast<std::int64_t*>(x.strides().data());
        return one;
    }
    static std::uint8_t code(const at::Tensor& x) {
        const auto type = x.scalar_type();
        return type == at::kLong ? D5_INT : type == at::kBool ? D5_BOOL : D5_FLOAT;
    }

    c10::SmallVector<D5Tensor, 4> views_;
};

/// Whether an input has a gradient: not what is absent, constant, integers or booleans.
inline bool differentiable(const D5Port& port, const at::Tensor& x) {
    return x.defined() && x.is_floating_point() && !(port.flags & D5_PORT_CONSTANT);
}

/// The tensors in the layout and, integers, in the type that an operator can read, after a look at
/// their dtypes and devices; the others are of `first`'s.
inline void readable(const D5Operator& op, Tensors& tensors, const D5Port* ports,
                     const at::Tensor& first) {
    const auto dtype = first.scalar_type();
    const auto device = first.device();
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        auto& x = tensors[k];
        if (!x.defined()) continue;
        const auto type = x.scalar_type();
        if (ports[k].flags & D5_PORT_INTEGERS) {
            TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(type, /*includeBool=*/false), op.name,
                                        ": ", ports[k].name, " is of integers, not ", type);
            if (type != at::kLong) x = x.to(at::kLong);
        } else {
            const bool mask = ports[k].flags & D5_PORT_MASK && type == at::kBool;
            TORCH_CHECK_NOT_IMPLEMENTED(type == dtype || mask, op.name, " has inputs of one dtype: ",
                                        ports[k].name, " is of ", dtype, ", not ", type);
        }
        TORCH_CHECK_NOT_IMPLEMENTED(x.device() == device, op.name, " has inputs on one device");
        if (op.flags & D5_CONTIGUOUS) x = x.contiguous();
    }
}

inline Tensors tensors_of(const Stack& stack, std::size_t from, std::size_t count) {
    Tensors found;
    for (std::size_t k = from; k < from + count; ++k)
        found.push_back(stack[k].isTensor() ? stack[k].toTensor() : at::Tensor());
    return found;
}

/// Of a list on a stack, whose tensors may be optional.
inline Tensors tensors_of(const IValue& list) {
    Tensors found;
    if (list.isTensorList()) {
        for (auto& x : list.toTensorVector()) found.push_back(std::move(x));
    } else {
        for (const auto& x : list.toOptionalTensorVector()) found.push_back(x.value_or(at::Tensor()));
    }
    return found;
}

/// Those that are defined.
inline std::vector<at::Tensor> present(const Tensors& tensors) {
    std::vector<at::Tensor> found;
    for (const auto& x : tensors)
        if (x.defined()) found.push_back(x);
    return found;
}

/// A list for a stack: `Tensor[]`, or `Tensor?[]` where some are absent.
inline IValue list_of(const Tensors& tensors, bool optional) {
    if (!optional) return std::vector<at::Tensor>(tensors.begin(), tensors.end());
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& x : tensors)
        list.push_back(x.defined() ? std::optional<at::Tensor>(x) : std::nullopt);
    return list;
}

}  // namespace bridge
