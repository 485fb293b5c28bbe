// Softmax and LogSoftmax of ONNX, by oneDNN.
#include "primitives.h"

using namespace d5test;
using namespace onednn;

namespace {

template <typename T>
class Normalised : public CustomOperator<T> {
    const int axis;
    const dnnl::algorithm algorithm;
    Programs forwards, backwards;

    /// x as (before, axis, after).
    Dims dims(const Shape& x) const {
        const int rank = static_cast<int>(x.size()), at = axis < 0 ? axis + rank : axis;
        require(at >= 0 && at < rank, "there is no such axis");
        return {volume(Shape(x.begin(), x.begin() + at)), x[at],
                volume(Shape(x.begin() + at + 1, x.end()))};
    }
    dnnl::softmax_v2_forward::primitive_desc chosen(const Layout& x) const {
        return {{training, algorithm, x, x, 1}, cpu()};
    }

protected:
    Normalised(const Attributes& given, dnnl::algorithm algorithm)
        : axis(given.integer("axis")), algorithm(algorithm) {
        require_float<T>();
    }

public:
    Shapes shapes(const Shapes& in) const override { return {in[0]}; }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Shape shape = inputs[0].shape();
        if (nothing(shape)) return;
        forwards.run({shape}, {inputs[0].data(), outputs[0].data()}, [&] {
            const Layout x = row_major(dims(shape));
            return Program(chosen(x), {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, x, true}});
        });
    }

    void backward(const Inputs<T>& grads, const Inputs<T>&, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        const Shape shape = outputs[0].shape();
        if (nothing(shape)) return;
        backwards.run({shape}, {outputs[0].data(), grads[0].data(), input_grads[0].data()}, [&] {
            const Layout x = row_major(dims(shape));
            return Program(dnnl::softmax_v2_backward::primitive_desc({algorithm, x, x, x, 1}, cpu(),
                                                                     chosen(x)),
                           {{DNNL_ARG_DST, x}, {DNNL_ARG_DIFF_DST, x},
                            {DNNL_ARG_DIFF_SRC, x, true}});
        });
    }
};

}  // namespace

template <typename T>
struct Softmax : Normalised<T> {
    explicit Softmax(const Attributes& given)
        : Normalised<T>(given, dnnl::algorithm::softmax_accurate) {}
};
D5TEST_OPERATOR(Softmax).input("x", "*").output("y").attribute("axis", -1, {0}).contiguous();

template <typename T>
struct LogSoftmax : Normalised<T> {
    explicit LogSoftmax(const Attributes& given)
        : Normalised<T>(given, dnnl::algorithm::softmax_log) {}
};
D5TEST_OPERATOR(LogSoftmax).input("x", "*").output("y").attribute("axis", -1, {0}).contiguous();
