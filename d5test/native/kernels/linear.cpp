// Products of matrices: MatMul and Gemm of ONNX.
#include <tuple>

#include <d5test/operator.h>

#include "gemm.h"

using namespace d5test;
using kernels::Matrix;
using kernels::product;

namespace {

/// The two last axes of a tensor as a matrix, its element `offset` the first.
template <typename T>
Matrix<T> matrix(const Tensor<T>& x, std::int64_t offset = 0) {
    return {x.data() + offset, x.stride(-2), x.stride(-1)};
}

/// How a matrix product runs over broadcast leading axes: where each of its matrices begins.
class Stack {
public:
    /// Of a vector, a becomes one row and b one column.
    template <typename A, typename B>
    Stack(const Tensor<A>& a, const Tensor<B>& b) {
        std::tie(m, k) = std::pair(a.rank() > 1 ? a.shape(-2) : 1, a.shape(-1));
        n = b.rank() > 1 ? b.shape(-1) : 1;
        if (b.shape(b.rank() > 1 ? -2 : 0) != k)
            throw std::invalid_argument("a has " + std::to_string(k) + " columns, b other rows");
        sides = broadcast(a.shape(), b.shape());
        for (const auto side : sides) count *= side;
    }

    /// The leading axes that two shapes have together. Throws where they do not broadcast.
    static Shape broadcast(Shape a, Shape b) {
        a.resize(a.size() > 1 ? a.size() - 2 : 0);
        b.resize(b.size() > 1 ? b.size() - 2 : 0);
        if (a.size() < b.size()) a.swap(b);
        for (std::size_t axis = a.size() - b.size(), i = 0; i < b.size(); ++axis, ++i) {
            if (a[axis] != b[i] && a[axis] != 1 && b[i] != 1)
                throw std::invalid_argument("the leading axes do not broadcast");
            if (a[axis] == 1) a[axis] = b[i];
        }
        return a;
    }

    /// The first element of the matrix of x that takes part in the i-th product.
    template <typename T>
    T* first(const Tensor<T>& x, std::int64_t i) const {
        std::int64_t offset = 0;
        for (int axis = static_cast<int>(sides.size()) - 1, own = x.rank() - 3; axis >= 0;
             i /= sides[axis], --axis, --own)
            if (own >= 0 && x.shape(own) > 1) offset += i % sides[axis] * x.stride(own);
        return x.data() + offset;
    }
    template <typename T>
    Matrix<T> left(const Tensor<T>& a, std::int64_t i) const {
        return {first(a, i), a.rank() > 1 ? a.stride(-2) : 0, a.stride(-1)};
    }
    template <typename T>
    Matrix<T> right(const Tensor<T>& b, std::int64_t i) const {
        return {first(b, i), b.rank() > 1 ? b.stride(-2) : b.stride(0),
                b.rank() > 1 ? b.stride(-1) : 0};
    }
    template <typename T>
    Matrix<T> result(const Tensor<T>& y, std::int64_t i) const {
        return {y.data() + i * m * n, n, 1};
    }

    Shape sides;
    std::int64_t m, n, k, count = 1;
};

template <typename T>
void fill(const Tensor<T>& x, T value) {
    std::fill_n(x.data(), x.size(), value);
}

}  // namespace

