// Products of matrices, by oneDNN: MatMul and Gemm of ONNX.
#include "primitives.h"

using namespace d5test;
using namespace onednn;

namespace {

/// The axes of a layout, its last two swapped: oneDNN reads matrices by rows and by columns.
Layout transposed(const Layout& x) {
    std::vector<int> axes(x.dims().size());
    for (std::size_t k = 0; k < axes.size(); ++k) axes[k] = static_cast<int>(k);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return x.permute_axes(axes);
}
Layout turned(const Layout& x, bool turn) { return turn ? transposed(x) : x; }

/// y = scale a b, + kept times what y holds.
Program product(const Layout& a, const Layout& b, const Layout& y, float scale = 1,
                float kept = 0) {
    dnnl::primitive_attr attr;
    if (scale != 1) attr.set_output_scales(0, {scale});
    dnnl::post_ops after;
    if (kept != 0) after.append_sum(kept);
    attr.set_post_ops(after);
    return {dnnl::matmul::primitive_desc({a, b, y}, attr, cpu()),
            {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y, true}}};
}

/// `from` summed over the axes of which `to` has one element.
Program sum(const Dims& from, const Dims& to) {
    const Layout x = row_major(from), y = row_major(to);
    return {dnnl::reduction::primitive_desc({dnnl::algorithm::reduction_sum, x, y, 0, 0}, cpu()),
            {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y, true}}};
}

/// A shape with leading axes of one element.
Dims filled(const Shape& shape, std::size_t rank) {
    Dims dims(rank, 1);
    std::copy(shape.begin(), shape.end(), dims.end() - static_cast<std::ptrdiff_t>(shape.size()));
    return dims;
}

/// A product over leading axes that broadcast; a vector is one row, or one column.
struct Batched {
    Batched(const Shape& given_a, const Shape& given_b) {
        require(!given_a.empty() && !given_b.empty(), "a scalar has no product of matrices");
        Shape first = given_a, second = given_b;
        if (first.size() == 1) first.insert(first.begin(), 1);
        if (second.size() == 1) second.push_back(1);
        const std::size_t rank = std::max(first.size(), second.size());
        a = filled(first, rank), b = filled(second, rank), y = a;
        require(a[rank - 1] == b[rank - 2], "a has as many columns as b has rows");
        for (std::size_t k = 0; k + 2 < rank; ++k) {
            require(a[k] == b[k] || a[k] == 1 || b[k] == 1, "the leading axes do not broadcast");
            y[k] = a[k] == 1 ? b[k] : a[k];
        }
        y[rank - 1] = b[rank - 1];
        shape = y;
        if (given_b.size() == 1) shape.pop_back();
        if (given_a.size() == 1) shape.erase(shape.end() - (given_b.size() == 1 ? 1 : 2));
    }
    /// The gradient of a factor before it is summed over what it was broadcast to.
    Dims broadcast(const Dims& factor) const {
        Dims whole = y;
        std::copy(factor.end() - 2, factor.end(), whole.end() - 2);
        return whole;
    }

    Dims a, b, y;
    Shape shape;
};

}  // namespace

template <typename T>
class MatMul : public CustomOperator<T> {
    Programs forwards, of_a, of_b, sums;

    /// A factor's gradient: computed whole, then summed.
    template <typename Make>
    void gradient(Programs& programs, const Shapes& key, const Batched& p, const Dims& factor,
                  std::vector<const void*> read, const Tensor<T>& target, const Make& make) {
        const Dims whole = p.broadcast(factor);
        std::vector<T> room(whole == factor ? 0 : volume(whole));
        read.push_back(room.empty() ? target.data() : room.data());
        programs.run(key, read, [&] { return make(row_major(whole)); });
        if (!room.empty())
            sums.run({whole, factor}, {room.data(), target.data()},
                     [&] { return sum(whole, factor); });
    }

public:
    explicit MatMul(const Attributes&) { require_float<T>(); }

