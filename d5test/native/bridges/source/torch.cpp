// Native operators as PyTorch's own: kernels and derivatives in the dispatcher, zero copy.
//
// Compiled once for each PyTorch. Python defines the schemas and the fake kernels; the schema of an
// operator lists its inputs, then its attributes in the order of their registration. Kernels are
// boxed, so that this one file serves every operator.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#ifdef D5TEST_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include <array>
#include <deque>
#include <mutex>

#include "d5test/interface.h"

namespace {

using c10::IValue;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

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
    explicit Views(const std::vector<at::Tensor>& tensors) {
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
    std::vector<D5Tensor> views_;
};

/// The tensors, in the layout that the operator can read, after a look at their dtype and device.
std::vector<at::Tensor> readable(const Operator& op, std::vector<at::Tensor> tensors) {
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
    return tensors;
}

void* stream_of(const at::Tensor& x) {
#ifdef D5TEST_CUDA
    if (x.is_cuda()) return c10::cuda::getCurrentCUDAStream(x.get_device()).stream();
#endif
    TORCH_CHECK_NOT_IMPLEMENTED(!x.is_cuda(), "the bridge found no CUDA toolkit: set CUDA_HOME");
    return nullptr;
}

std::vector<at::Tensor> tensors_of(const Stack& stack, std::size_t from, std::size_t count) {
    std::vector<at::Tensor> found;
    for (std::size_t k = 0; k < count; ++k) found.push_back(stack[from + k].toTensor());
    return found;
}

std::int32_t bits_of(const at::Tensor& x) { return static_cast<std::int32_t>(8 * x.element_size()); }

/// inputs..., attributes... -> outputs...
struct Forward : c10::OperatorKernel {
    explicit Forward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t n = op->inputs(), given = n + op->attributes();
        const std::size_t base = stack->size() - given;
        const auto inputs = readable(*op, tensors_of(*stack, base, n));
        void* made = op->made(Values(*stack).slice(base + n), bits_of(inputs[0]));
        const Views in(inputs);
        const auto outputs = allocated(made, in, inputs[0].options());
        Said said;
        said.check(op->table.forward(made, in.data(), Views(outputs).data(),
                                     stream_of(inputs[0]), said.message()));
        torch::jit::drop(*stack, given);
        for (const auto& y : outputs) stack->emplace_back(y);
    }

    std::vector<at::Tensor> allocated(void* made, const Views& in, at::TensorOptions options) {
        std::array<std::array<std::int64_t, D5_MOST_DIMENSIONS>, D5_MOST_TENSORS> shapes;
        std::vector<D5Tensor> unknown(op->outputs());
        for (std::size_t k = 0; k < unknown.size(); ++k) unknown[k].shape = shapes[k].data();
        Said said;
        said.check(op->table.infer(made, in.data(), unknown.data(), said.message()));
        std::vector<at::Tensor> outputs;
        for (const auto& one : unknown)
            outputs.push_back(at::empty(at::IntArrayRef(one.shape, one.ndim), options));
        return outputs;
    }

    std::shared_ptr<Operator> op;
};

/// grads, inputs, outputs (lists), attributes... -> gradients of the inputs (a list)
struct Backward : c10::OperatorKernel {
    explicit Backward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t given = 3 + op->attributes(), base = stack->size() - given;
        const auto list = [&](std::size_t k) {
            return readable(*op, (*stack)[base + k].toTensorVector());
        };
        const auto grads = list(0), inputs = list(1), outputs = list(2);
        void* made = op->made(Values(*stack).slice(base + 3), bits_of(inputs[0]));
        c10::List<at::Tensor> found;
        std::vector<at::Tensor> written;
        for (const auto& x : inputs) written.push_back(at::empty(x.sizes(), x.options()));
        Said said;
        said.check(op->table.backward(made, Views(grads).data(), Views(inputs).data(),
                                      Views(outputs).data(), Views(written).data(),
                                      stream_of(inputs[0]), said.message()));
        for (const auto& dx : written) found.push_back(dx);
        torch::jit::drop(*stack, given);
        stack->emplace_back(std::move(found));
    }

    std::shared_ptr<Operator> op;
};

bool wants_gradient(const std::vector<at::Tensor>& tensors) {
    return at::GradMode::is_enabled() &&
           std::any_of(tensors.begin(), tensors.end(),
                       [](const at::Tensor& x) { return x.defined() && x.requires_grad(); });
}

/// Run what is below the tape on a stack: a kernel, or what stands in for one (a fake, a tracer).
void run_below(const c10::OperatorHandle& handle, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView below;
    handle.callBoxed(stack);
}

/// What a call on the tape is made with, besides its inputs. The handles are those of kernels, which
/// live as long as the process.
struct Call {
    const c10::OperatorHandle &forward, &backward;
    std::size_t outputs;
    Values attributes;
};

