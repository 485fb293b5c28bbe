// Native operators as kernels of TensorFlow's, forward and backward.
//
// Compiled once for each TensorFlow, against its wheel's headers. Which operator is called is an
// attribute of the node, an address: its table, and the operator made for the attributes and the dtype.
// TensorFlow's tensors are row-major.
#include <vector>

#include "row_major.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using bridge::RowMajor;
using bridge::Said;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

/// What Python keeps, for ever.
struct Bound {
    const D5Operator* table;
    void* made;
};

struct Operator {
    template <typename Context>
    tensorflow::Status read(Context* context) {
        std::int64_t address = 0;
        TF_RETURN_IF_ERROR(context->GetAttr("bound", &address));
        bound = reinterpret_cast<const Bound*>(address);
        return tensorflow::OkStatus();
    }
    const D5Operator* operator->() const { return bound->table; }
    void* object() const { return bound->made; }

    const Bound* bound = nullptr;
};

template <typename Call>
tensorflow::Status told(const Call& call) {
    Said said;
    switch (call(said.message())) {
        case D5_OK: return tensorflow::OkStatus();
        case D5_UNSUPPORTED: return tensorflow::errors::Unimplemented(said.text());
        default: return tensorflow::errors::Internal(said.text());
    }
}

void add(RowMajor& views, const Tensor& tensor) {
    views.add(const_cast<char*>(tensor.tensor_data().data()),
              8 * tensorflow::DataTypeSize(tensor.dtype()), tensor.dims(),
              [&](std::int32_t axis) { return tensor.dim_size(axis); });
}

/// The outputs' shapes, where the inputs' are known.
tensorflow::Status forward_shapes(InferenceContext* context) {
    Operator op;
    TF_RETURN_IF_ERROR(op.read(context));
    RowMajor inputs(context->num_inputs(), D5_CPU), outputs(op->output_count, D5_CPU);
    for (int k = 0; k < context->num_inputs(); ++k) {
        const ShapeHandle shape = context->input(k);
        if (!context->FullyDefined(shape)) {
            for (int i = 0; i < op->output_count; ++i)
                context->set_output(i, context->UnknownShape());
            return tensorflow::OkStatus();
        }
        inputs.add(nullptr, 32, context->Rank(shape), [&](std::int32_t axis) {
            return context->Value(context->Dim(shape, axis));
        });
    }
    for (int k = 0; k < op->output_count; ++k) outputs.add_unknown();
    TF_RETURN_IF_ERROR(told([&](D5Message message) {
        return op->infer(op.object(), inputs.data(), outputs.data(), message);
    }));
    for (int k = 0; k < op->output_count; ++k) {
        std::vector<DimensionHandle> sides;
        for (int axis = 0; axis < outputs.data()[k].ndim; ++axis)
            sides.push_back(context->MakeDim(outputs.data()[k].shape[axis]));
        context->set_output(k, context->MakeShape(sides));
    }
    return tensorflow::OkStatus();
}

tensorflow::Status backward_shapes(InferenceContext* context) {
    Operator op;
    TF_RETURN_IF_ERROR(op.read(context));
    for (int k = 0; k < op->input_count; ++k)
        context->set_output(k, context->input(op->output_count + k));
    return tensorflow::OkStatus();
}

class Forward : public OpKernel {
public:
    explicit Forward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, op_.read(context));
    }
    void Compute(OpKernelContext* context) override {
        const int n = op_->input_count, m = op_->output_count;
        RowMajor inputs(n, D5_CPU), shapes(m, D5_CPU), outputs(m, D5_CPU);
        for (int k = 0; k < n; ++k) add(inputs, context->input(k));
        for (int k = 0; k < m; ++k) shapes.add_unknown();
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            return op_->infer(op_.object(), inputs.data(), shapes.data(), message);
        }));
        for (int k = 0; k < m; ++k) {
            const D5Tensor& one = shapes.data()[k];
            TensorShape shape;
            for (int axis = 0; axis < one.ndim; ++axis) shape.AddDim(one.shape[axis]);
            Tensor* output = nullptr;
            OP_REQUIRES_OK(context, context->allocate_output(k, shape, &output));
            add(outputs, *output);
        }
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            return op_->forward(op_.object(), inputs.data(), outputs.data(), nullptr, message);
        }));
    }

private:
    Operator op_;
};

class Backward : public OpKernel {
public:
    explicit Backward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, op_.read(context));
    }
    void Compute(OpKernelContext* context) override {
        const int n = op_->input_count, m = op_->output_count;
        RowMajor read(n + 2 * m, D5_CPU), written(n, D5_CPU);
        for (int k = 0; k < n + 2 * m; ++k) add(read, context->input(k));
        for (int k = 0; k < n; ++k) {
            Tensor* dx = nullptr;
            OP_REQUIRES_OK(context,
                           context->allocate_output(k, context->input(m + k).shape(), &dx));
            add(written, *dx);
        }
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            const D5Tensor* grads = read.data();
            return op_->backward(op_.object(), grads, grads + m, grads + m + n, written.data(),
                                 nullptr, message);
        }));
    }

private:
    Operator op_;
};

REGISTER_OP("D5testForward")
    .Input("inputs: N * T").Output("outputs: M * T")
    .Attr("N: int >= 1").Attr("M: int >= 1").Attr("T: {float, double}")
    .Attr("bound: int")
    .SetShapeFn(forward_shapes);

// Of one output, as nearly all are: a list of one takes longer to be made and read.
REGISTER_OP("D5testForwardOne")
    .Input("inputs: N * T").Output("output: T")
    .Attr("N: int >= 1").Attr("T: {float, double}")
    .Attr("bound: int")
    .SetShapeFn(forward_shapes);

REGISTER_OP("D5testBackward")
    .Input("grads: M * T").Input("inputs: N * T").Input("outputs: M * T")
    .Output("input_grads: N * T")
    .Attr("N: int >= 1").Attr("M: int >= 1").Attr("T: {float, double}")
    .Attr("bound: int")
    .SetShapeFn(backward_shapes);

REGISTER_KERNEL_BUILDER(Name("D5testForward").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("D5testForwardOne").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("D5testBackward").Device(tensorflow::DEVICE_CPU), Backward);

}  // namespace
