// Normalised exponentials along one axis: Softmax and LogSoftmax of ONNX.
#include <cmath>

#include <d5test/operator.h>

using namespace d5test;

namespace {

/// A tensor as vectors along one axis: `count` elements, `step` apart, from `first(i)` on.
struct Vectors {
    template <typename T>
    Vectors(const Tensor<T>& x, int axis) {
        if (axis < -x.rank() || axis >= x.rank()) throw std::out_of_range("there is no such axis");
        count = x.shape(axis);
        for (int after = (axis + x.rank()) % x.rank() + 1; after < x.rank(); ++after)
            step *= x.shape(after);
        total = count ? x.size() / count : 0;
    }
    std::int64_t first(std::int64_t i) const { return i / step * step * count + i % step; }

    std::int64_t count, step = 1, total;
};

template <typename T>
T largest(const T* x, const Vectors& v) {
    T found = x[0];
    for (std::int64_t k = 1; k < v.count; ++k)
        if (x[k * v.step] > found || std::isnan(x[k * v.step])) found = x[k * v.step];
    return found;
}

}  // namespace

/// y = e^(x - m) / sum of e^(x - m), m = max of x; dx = y (dy - sum of dy y).
template <typename T>
class Softmax : public CustomOperator<T> {
    const int axis;

public:
    explicit Softmax(const Attributes& given) : axis(given.integer("axis")) {}

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Vectors v(inputs[0], axis);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < v.total; ++i) {
            const T* x = inputs[0].data() + v.first(i);
            T* y = outputs[0].data() + v.first(i);
            const T m = largest(x, v);
            T sum = 0;
            for (std::int64_t k = 0; k < v.count; ++k)
                sum += y[k * v.step] = std::exp(x[k * v.step] - m);
            for (std::int64_t k = 0; k < v.count; ++k) y[k * v.step] /= sum;
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        const Vectors v(inputs[0], axis);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < v.total; ++i) {
            const T *dy = grads[0].data() + v.first(i), *y = outputs[0].data() + v.first(i);
            T *dx = input_grads[0].data() + v.first(i), sum = 0;
            for (std::int64_t k = 0; k < v.count; ++k) sum += dy[k * v.step] * y[k * v.step];
            for (std::int64_t k = 0; k < v.count; ++k)
                dx[k * v.step] = y[k * v.step] * (dy[k * v.step] - sum);
        }
    }
};
D5TEST_OPERATOR(Softmax).input("x").output("y").attribute("axis", -1, {0}).contiguous();

/// y = x - m - ln(sum of e^(x - m)), m = max of x; dx = dy - e^y sum of dy.
template <typename T>
class LogSoftmax : public CustomOperator<T> {
    const int axis;

public:
    explicit LogSoftmax(const Attributes& given) : axis(given.integer("axis")) {}

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Vectors v(inputs[0], axis);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < v.total; ++i) {
            const T* x = inputs[0].data() + v.first(i);
            T* y = outputs[0].data() + v.first(i);
            const T m = largest(x, v);
            T sum = 0;
            for (std::int64_t k = 0; k < v.count; ++k)
                sum += std::exp(y[k * v.step] = x[k * v.step] - m);
            const T logarithm = std::log(sum);
            for (std::int64_t k = 0; k < v.count; ++k) y[k * v.step] -= logarithm;
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        const Vectors v(inputs[0], axis);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < v.total; ++i) {
            const T *dy = grads[0].data() + v.first(i), *y = outputs[0].data() + v.first(i);
            T *dx = input_grads[0].data() + v.first(i), sum = 0;
            for (std::int64_t k = 0; k < v.count; ++k) sum += dy[k * v.step];
            for (std::int64_t k = 0; k < v.count; ++k)
                dx[k * v.step] = dy[k * v.step] - std::exp(y[k * v.step]) * sum;
        }
    }
};
D5TEST_OPERATOR(LogSoftmax).input("x").output("y").attribute("axis", -1, {0}).contiguous();