/// A call on the tape.
struct Recorded : torch::autograd::Function<Recorded> {
    static variable_list forward(AutogradContext* tape, at::TensorList inputs,
                                 const Call& call) {
        Stack stack(inputs.begin(), inputs.end());
        stack.insert(stack.end(), call.attributes.begin(), call.attributes.end());
        run_below(call.forward, stack);
        const auto outputs = tensors_of(stack, 0, call.outputs);
        variable_list saved = inputs.vec();
        saved.insert(saved.end(), outputs.begin(), outputs.end());
        tape->save_for_backward(std::move(saved));
        tape->saved_data["backward"] = reinterpret_cast<std::int64_t>(&call.backward);
        if (!call.attributes.empty())
            tape->saved_data["attributes"] = c10::ivalue::Tuple::create(call.attributes.vec());
        return outputs;
    }
    static variable_list backward(AutogradContext* tape, variable_list grads) {
        const auto saved = tape->get_saved_variables();
        const auto first = saved.end() - static_cast<std::ptrdiff_t>(grads.size());
        const variable_list inputs(saved.begin(), first), outputs(first, saved.end());
        for (std::size_t k = 0; k < grads.size(); ++k)
            if (!grads[k].defined()) grads[k] = at::zeros_like(outputs[k]);
        Stack stack{IValue(grads), IValue(inputs), IValue(outputs)};
        if (const auto found = tape->saved_data.find("attributes"); found != tape->saved_data.end())
            for (const auto& value : found->second.toTupleRef().elements()) stack.push_back(value);
        const auto address = tape->saved_data["backward"].toInt();
        const auto& backward = *reinterpret_cast<const c10::OperatorHandle*>(address);
        at::GradMode::is_enabled() ? backward.callBoxed(stack) : run_below(backward, stack);
        auto found = stack.back().toTensorVector();
        found.emplace_back();  // for the argument that is no tensor
        return found;
    }
};

/// A derivative has no derivative: who asks for one is told, and gets no zeros.
struct Once : torch::autograd::Function<Once> {
    static variable_list forward(AutogradContext* tape, at::TensorList given,
                                 const c10::OperatorHandle& handle, Stack& stack) {
        (void)given;
        tape->saved_data["name"] = handle.operator_name().name;
        run_below(handle, stack);
        return stack.back().toTensorVector();
    }
    static variable_list backward(AutogradContext* tape, const variable_list& grads) {
        (void)grads;
        TORCH_CHECK(false, "derivative for ", tape->saved_data["name"].toStringRef(),
                    " is not implemented");
    }
};

struct Taped : c10::OperatorKernel {
    Taped(std::shared_ptr<Operator> op, c10::OperatorHandle backward)
        : op(std::move(op)), backward(backward) {}

    void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
        const std::size_t n = op->inputs(), given = n + op->attributes();
        const std::size_t base = stack->size() - given;
        const auto inputs = tensors_of(*stack, base, n);
        if (!wants_gradient(inputs)) return run_below(handle, *stack);
        const auto attributes = Values(*stack).slice(base + n);
        const Call call{handle, backward, op->outputs(), attributes};
        const auto outputs = Recorded::apply(at::TensorList(inputs), call);
        torch::jit::drop(*stack, given);
        for (const auto& y : outputs) stack->emplace_back(y);
    }

    std::shared_ptr<Operator> op;
    c10::OperatorHandle backward;
};

struct TapedBackward : c10::OperatorKernel {
    explicit TapedBackward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
        variable_list given;
        const std::size_t base = stack->size() - 3 - op->attributes();
        for (std::size_t k = 0; k < 3; ++k)
            for (const auto& x : (*stack)[base + k].toTensorVector()) given.push_back(x);
        if (!wants_gradient(given)) return run_below(handle, *stack);
        const auto found = Once::apply(at::TensorList(given), handle, *stack);
        stack->back() = IValue(found);
    }

    std::shared_ptr<Operator> op;
};

std::deque<torch::Library>& libraries() {
    static auto* kept = new std::deque<torch::Library>;  // to the end of the process
    return *kept;
}

}  // namespace

/// Give kernels to the operators NAME and NAME_backward that a namespace defines.
extern "C" void d5test_torch_register(const D5Operator* table, const char* space,
                                      std::int32_t guarded) {
    const auto op = std::make_shared<Operator>(table, guarded != 0);
    const std::string name = table->name, backward = name + "_backward";
    const auto device = table->device == D5_CUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
    auto& kernels =
        libraries().emplace_back(torch::Library::IMPL, space, device, __FILE__, __LINE__);
    kernels.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Forward>(op)));
    if (!op->differentiable()) return;
    kernels.impl(backward.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Backward>(op)));
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        (std::string(space) + "::" + backward).c_str(), "");
    auto& tape = libraries().emplace_back(torch::Library::IMPL, space, c10::DispatchKey::Autograd,
                                          __FILE__, __LINE__);
    tape.impl(name.c_str(),
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Taped>(op, handle)));
    tape.impl(backward.c_str(),
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<TapedBackward>(op)));
}
