// The cube as JAX' tutorial on foreign functions has one: a handler for each direction.
#include "loops.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using Given = ffi::Buffer<ffi::F32>;
using Found = ffi::ResultBuffer<ffi::F32>;

ffi::Error forward(float factor, Given x, Found y) {
    cube(x.typed_data(), y->typed_data(), static_cast<std::int64_t>(x.element_count()), factor);
    return ffi::Error::Success();
}

ffi::Error backward(float factor, Given dy, Given x, Found dx) {
    cube_backward(dy.typed_data(), x.typed_data(), dx->typed_data(),
                  static_cast<std::int64_t>(x.element_count()), factor);
    return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(budget_cube, forward,
                              ffi::Ffi::Bind().Attr<float>("factor").Arg<Given>().Ret<Given>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    budget_cube_backward, backward,
    ffi::Ffi::Bind().Attr<float>("factor").Arg<Given>().Arg<Given>().Ret<Given>());