/// y = a b over broadcast leading axes; da = dy b', db = a' dy, summed over what was broadcast.
template <typename T>
class MatMul : public CustomOperator<T> {
public:
    Shapes shapes(const Shapes& in) const override {
        if (in[0].empty() || in[1].empty()) throw std::invalid_argument("a scalar is no matrix");
        Shape y = Stack::broadcast(in[0], in[1]);
        if (in[0].size() > 1) y.push_back(in[0][in[0].size() - 2]);
        if (in[1].size() > 1) y.push_back(in[1].back());
        return {y};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &a = inputs[0], &b = inputs[1];
        const auto& y = outputs[0];
        const Stack stack(a, b);
        fill(y, T(0));
        #pragma omp parallel for if (stack.count > 1)
        for (std::int64_t i = 0; i < stack.count; ++i)
            product(stack.m, stack.n, stack.k, stack.left(a, i), stack.right(b, i),
                    stack.result(y, i));
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto &dy = grads[0], &a = inputs[0], &b = inputs[1];
        const auto &da = input_grads[0], &db = input_grads[1];
        const Stack stack(a, b);
        fill(da, T(0));
        fill(db, T(0));
        for (std::int64_t i = 0; i < stack.count; ++i) {  // in turn: they add to one sum
            const auto upstream = stack.result(dy, i);
            product(stack.m, stack.k, stack.n, upstream, stack.right(b, i).transposed(),
                    stack.left(da, i));
            product(stack.k, stack.n, stack.m, stack.left(a, i).transposed(), upstream,
                    stack.right(db, i));
        }
    }
};
D5TEST_OPERATOR(MatMul).input("a", "*").input("b", "*").output("y").unread().contiguous();

/// y = alpha a b + beta c, with a or b transposed; c broadcasts to y.
template <typename T>
class Gemm : public CustomOperator<T> {
    const T alpha, beta;
    const bool trans_a, trans_b;

    template <typename Element>
    static Matrix<Element> factor(const Tensor<Element>& x, bool transposed) {
        return transposed ? matrix(x).transposed() : matrix(x);
    }
    /// c as it broadcasts to a matrix.
    template <typename Element>
    static Matrix<Element> broadcast(const Tensor<Element>& c) {
        const auto stride = [&](int axis) {
            return c.rank() >= -axis && c.shape(axis) > 1 ? c.stride(axis) : 0;
        };
        return {c.data(), stride(-2), stride(-1)};
    }

public:
    explicit Gemm(const Attributes& given)
        : alpha(given.real("alpha")), beta(given.real("beta")),
          trans_a(given.integer("transA")), trans_b(given.integer("transB")) {}

    Shapes shapes(const Shapes& in) const override {
        const auto &a = in[0], &b = in[1], &c = in[2];
        const Shape y = {a[trans_a], b[!trans_b]};
        if (a[!trans_a] != b[trans_b]) throw std::invalid_argument("a and b do not fit");
        for (std::size_t i = 1; i <= c.size(); ++i)
            if (i > 2 || (c[c.size() - i] != 1 && c[c.size() - i] != y[2 - i]))
                throw std::invalid_argument("c does not broadcast to the product");
        return {y};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto a = factor(inputs[0], trans_a), b = factor(inputs[1], trans_b);
        const auto &c = inputs[2], &y = outputs[0];
        const std::int64_t m = y.shape(0), n = y.shape(1), k = inputs[0].shape(!trans_a);
        fill(y, T(0));
        product(m, n, k, a, b, matrix(y));
        const auto bias = broadcast(c);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j)
                y(i, j) = alpha * y(i, j) + (c.present() ? beta * bias(i, j) : T(0));
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto a = factor(inputs[0], trans_a), b = factor(inputs[1], trans_b);
        const auto &dy = grads[0], &dc = input_grads[2];
        const std::int64_t m = dy.shape(0), n = dy.shape(1), k = inputs[0].shape(!trans_a);
        for (const auto& gradient : {input_grads[0], input_grads[1]}) fill(gradient, T(0));
        product(m, k, n, matrix(dy), b.transposed(), factor(input_grads[0], trans_a));
        product(k, n, m, a.transposed(), matrix(dy), factor(input_grads[1], trans_b));
        for (const auto& gradient : {input_grads[0], input_grads[1]})
            for (std::int64_t i = 0; i < gradient.size(); ++i) gradient[i] *= alpha;
        if (!dc.present()) return;
        fill(dc, T(0));
        const auto sum = broadcast(dc);
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) sum(i, j) += beta * dy(i, j);
    }
};
D5TEST_OPERATOR(Gemm)
    .input("a", "i j").input("b", "k l").input("c", "*").optional().output("y", "m n").unread()
    .attribute("alpha", 1.0, {0.5}).attribute("beta", 1.0, {2.0})
    .attribute("transA", 0, {1}).attribute("transB", 0, {1}).contiguous();