    Shapes shapes(const Shapes& in) const override { return {Batched(in[0], in[1]).shape}; }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Shape a = inputs[0].shape(), b = inputs[1].shape();
        if (nothing(outputs[0].shape(), a, b)) return;
        forwards.run({a, b}, {inputs[0].data(), inputs[1].data(), outputs[0].data()}, [&] {
            const Batched p(a, b);
            return product(row_major(p.a), row_major(p.b), row_major(p.y));
        });
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const Shape a = inputs[0].shape(), b = inputs[1].shape(), dy = grads[0].shape();
        const Batched p(a, b);
        if (!nothing(a, b, dy))
            gradient(of_a, {a, b}, p, p.a, {grads[0].data(), inputs[1].data()}, input_grads[0],
                     [&](const Layout& da) {
                         return product(row_major(p.y), transposed(row_major(p.b)), da);
                     });
        if (!nothing(b, a, dy))
            gradient(of_b, {a, b}, p, p.b, {inputs[0].data(), grads[0].data()}, input_grads[1],
                     [&](const Layout& db) {
                         return product(transposed(row_major(p.a)), row_major(p.y), db);
                     });
    }
};
D5TEST_OPERATOR(MatMul).input("a", "*").input("b", "*").output("y").unread().contiguous();

/// y = alpha a b + beta c, with a or b transposed; c broadcasts to y.
template <typename T>
class Gemm : public CustomOperator<T> {
    const float alpha, beta;
    const bool trans_a, trans_b;
    Programs forwards, of_a, of_b, sums;

public:
    explicit Gemm(const Attributes& given)
        : alpha(given.real("alpha")), beta(given.real("beta")), trans_a(given.integer("transA")),
          trans_b(given.integer("transB")) {
        require_float<T>();
    }

    Shapes shapes(const Shapes& in) const override {
        const Shape &a = in[0], &b = in[1], &c = in[2];
        const Shape y{a[trans_a], b[!trans_b]};
        require(a[!trans_a] == b[trans_b], "a has as many columns as b has rows");
        require(c.size() < 3, "c broadcasts to y");
        for (std::size_t k = 1; k <= c.size(); ++k)
            require(c[c.size() - k] == 1 || c[c.size() - k] == y[2 - k], "c broadcasts to y");
        return {y};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Shape a = inputs[0].shape(), b = inputs[1].shape(), y = outputs[0].shape();
        if (nothing(y, a, b)) return;
        const bool added = inputs[2].present() && beta != 0;
        if (added) spread(inputs[2], outputs[0]);
        const Shape marked(added ? 1 : 0, 1);
        forwards.run({a, b, marked}, {inputs[0].data(), inputs[1].data(), outputs[0].data()}, [&] {
            return product(turned(row_major(a), trans_a), turned(row_major(b), trans_b),
                           row_major(y), alpha, added ? beta : 0);
        });
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const Shape a = inputs[0].shape(), b = inputs[1].shape(), y = grads[0].shape();
        const T* dy = grads[0].data();
        if (!nothing(a, b, y))
            of_a.run({a, b}, {dy, inputs[1].data(), input_grads[0].data()}, [&] {
                return product(row_major(y), turned(row_major(b), !trans_b),
                               turned(row_major(a), trans_a), alpha);
            });
        if (!nothing(b, a, y))
            of_b.run({a, b}, {inputs[0].data(), dy, input_grads[1].data()}, [&] {
                return product(turned(row_major(a), !trans_a), row_major(y),
                               turned(row_major(b), trans_b), alpha);
            });
        const auto& dc = input_grads[2];
        if (!dc.present() || nothing(dc.shape(), y)) return;
        const Dims whole = filled(dc.shape(), 2);
        if (whole != y)
            sums.run({y, whole}, {dy, dc.data()}, [&] { return sum(y, whole); });
        for (std::int64_t i = 0; i < dc.size(); ++i) dc[i] = beta * (whole == y ? dy[i] : dc[i]);
    }

private:
    static void spread(const Tensor<const T>& c, const Tensor<T>& y) {
        const Dims sides = filled(c.shape(), 2);
        const std::int64_t columns = y.shape(1);
        for (std::int64_t i = 0; i < y.size(); ++i) {
            const std::int64_t row = sides[0] == 1 ? 0 : i / columns;
            y[i] = c[row * sides[1] + (sides[1] == 1 ? 0 : i % columns)];
        }
    }
};
D5TEST_OPERATOR(Gemm)
    .input("a", "i j").input("b", "k l").input("c", "*").optional().output("y", "m n").unread()
    .attribute("alpha", 1.0, {0.5}).attribute("beta", 1.0, {2.0})
    .attribute("transA", 0, {1}).attribute("transB", 0, {1}).contiguous();
