// The kernels of native operators in PyTorch's dispatcher, zero copy. They are boxed, so that one of
// each serves every operator: the schema lists the inputs, then the attributes in the order of
// their registration.
#pragma once

#include <ATen/ops/empty.h>

#ifdef D5TEST_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "torch_tensors.h"

namespace bridge {

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
    Operator(const D5Operator* table, bool guarded)
        : table(*table), guarded(guarded),
          plain(!any(table->inputs, table->input_count, ~D5_PORT_UNREAD) &&
                !any(table->outputs, table->output_count, ~D5_PORT_UNREAD)),
          listed(any(table->outputs, table->output_count, D5_PORT_OPTIONAL)) {}

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
    /// Whether `backward` is handed an output.
    bool reads_output(std::size_t k) const { return !(table.outputs[k].flags & D5_PORT_UNREAD); }
    /// The outputs by position, of a list of those that `backward` is handed.
    Tensors by_position(const Tensors& handed) const {
        Tensors found;
        auto next = handed.begin();
        for (std::size_t k = 0; k < outputs(); ++k)
            found.push_back(reads_output(k) && next != handed.end() ? *next++ : at::Tensor());
        return found;
    }

    /// The tensor whose dtype and device are the operator's: the first of floating-point numbers.
    const at::Tensor& first(const Tensors& inputs) const {
        for (const auto& x : inputs) {
            if (!x.defined()) continue;
            const auto type = x.scalar_type();
            if (type == at::kFloat || type == at::kDouble) {
                const bool cuda = table.device == D5_CUDA;
                TORCH_CHECK_NOT_IMPLEMENTED(x.is_cuda() == cuda, table.name, " is compiled for ",
                                            cuda ? "CUDA" : "the CPU");
                return x;
            }
            TORCH_CHECK_NOT_IMPLEMENTED(!at::isFloatingType(type), table.name,
                                        " is compiled for float32 and float64, not ", type);
        }
        TORCH_CHECK_NOT_IMPLEMENTED(
            false, table.name, " has no input of floating-point numbers, whose dtype it has");
    }

    const D5Operator& table;
    const bool guarded;
    /// Whether nothing of it is optional, integers, a mask or constant.
    const bool plain;
    /// Whether its outputs are a list of those that are there: some may be absent.
    const bool listed;

private:
    static bool any(const D5Port* ports, std::int32_t count, std::int32_t flags) {
        return std::any_of(ports, ports + count,
                           [&](const D5Port& port) { return port.flags & flags; });
    }
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

inline void* stream_of(const at::Tensor& x) {
#ifdef D5TEST_CUDA
    if (x.is_cuda()) return c10::cuda::getCurrentCUDAStream(x.get_device()).stream();
#endif
    TORCH_CHECK_NOT_IMPLEMENTED(!x.is_cuda(), "the bridge found no CUDA toolkit: set CUDA_HOME");
    return nullptr;
}

inline std::int32_t bits_of(const at::Tensor& x) {
    return static_cast<std::int32_t>(8 * x.element_size());
}

/// The outputs that are there, of shapes that the operator says.
inline Tensors allocated(const Operator& op, void* made, const Views& in,
                         const at::TensorOptions& options) {
    std::array<std::array<std::int64_t, D5_MOST_DIMENSIONS>, D5_MOST_TENSORS> shapes;
    c10::SmallVector<D5Tensor, 4> unknown(op.outputs());
    for (std::size_t k = 0; k < unknown.size(); ++k) unknown[k].shape = shapes[k].data();
    Said said;
    said.check(op.table.infer(made, in.data(), unknown.data(), said.message()));
    Tensors outputs;
    for (std::size_t k = 0; k < unknown.size() && unknown[k].ndim >= 0; ++k) {
        const bool whole = op.table.outputs[k].flags & D5_PORT_INTEGERS;
        outputs.push_back(at::empty(at::IntArrayRef(unknown[k].shape, unknown[k].ndim),
                                    whole ? options.dtype(at::kLong) : options));
    }
    return outputs;
}

/// inputs -> outputs that are there
inline Tensors forward(Operator& op, Tensors inputs, Values attributes) {
    const at::Tensor& first = op.first(inputs);
    readable(op.table, inputs, op.table.inputs, first);
    void* made = op.made(attributes, bits_of(first));
    const Views in(inputs, op.inputs());
    Tensors outputs = allocated(op, made, in, first.options());
    Said said;
    said.check(op.table.forward(made, in.data(), Views(outputs, op.outputs()).data(),
                                stream_of(first), said.message()));
    return outputs;
}

/// grads, inputs, outputs, undefined where there is none -> gradients of the inputs, likewise
inline Tensors backward(Operator& op, Tensors grads, Tensors inputs, Tensors outputs,
                        Values attributes) {
    const std::size_t n = op.inputs(), m = op.outputs();
    const at::Tensor& first = op.first(inputs);
    readable(op.table, grads, op.table.outputs, first);
    readable(op.table, inputs, op.table.inputs, first);
    readable(op.table, outputs, op.table.outputs, first);
    void* made = op.made(attributes, bits_of(first));
    Tensors found;
    for (std::size_t k = 0; k < n; ++k) {
        const auto& x = inputs[k];
        const bool wanted = differentiable(op.table.inputs[k], x);
        found.push_back(wanted ? at::empty(x.sizes(), x.options()) : at::Tensor());
    }
    Said said;
    said.check(op.table.backward(made, Views(grads, m).data(), Views(inputs, n).data(),
                                 Views(outputs, m).data(), Views(found, n).data(),
                                 stream_of(first), said.message()));
    return found;
}

/// Put outputs on a stack as the schema has them: one by one, or those that are there in a list.
template <typename Outputs>
void put(const Operator& op, Stack& stack, Outputs&& outputs) {
    if (op.listed) {
        stack.emplace_back(std::vector<at::Tensor>(outputs.begin(), outputs.end()));
    } else {
        for (auto& y : outputs) stack.emplace_back(std::move(y));
    }
}

/// inputs..., attributes... -> outputs...
struct Forward : c10::OperatorKernel {
    explicit Forward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t n = op->inputs(), given = n + op->attributes();
        const std::size_t base = stack->size() - given;
        auto found = forward(*op, tensors_of(*stack, base, n), Values(*stack).slice(base + n));
        torch::jit::drop(*stack, given);
        put(*op, *stack, found);
    }

    std::shared_ptr<Operator> op;
};

/// grads, inputs, outputs (lists), attributes... -> gradients of the inputs that have one (a list)
struct Backward : c10::OperatorKernel {
    explicit Backward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t given = 3 + op->attributes(), base = stack->size() - given;
        const auto list = [&](std::size_t k) { return tensors_of((*stack)[base + k]); };
        const auto found = backward(*op, list(0), list(1), op->by_position(list(2)),
                                    Values(*stack).slice(base + 3));
        torch::jit::drop(*stack, given);
        stack->emplace_back(present(found));
    }

    std::shared_ptr<Operator> op;
};

}  // namespace bridge
