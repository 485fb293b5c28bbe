// Long short-term memory with peepholes: LSTM of ONNX. Hochreiter and Schmidhuber 1997; Gers 2000.
//
//     i = s(a_i + R_i h + p_i c)    c' = f c + i g              s: the sigmoid
//     f = s(a_f + R_f h + p_f c)    o = s(a_o + R_o h + p_o c')
//     g = tanh(a_c + R_c h)         h' = o tanh(c')
//
// a: the product of W and the step's input; biases are added. The gates' order is i, o, f, c, that
// of the peepholes i, o, f.
#include <cmath>

#include "gemm.h"
#include <d5test/operator.h>

using namespace d5test;
using kernels::Matrix;
using kernels::product;

namespace {

template <typename T>
T sigmoid(T x) {
    return 1 / (1 + std::exp(-x));
}

/// The sizes of a layer, and where the rows of its tensors are: time first, or with `layout` 1 the
/// samples.
struct Layer {
    std::int64_t steps, n, width, hidden, directions;
    bool samples_first;

    std::int64_t row(std::int64_t t, std::int64_t i) const {
        return samples_first ? i * steps + t : t * n + i;
    }
    std::int64_t output(std::int64_t t, std::int64_t d, std::int64_t i) const {
        if (samples_first) return (row(t, i) * directions + d) * hidden;
        return ((t * directions + d) * n + i) * hidden;
    }
    std::int64_t state(std::int64_t d, std::int64_t i) const {
        return (samples_first ? i * directions + d : d * n + i) * hidden;
    }
    std::int64_t rows() const { return steps * n; }
};

/// What a direction remembers of all steps, a row for each step of each sample: the states before,
/// the gates, the next cell.
template <typename T>
struct Trace {
    explicit Trace(const Layer& l)
        : h(l.rows() * l.hidden), c(h.size()), gates(4 * h.size()), next(h.size()) {}

    std::vector<T> h, c, gates, next;
};

}  // namespace

template <typename T>
class LSTM : public CustomOperator<T> {
    const std::string direction;
    const std::int64_t hidden_size;
    const bool samples_first;

    enum { X, W, R, B, lengths, initial_h, initial_c, P };

    Layer layer(const Shape& x, const Shape& w, const Shape& r) const {
        require(x.size() == 3 && w.size() == 3 && r.size() == 3, "x, w and r have three axes");
        const std::int64_t steps = x[samples_first ? 1 : 0], n = x[samples_first ? 0 : 1];
        const Layer l{steps, n, x[2], r[2], both() ? 2 : 1, samples_first};
        require(hidden_size == 0 || hidden_size == l.hidden, "r is not of the hidden size");
        require(w == Shape{l.directions, 4 * l.hidden, l.width}, "w and x do not fit");
        require(r == Shape{l.directions, 4 * l.hidden, l.hidden}, "r and w do not fit");
        return l;
    }
    Layer layer(const Inputs<T>& in) const {
        return layer(in[X].shape(), in[W].shape(), in[R].shape());
    }
    bool both() const { return direction == "bidirectional"; }
    /// The time of the k-th step of a direction.
    std::int64_t time(const Layer& l, std::int64_t d, std::int64_t k) const {
        return direction == "reverse" || d == 1 ? l.steps - 1 - k : k;
    }
    static bool valid(const Tensor<const std::int64_t>& length, std::int64_t t, std::int64_t i) {
        return !length.present() || t < length[i];
    }
    static T at(const Tensor<const T>& x, std::int64_t i) { return x.present() ? x[i] : T(0); }
    /// What comes through a peephole; without one nothing, not even of infinity.
    static T seen(const Tensor<const T>& p, std::int64_t i, T x) {
        return p.present() ? p[i] * x : T(0);
    }

public:
    explicit LSTM(const Attributes& given)
        : direction(given.text("direction")), hidden_size(given.integer("hidden_size")),
          samples_first(given.integer("layout")) {}

