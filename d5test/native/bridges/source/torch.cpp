// Native operators as PyTorch's own: their derivatives on the tape, and their registration.
//
// Compiled once for each PyTorch. Python defines the schemas and the fake kernels.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "torch_kernels.h"

namespace {

using namespace bridge;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
