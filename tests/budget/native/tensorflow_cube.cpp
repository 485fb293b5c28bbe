// The cube as TensorFlow's guide on custom operators has one: a kernel for each direction.
#include "loops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
class Cube : public OpKernel {
public:
    explicit Cube(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, context->GetAttr("factor", &factor_));
    }
    void Compute(OpKernelContext* context) override {
        const Tensor& x = context->input(0);
        Tensor* y = nullptr;
        OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
        cube<T>(x.flat<T>().data(), y->flat<T>().data(), x.NumElements(), factor_);
    }

private:
    float factor_;
};

template <typename T>
class CubeBackward : public OpKernel {
public:
    explicit CubeBackward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, context->GetAttr("factor", &factor_));
    }
    void Compute(OpKernelContext* context) override {
        const Tensor &dy = context->input(0), &x = context->input(1);
        Tensor* dx = nullptr;
        OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &dx));
        cube_backward<T>(dy.flat<T>().data(), x.flat<T>().data(), dx->flat<T>().data(),
                         x.NumElements(), factor_);
    }

private:
    float factor_;
};

REGISTER_OP("BudgetCube")
    .Input("x: T").Output("y: T").Attr("T: {float, double}").Attr("factor: float")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);
REGISTER_OP("BudgetCubeBackward")
    .Input("dy: T").Input("x: T").Output("dx: T").Attr("T: {float, double}").Attr("factor: float")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

#define CUBE_KERNELS(T) \
    REGISTER_KERNEL_BUILDER( \
        Name("BudgetCube").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), Cube<T>); \
    REGISTER_KERNEL_BUILDER( \
        Name("BudgetCubeBackward").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
        CubeBackward<T>)
CUBE_KERNELS(float);
CUBE_KERNELS(double);

}  // namespace