    Shapes shapes(const Shapes& in) const override {
        const Layer l = layer(in[X], in[W], in[R]);
        const auto fits = [&](int input, const Shape& wanted, const char* what) {
            require(in[input].empty() || in[input] == wanted, what);
        };
        const Shape state = samples_first ? Shape{l.n, l.directions, l.hidden}
                                          : Shape{l.directions, l.n, l.hidden};
        fits(B, {l.directions, 8 * l.hidden}, "there are eight biases for each hidden unit");
        fits(lengths, {l.n}, "there is one length for each sample");
        fits(initial_h, state, "initial_h does not fit");
        fits(initial_c, state, "initial_c does not fit");
        fits(P, {l.directions, 3 * l.hidden}, "there are three peepholes for each hidden unit");
        if (samples_first) return {{l.n, l.steps, l.directions, l.hidden}, state, state};
        return {{l.steps, l.directions, l.n, l.hidden}, state, state};
    }

    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        const Layer l = layer(in);
        for (std::int64_t d = 0; d < l.directions; ++d) unroll(in, l, d, &out);
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>&,
                  const Outputs<T>& into) override {
        const Layer l = layer(in);
        for (std::size_t k = 0; k < into.size(); ++k)
            std::fill_n(into[k].data(), into[k].size(), T(0));
        for (std::int64_t d = 0; d < l.directions; ++d) {
            const Trace<T> trace = unroll(in, l, d, nullptr);
            std::vector<T> dz(trace.gates.size());
            pull(grads, in, l, d, trace, dz, into[P]);
            const Matrix<const T> upstream{dz.data(), 4 * l.hidden};
            const std::int64_t gates = 4 * l.hidden;
            product(l.rows(), l.width, gates, upstream, weights(in[W], d),
                    Matrix<T>{into[X].data(), l.width});
            product(gates, l.width, l.rows(), upstream.transposed(),
                    Matrix<const T>{in[X].data(), l.width}, weights(into[W], d));
            product(gates, l.hidden, l.rows(), upstream.transposed(),
                    Matrix<const T>{trace.h.data(), l.hidden}, weights(into[R], d));
            for (std::int64_t k = 0; into[B].present() && k < l.rows() * gates; ++k)
                for (const std::int64_t half : {0, 1})
                    into[B][(2 * d + half) * gates + k % gates] += dz[k];
        }
    }

