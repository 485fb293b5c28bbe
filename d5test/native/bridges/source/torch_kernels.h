// The kernels of native operators in PyTorch's dispatcher, zero copy. They are boxed, so that one of
// each serves every operator: the schema lists the inputs, then the attributes in the order of
// their registration.
#pragma once

#include <ATen/ops/empty.h>
#include <torch/library.h>

#ifdef D5TEST_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include <array>
#include <deque>
#include <mutex>

#include "d5test/interface.h"

namespace bridge {

using c10::IValue;
using torch::jit::Stack;
using Tensors = c10::SmallVector<at::Tensor, 4>;  // on the stack: most operators have no more

/// Room for what an operator says, and the exception of PyTorch's that it stands for.
struct Said {
    Said() { room[0] = 0; }
    D5Message message() { return {room.data(), room.size()}; }
    void check(std::int32_t status) const {
        TORCH_CHECK_NOT_IMPLEMENTED(status != D5_UNSUPPORTED, room.data());
        TORCH_CHECK(status == D5_OK, room.data());
    }
    std::array<char, 4096> room;
};

using Values = c10::ArrayRef<IValue>;

/// Attributes on a stack, as the interface has them.
class Attributes {
public:
    Attributes(const D5Operator& table, Values given) {
        for (std::size_t k = 0; k < given.size(); ++k) add(table.attributes[k].value, given[k]);
    }
    const std::vector<D5Attribute>& list() const { return list_; }

private:
    void add(const D5Attribute& declared, const IValue& value) {
        D5Attribute one{declared.name, declared.kind, 0, nullptr, nullptr, nullptr};
        switch (declared.kind) {
            case D5_INTEGER: hold(one, std::vector<std::int64_t>{value.toInt()}); break;
            case D5_INTEGERS: hold(one, value.toIntVector()); break;
            case D5_REAL: hold(one, std::vector<double>{value.toDouble()}); break;
            case D5_REALS: hold(one, value.toDoubleVector()); break;
            default: one.text = texts_.emplace_back(value.toStringRef()).c_str();
        }
        list_.push_back(one);
    }
    void hold(D5Attribute& one, std::vector<std::int64_t> values) {
        one.count = static_cast<std::int32_t>(values.size());
        one.integers = integers_.emplace_back(std::move(values)).data();
    }
    void hold(D5Attribute& one, std::vector<double> values) {
        one.count = static_cast<std::int32_t>(values.size());
        one.reals = reals_.emplace_back(std::move(values)).data();
    }

    std::vector<D5Attribute> list_;
    std::deque<std::vector<std::int64_t>> integers_;
    std::deque<std::vector<double>> reals_;
    std::deque<std::string> texts_;
};

/// An operator, and what was made of it for each dtype and set of attributes.
struct Operator {
    Operator(const D5Operator* table, bool guarded) : table(*table), guarded(guarded) {}

    void* made(Values attributes, std::int32_t bits) {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const auto& one : known)
            if (one.bits == bits && same(one.attributes, attributes)) return one.made;
        Said said;
        void* made = nullptr;
        const Attributes given(table, attributes);
        said.check(table.create(&table, given.list().data(),
                                static_cast<std::int32_t>(given.list().size()), bits, guarded,
                                &made, said.message()));
        known.push_back({bits, attributes.vec(), made});
        return made;
    }
    std::size_t inputs() const { return table.input_count; }
    std::size_t outputs() const { return table.output_count; }
    std::size_t attributes() const { return table.attribute_count; }
    bool differentiable() const { return table.flags & D5_BACKWARD; }

    const D5Operator& table;
    const bool guarded;

private:
    struct Made {
        std::int32_t bits;
        std::vector<IValue> attributes;
        void* made;
    };
    static bool same(const std::vector<IValue>& before, Values now) {
        for (std::size_t k = 0; k < now.size(); ++k) {
            const bool whole = before[k].isInt() && now[k].isInt();
            if (whole ? before[k].toInt() != now[k].toInt() : before[k] != now[k]) return false;
        }
        return true;
    }

    std::mutex mutex;
    std::deque<Made> known;
};

/// Tensors as the interface has them. They must outlive it.
class Views {
public:
    explicit Views(at::TensorList tensors) {
        for (const auto& x : tensors) {
            D5Tensor one{};
            one.data = x.data_ptr();
            one.device = {x.is_cuda() ? D5_CUDA : D5_CPU, x.is_cuda() ? x.get_device() : 0};
            one.ndim = static_cast<std::int32_t>(x.dim());
            one.dtype = {2, static_cast<std::uint8_t>(8 * x.element_size()), 1};
            one.shape = const_cast<std::int64_t*>(x.sizes().data());
            one.strides = const_cast<std::int64_t*>(x.strides().data());
            views_.push_back(one);
        }
    }
    const D5Tensor* data() const { return views_.data(); }

private:
    c10::SmallVector<D5Tensor, 4> views_;
};

