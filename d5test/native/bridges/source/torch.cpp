// Native operators as PyTorch's own: their derivatives on the tape, and their registration.
//
// Compiled once for each PyTorch. Python defines the schemas and the fake kernels.
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "torch_kernels.h"

namespace {

using namespace bridge;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool wants_gradient(at::TensorList tensors) {
    return at::GradMode::is_enabled() &&
           std::any_of(tensors.begin(), tensors.end(),
                       [](const at::Tensor& x) { return x.defined() && x.requires_grad(); });
}

/// Run what is below the tape on a stack: a kernel, or what stands in for one (a fake, a tracer).
void run_below(const c10::OperatorHandle& handle, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView below;
    handle.callBoxed(stack);
}

/// Whether below the tape there is nothing between a call on these tensors and its kernel: no fake
/// tensor, no tracer, no mode and no profiler. Then the kernel may be called without the dispatcher,
/// which for a derivative, whose arguments are lists, takes as long as all the rest.
bool bare(const Operator& op, std::initializer_list<at::TensorList> lists) {
    c10::DispatchKeySet keys;
    for (const auto& tensors : lists)
        for (const auto& x : tensors) keys = keys | x.key_set();
    const auto local = c10::impl::tls_local_dispatch_key_set();
    keys = (keys | local.included_) - local.excluded_;
    keys = keys.remove(c10::DispatchKey::BackendSelect);  // for calls without a tensor: always there
    const auto kernel =
        op.table.device == D5_CUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
    return keys.highestPriorityTypeId() == kernel && !at::hasCallbacks();
}

/// An operator that has a derivative: what is recorded of a call on the tape points to it. It lives
/// as long as the process.
struct Differentiable {
    std::shared_ptr<Operator> op;
    c10::OperatorHandle forward, backward;
};

Tensors forward_below(const Differentiable& one, const Tensors& inputs, Values attributes) {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (bare(*one.op, {inputs})) return forward(*one.op, inputs, attributes);
    Stack stack;
    for (const auto& x : inputs) stack.push_back(x.defined() ? IValue(x) : IValue());
    stack.insert(stack.end(), attributes.begin(), attributes.end());
    one.forward.callBoxed(stack);
    return one.op->listed ? tensors_of(stack[0]) : tensors_of(stack, 0, one.op->outputs());
}

/// The gradients of the inputs, undefined where there is none.
Tensors backward_below(const Differentiable& one, const Tensors& grads, const Tensors& inputs,
                       const Tensors& outputs, Values attributes) {
    std::optional<at::AutoDispatchBelowADInplaceOrView> below;
    if (!at::GradMode::is_enabled()) below.emplace();
    if (below && bare(*one.op, {grads, inputs, outputs}))
        return backward(*one.op, grads, inputs, outputs, attributes);
    const bool optional = !one.op->plain;
    Stack stack{list_of(grads, optional), list_of(inputs, optional), IValue(present(outputs))};
    stack.insert(stack.end(), attributes.begin(), attributes.end());
    one.backward.callBoxed(stack);
    auto found = stack.back().toTensorVector();
    auto next = found.begin();
    Tensors slopes;
    for (std::size_t k = 0; k < inputs.size(); ++k)
        slopes.push_back(differentiable(one.op->table.inputs[k], inputs[k]) ? std::move(*next++)
                                                                            : at::Tensor());
    return slopes;
}

/// A call on the tape. Those of the inputs that are present are given once more: they are the tape's.
struct Recorded : torch::autograd::Function<Recorded> {
    static variable_list forward(AutogradContext* tape, at::TensorList present,
                                 const Tensors& inputs, const Differentiable& one,
                                 Values attributes) {
        (void)present;
        const auto outputs = forward_below(one, inputs, attributes);
        variable_list saved;
        saved.reserve(inputs.size() + outputs.size());
        saved.insert(saved.end(), inputs.begin(), inputs.end());
        for (std::size_t k = 0; k < outputs.size(); ++k)
            saved.push_back(one.op->reads_output(k) ? outputs[k] : at::Tensor());
        tape->save_for_backward(std::move(saved));
        std::vector<IValue> call{reinterpret_cast<std::int64_t>(&one)};
        call.insert(call.end(), attributes.begin(), attributes.end());
        tape->saved_data["call"] = c10::ivalue::Tuple::create(std::move(call));
        return {outputs.begin(), outputs.end()};
    }
    static variable_list backward(AutogradContext* tape, const variable_list& given) {
        const auto saved = tape->get_saved_variables();
        const auto first = saved.end() - static_cast<std::ptrdiff_t>(given.size());
        const Tensors inputs(saved.begin(), first), outputs(first, saved.end());
        Tensors grads(given.begin(), given.end());
        const Values call = tape->saved_data["call"].toTupleRef().elements();
        const auto& one = *reinterpret_cast<const Differentiable*>(call[0].toInt());
        for (std::size_t k = 0; k < grads.size(); ++k)  // all are defined: zeros if need be
            if (one.op->table.outputs[k].flags & D5_PORT_INTEGERS) grads[k].reset();
        auto found = backward_below(one, grads, inputs, outputs, call.slice(1));
        variable_list slopes;
        slopes.reserve(found.size() + 3);
        for (std::size_t k = 0; k < found.size(); ++k)
            if (inputs[k].defined()) slopes.push_back(std::move(found[k]));
        slopes.resize(slopes.size() + 3);  // for the arguments that are not the tape's
        return slopes;
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
    explicit Taped(Differentiable one) : one(std::move(one)) {}

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const std::size_t n = one.op->inputs(), given = n + one.op->attributes();
        const std::size_t base = stack->size() - given;
        const auto inputs = tensors_of(*stack, base, n);
        const auto attributes = Values(*stack).slice(base + n);
        const auto answer = [&](auto&& outputs) {
            torch::jit::drop(*stack, given);
            put(*one.op, *stack, outputs);
        };
        if (!wants_gradient(inputs)) return answer(forward_below(one, inputs, attributes));
        if (one.op->plain)
            return answer(Recorded::apply(at::TensorList(inputs), inputs, one, attributes));
        const auto there = present(inputs);
        answer(Recorded::apply(at::TensorList(there), inputs, one, attributes));
    }

    const Differentiable one;
};

struct TapedBackward : c10::OperatorKernel {
    explicit TapedBackward(std::shared_ptr<Operator> op) : op(std::move(op)) {}

    void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
        variable_list given;
        const std::size_t base = stack->size() - 3 - op->attributes();
        for (std::size_t k = 0; k < 3; ++k)
            for (const auto& x : present(tensors_of((*stack)[base + k]))) given.push_back(x);
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
    const auto handle = [&](const std::string& of) {
        return c10::Dispatcher::singleton().findSchemaOrThrow(
            (std::string(space) + "::" + of).c_str(), "");
    };
    auto& tape = libraries().emplace_back(torch::Library::IMPL, space, c10::DispatchKey::Autograd,
                                          __FILE__, __LINE__);
    tape.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Taped>(
                                Differentiable{op, handle(name), handle(backward)})));
    tape.impl(backward.c_str(),
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<TapedBackward>(op)));
}