private:
    /// The weights of a direction, of (directions, rows, columns).
    template <typename Element>
    static Matrix<Element> weights(const Tensor<Element>& w, std::int64_t d) {
        return {w.data() + d * w.stride(0), w.stride(1)};
    }

    /// All steps of a direction; `out`, if there is one, gets its outputs and last states.
    Trace<T> unroll(const Inputs<T>& in, const Layer& l, std::int64_t d,
                    const Outputs<T>* out) const {
        const std::int64_t hidden = l.hidden, gates = 4 * hidden;
        const auto length = in.integers(lengths);
        Trace<T> trace(l);
        product(l.rows(), gates, l.width, Matrix<const T>{in[X].data(), l.width},
                weights(in[W], d).transposed(), Matrix<T>{trace.gates.data(), gates});
        std::vector<T> h(l.n * hidden), c(h.size()), z(l.n * gates);
        for (std::int64_t i = 0; i < l.n; ++i)
            for (std::int64_t k = 0; k < hidden; ++k) {
                h[i * hidden + k] = at(in[initial_h], l.state(d, i) + k);
                c[i * hidden + k] = at(in[initial_c], l.state(d, i) + k);
            }
        const kernels::Packed<T> r(gates, hidden, weights(in[R], d));
        for (std::int64_t step = 0; step < l.steps; ++step) {
            const std::int64_t t = time(l, d, step);
            std::fill(z.begin(), z.end(), T(0));
            kernels::multiply(r, Matrix<const T>{h.data(), hidden}.transposed(),
                              Matrix<T>{z.data(), gates}.transposed(), l.n);
            #pragma omp parallel for
            for (std::int64_t i = 0; i < l.n; ++i) {
                const std::int64_t row = l.row(t, i) * hidden, own = i * hidden;
                std::copy_n(&h[own], hidden, &trace.h[row]);
                std::copy_n(&c[own], hidden, &trace.c[row]);
                for (std::int64_t k = 0; k < hidden; ++k) {
                    T* gate = &trace.gates[4 * row];
                    for (std::int64_t g = k; g < gates; g += hidden)
                        gate[g] += at(in[B], 2 * d * gates + g) +
                                   (z[i * gates + g] + at(in[B], (2 * d + 1) * gates + g));
                    const auto [h_next, c_next] = cell(gate + k, hidden, c[own + k], in[P],
                                                       3 * d * hidden + k);
                    trace.next[row + k] = c_next;
                    const bool on = valid(length, t, i);
                    if (on) h[own + k] = h_next, c[own + k] = c_next;
                    if (out) (*out)[0][l.output(t, d, i) + k] = on ? h_next : T(0);
                }
            }
        }
        for (std::int64_t i = 0; out && i < l.n; ++i) {
            std::copy_n(&h[i * hidden], hidden, &(*out)[1][l.state(d, i)]);
            std::copy_n(&c[i * hidden], hidden, &(*out)[2][l.state(d, i)]);
        }
        return trace;
    }

    /// The next state and cell of a unit, whose gates, `apart` from each other, become activated.
    static std::pair<T, T> cell(T* gate, std::int64_t apart, T c, const Tensor<const T>& p,
                                std::int64_t first) {
        T &i = gate[0], &o = gate[apart], &f = gate[2 * apart], &g = gate[3 * apart];
        i = sigmoid(i + seen(p, first, c));
        f = sigmoid(f + seen(p, first + 2 * apart, c));
        g = std::tanh(g);
        const T next = f * c + i * g;
        o = sigmoid(o + seen(p, first + apart, next));
        return {o * std::tanh(next), next};
    }

    /// Backwards through all steps of a direction: dz, the gradients before the gates, and dp.
    void pull(const Inputs<T>& grads, const Inputs<T>& in, const Layer& l, std::int64_t d,
              const Trace<T>& trace, std::vector<T>& dz, const Tensor<T>& dp) const {
        const std::int64_t hidden = l.hidden, gates = 4 * hidden;
        const auto length = in.integers(lengths);
        const kernels::Packed<T> r(hidden, gates, weights(in[R], d).transposed());
        std::vector<T> dh(l.n * hidden), dc(dh.size()), through(dh.size());
        for (std::int64_t i = 0; i < l.n; ++i) {
            std::copy_n(&grads[1][l.state(d, i)], hidden, &dh[i * hidden]);
            std::copy_n(&grads[2][l.state(d, i)], hidden, &dc[i * hidden]);
        }
        for (std::int64_t step = l.steps - 1; step >= 0; --step) {
            const std::int64_t t = time(l, d, step);
            for (std::int64_t i = 0; i < l.n; ++i)
                for (std::int64_t k = 0; valid(length, t, i) && k < hidden; ++k) {
                    const T dy = grads[0][l.output(t, d, i) + k], dnext = dh[i * hidden + k] + dy;
                    pull_cell(l.row(t, i), k, dnext, dc[i * hidden + k], hidden, trace, in[P],
                              3 * d * hidden + k, dz, dp);
                }
            const Matrix<const T> of_step{dz.data() + l.row(t, 0) * gates,
                                          (samples_first ? l.steps : 1) * gates};
            std::fill(through.begin(), through.end(), T(0));  // dz R
            kernels::multiply(r, of_step.transposed(),
                              Matrix<T>{through.data(), hidden}.transposed(), l.n);
            for (std::int64_t i = 0; i < l.n; ++i)
                if (valid(length, t, i))
                    std::copy_n(&through[i * hidden], hidden, &dh[i * hidden]);
        }
    }

    /// Backwards through a unit: its dz, what it adds to dp, and dc, which becomes that of c.
    static void pull_cell(std::int64_t row, std::int64_t k, T dh, T& dc, std::int64_t hidden,
                          const Trace<T>& trace, const Tensor<const T>& p, std::int64_t first,
                          std::vector<T>& dz, const Tensor<T>& dp) {
        const T* gate = &trace.gates[row * 4 * hidden + k];
        const T i = gate[0], o = gate[hidden], f = gate[2 * hidden], g = gate[3 * hidden];
        const T c = trace.c[row * hidden + k], next = trace.next[row * hidden + k];
        const T tanh_c = std::tanh(next);
        const T dzo = dh * tanh_c * o * (1 - o);
        const T dnext = dc + dh * o * (1 - tanh_c * tanh_c) + seen(p, first + hidden, dzo);
        const T dzi = dnext * g * i * (1 - i), dzf = dnext * c * f * (1 - f);
        T* into = &dz[row * 4 * hidden + k];
        into[0] = dzi, into[hidden] = dzo, into[2 * hidden] = dzf;
        into[3 * hidden] = dnext * i * (1 - g * g);
        dc = dnext * f + seen(p, first, dzi) + seen(p, first + 2 * hidden, dzf);
        if (!dp.present()) return;
        dp[first] += dzi * c, dp[first + hidden] += dzo * next, dp[first + 2 * hidden] += dzf * c;
    }
};
D5TEST_OPERATOR(LSTM)
    .input("x", "*").input("w", "*").input("r", "*").input("b", "*").optional()
    .input("sequence_lens", "*").optional().integers()
    .input("initial_h", "*").optional().constant().input("initial_c", "*").optional().constant()
    .input("p", "*").optional()
    .output("y").unread().output("y_h").unread().output("y_c").unread()
    .attribute("direction", "forward", {"reverse", "bidirectional"})
    .attribute("hidden_size", 0).attribute("layout", 0, {1}).contiguous();
