// Operators with several inputs and outputs, named axes, a shape function, and lists of attributes.
#include <d5test/operator.h>

using namespace d5test;

template <typename T>
class Product : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        const auto &a = in[0], &b = in[1];
        for (int64_t i = 0; i < a.shape(0); ++i)
            for (int64_t j = 0; j < b.shape(1); ++j) {
                T sum = 0;
                for (int64_t k = 0; k < a.shape(1); ++k) sum += a(i, k) * b(k, j);
                out[0](i, j) = sum;
            }
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>&,
                  const Outputs<T>& out) override {
        const auto &dc = grads[0], &a = in[0], &b = in[1];
        for (int64_t i = 0; i < a.size(); ++i) out[0][i] = 0;
        for (int64_t i = 0; i < b.size(); ++i) out[1][i] = 0;
        for (int64_t i = 0; i < a.shape(0); ++i)
            for (int64_t k = 0; k < a.shape(1); ++k)
                for (int64_t j = 0; j < b.shape(1); ++j) {
                    out[0](i, k) += dc(i, j) * b(k, j);
                    out[1](k, j) += dc(i, j) * a(i, k);
                }
    }
};
D5TEST_OPERATOR(Product).input("a", "m k").input("b", "k n").output("c", "m n");

// Every step-th element of the last axis, and what is between; a shape that no axis says.
template <typename T>
class Thin : public CustomOperator<T> {
    const int64_t step;
    const std::vector<double> factors;

    int64_t kept(int64_t n) const { return (n + step - 1) / step; }

public:
    explicit Thin(const Attributes& given)
        : step(given.integer("step")), factors(given.reals("factors")) {
        if (step < 1) throw Unsupported("a step is positive");
    }
    Shapes shapes(const Shapes& in) const override {
        const int64_t n = in[0].back();
        return {{in[0][0], kept(n)}, {in[0][0], n - kept(n)}};
    }
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].shape(0); ++i)
            for (int64_t k = 0; k < in[0].shape(1); ++k)
                (k % step ? out[1](i, k - k / step - 1) : out[0](i, k / step)) =
                    in[0](i, k) * T(factors[k % step ? 1 : 0]);
    }
};
D5TEST_OPERATOR(Thin)
    .input("x", "m n").output("kept").output("rest")
    .attribute("step", 2, {3}).attribute("factors", std::vector<double>{1, 2});

// ONNX's operator of this name is its reference.
template <typename T>
class Relu : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) {
            const T x = in[0][i];
            out[0][i] = x > 0 || x != x ? x : T(0);
        }
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>&,
                  const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = in[0][i] > 0 ? grads[0][i] : T(0);
    }
};
D5TEST_OPERATOR(Relu).input("x").output("y");