/// The tensors, in the layout that the operator can read, after a look at their dtype and device.
inline void readable(const Operator& op, Tensors& tensors) {
    const at::Tensor& first = tensors.front();
    const auto dtype = first.scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(dtype == at::kFloat || dtype == at::kDouble, op.table.name,
                                " is compiled for float32 and float64, not ", dtype);
    for (auto& x : tensors) {
        TORCH_CHECK_NOT_IMPLEMENTED(x.scalar_type() == dtype && x.device() == first.device(),
                                    op.table.name, " has inputs of one dtype and device");
        if (op.table.flags & D5_CONTIGUOUS) x = x.contiguous();
    }
    const bool cuda = op.table.device == D5_CUDA;
    TORCH_CHECK_NOT_IMPLEMENTED(first.is_cuda() == cuda, op.table.name, " is compiled for ",
                                cuda ? "CUDA" : "the CPU");
}

inline void* stream_of(const at::Tensor& x) {
#ifdef D5TEST_CUDA
    if (x.is_cuda()) return c10::cuda::getCurrentCUDAStream(x.get_device()).stream();
#endif
    TORCH_CHECK_NOT_IMPLEMENTED(!x.is_cuda(), "the bridge found no CUDA toolkit: set CUDA_HOME");
    return nullptr;
}

inline Tensors tensors_of(const Stack& stack, std::size_t from, std::size_t count) {
    Tensors found;
    for (std::size_t k = 0; k < count; ++k) found.push_back(stack[from + k].toTensor());
    return found;
}

inline std::int32_t bits_of(const at::Tensor& x) {
    return static_cast<std::int32_t>(8 * x.element_size());
}

/// The outputs, of shapes that the operator says.
inline Tensors allocated(const Operator& op, void* made, const Views& in,
                         const at::TensorOptions& options) {
    std::array<std::array<std::int64_t, D5_MOST_DIMENSIONS>, D5_MOST_TENSORS> shapes;
    c10::SmallVector<D5Tensor, 4> unknown(op.outputs());
    for (std::size_t k = 0; k < unknown.size(); ++k) unknown[k].shape = shapes[k].data();
    Said said;
    said.check(op.table.infer(made, in.data(), unknown.data(), said.message()));
    Tensors outputs;
    for (const auto& one : unknown)
        outputs.push_back(at::empty(at::IntArrayRef(one.shape, one.ndim), options));
    return outputs;
}

/// inputs -> outputs
inline Tensors forward(Operator& op, Tensors inputs, Values attributes) {
    readable(op, inputs);
    void* made = op.made(attributes, bits_of(inputs[0]));
    const Views in(inputs);
    Tensors outputs = allocated(op, made, in, inputs[0].options());
    Said said;
    said.check(op.table.forward(made, in.data(), Views(outputs).data(), stream_of(inputs[0]),
                                said.message()));
    return outputs;
}

/// grads, inputs, outputs -> gradients of the inputs
inline Tensors backward(Operator& op, Tensors grads, Tensors inputs, Tensors outputs,
                        Values attributes) {
    for (auto* list : {&grads, &inputs, &outputs}) readable(op, *list);
    void* made = op.made(attributes, bits_of(inputs[0]));
    Tensors found;
    for (const auto& x : inputs) found.push_back(at::empty(x.sizes(), x.options()));
    Said said;
    said.check(op.table.backward(made, Views(grads).data(), Views(inputs).data(),
                                 Views(outputs).data(), Views(found).data(),
                                 stream_of(inputs[0]), said.message()));
    return found;
}

/// inputs..., attributes... -> outputs...
struct Forward : c10::OperatorKernel {
    explicit Forward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t n = op->inputs(), given = n + op->attributes();
        const std::size_t base = stack->size() - given;
        auto found = forward(*op, tensors_of(*stack, base, n), Values(*stack).slice(base + n));
        torch::jit::drop(*stack, given);
        for (auto& y : found) stack->emplace_back(std::move(y));
    }

    std::shared_ptr<Operator> op;
};

/// grads, inputs, outputs (lists), attributes... -> gradients of the inputs (a list)
struct Backward : c10::OperatorKernel {
    explicit Backward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t given = 3 + op->attributes(), base = stack->size() - given;
        const auto list = [&](std::size_t k) {
            const auto tensors = (*stack)[base + k].toTensorVector();
            return Tensors(tensors.begin(), tensors.end());
        };
        c10::List<at::Tensor> found;
        for (auto& dx : backward(*op, list(0), list(1), list(2), Values(*stack).slice(base + 3)))
            found.push_back(std::move(dx));
        torch::jit::drop(*stack, given);
        stack->emplace_back(std::move(found));
    }

    std::shared_ptr<Operator> op;
};

}  // namespace bridge
