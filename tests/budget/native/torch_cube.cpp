// The cube as PyTorch's tutorial on custom C++ operators has one: kernels of the dispatcher, and a
// derivative by torch::autograd::Function.
#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "loops.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor forward_on_cpu(const at::Tensor& given, double factor) {
    const at::Tensor x = given.contiguous();
    at::Tensor y = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cube", [&] {
        cube<scalar_t>(x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), x.numel(),
                       factor);
    });
    return y;
}

at::Tensor backward_on_cpu(const at::Tensor& grad, const at::Tensor& given, double factor) {
    const at::Tensor dy = grad.contiguous(), x = given.contiguous();
    at::Tensor dx = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cube_backward", [&] {
        cube_backward<scalar_t>(dy.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                                dx.mutable_data_ptr<scalar_t>(), x.numel(), factor);
    });
    return dx;
}

struct Cube : torch::autograd::Function<Cube> {
    static at::Tensor forward(AutogradContext* tape, const at::Tensor& x, double factor) {
        static const auto op = c10::Dispatcher::singleton()
            .findSchemaOrThrow("budget::cube", "").typed<at::Tensor(const at::Tensor&, double)>();
        const at::AutoDispatchBelowADInplaceOrView below;
        tape->save_for_backward({x});
        tape->saved_data["factor"] = factor;
        return op.call(x, factor);
    }
    static variable_list backward(AutogradContext* tape, const variable_list& grads) {
        static const auto op = c10::Dispatcher::singleton()
            .findSchemaOrThrow("budget::cube_backward", "")
            .typed<at::Tensor(const at::Tensor&, const at::Tensor&, double)>();
        const auto x = tape->get_saved_variables()[0];
        return {op.call(grads[0], x, tape->saved_data["factor"].toDouble()), at::Tensor()};
    }
};

at::Tensor on_tape(const at::Tensor& x, double factor) { return Cube::apply(x, factor); }

}  // namespace

TORCH_LIBRARY(budget, m) {
    m.def("cube(Tensor x, *, float factor=2.0) -> Tensor");
    m.def("cube_backward(Tensor dy, Tensor x, float factor) -> Tensor");
}
TORCH_LIBRARY_IMPL(budget, CPU, m) {
    m.impl("cube", forward_on_cpu);
    m.impl("cube_backward", backward_on_cpu);
}
TORCH_LIBRARY_IMPL(budget, Autograd, m) { m.impl("cube", on_tape); }
