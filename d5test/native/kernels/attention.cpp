// Scaled dot-product attention with grouped heads, masks and a cache of keys and values:
// Attention of ONNX.
#include <cmath>
#include <limits>

#include "heads.h"

using namespace d5test;
using kernels::add_product;
using kernels::copied;
using kernels::copy;
using kernels::Extents;
using kernels::head;
using kernels::Matrix;
using kernels::rows;

namespace {

/// The scores of a head at their stages, (queries, total) each, and which keys are attended to.
template <typename T>
struct Scores {
    explicit Scores(std::int64_t size) : scaled(size), biased(size), p(size), allowed(size) {}

    std::vector<T> scaled, capped, biased, p;
    std::vector<char> allowed;
};

}  // namespace

/// y = softmax(q k' / sqrt(d) + mask) v, head by head. Vaswani et al., 2017.
template <typename T>
class Attention : public CustomOperator<T> {
    const bool causal;
    const std::int64_t q_heads, kv_heads, left, right, mode;
    const double scale;
    const T softcap;

    enum { Q, K, V, mask, past_key, past_value, lengths };

    Extents sizes(const Shape& q, const Shape& k, const Shape& v, const Shape& past) const {
        const bool folded = q_heads > 0;
        require(q.size() == (folded ? 3 : 4) && k.size() == q.size() && v.size() == q.size(),
                "q, k and v have 4 axes, or 3 and the numbers of heads");
        const std::int64_t heads = folded ? q_heads : q[1], kv = folded ? kv_heads : k[1];
        require(kv > 0 && heads % kv == 0, "the heads of q are a multiple of those of k");
        require(!folded || (q.back() % heads == 0 && k.back() % kv == 0 && v.back() % kv == 0),
                "the last axes are a multiple of the heads");
        const Extents s{q[0], heads, kv, folded ? q[1] : q[2], folded ? k[1] : k[2],
                      past.empty() ? 0 : past[2], q.back() / (folded ? heads : 1),
                      v.back() / (folded ? kv : 1), folded};
        require(k[0] == s.n && v[0] == s.n && k.back() / (folded ? kv : 1) == s.width,
                "q and k do not fit");
        require(v[folded ? 1 : 2] == s.keys && (folded || v[1] == kv), "k and v do not fit");
        return s;
    }
    Extents sizes(const Inputs<T>& in) const {
        return sizes(in[Q].shape(), in[K].shape(), in[V].shape(), in[past_key].shape());
    }
    /// The root of the scale, which multiplies q as well as k.
    T root(const Extents& s) const {
        return static_cast<T>(std::sqrt(scale < 0 ? 1 / std::sqrt(double(s.width)) : scale));
    }

    /// Where the mask has the score of a query and a key; -1 beyond its last column.
    std::int64_t masked(const Tensor<const T>& m, std::int64_t i, std::int64_t h, std::int64_t q,
                        std::int64_t key) const {
        const std::int64_t at[] = {i, h, q, key};
        if (key >= m.shape(-1)) return -1;
        std::int64_t offset = 0;
        for (int axis = 0; axis < m.rank(); ++axis)
            if (m.shape(axis) > 1 || axis == m.rank() - 1)
                offset += at[4 - m.rank() + axis] * m.stride(axis);
        return offset;
    }

    /// Whether a query may attend to a key, as far as causality, windows and lengths go.
    bool seen(const Extents& s, const Tensor<const std::int64_t>& valid, std::int64_t i,
              std::int64_t q, std::int64_t key) const {
        const std::int64_t before = valid.present() ? valid[i] - s.queries : s.past;
        const std::int64_t at = before + q;
        return (!valid.present() || key < valid[i]) && (!causal || key <= at) &&
               (left < 0 || key >= at - left) && (right < 0 || key <= at + right);
    }

    /// The scores of a head; `keys` are the past's and the present's.
    Scores<T> scores(const Inputs<T>& in, const Extents& s, Matrix<const T> keys, std::int64_t i,
                     std::int64_t h) const {
        Scores<T> found(s.stage());
        const auto valid = in.integers(lengths);
        const T r = root(s);
        const auto q = copied(head(in[Q], s, s.heads, i, h), s.queries, s.width, r);
        const auto k = copied(keys, s.total(), s.width, r);
        add_product(s.queries, s.total(), s.width, Matrix<const T>{q.data(), s.width},
                    Matrix<const T>{k.data(), s.width}.transposed(),
                    Matrix<T>{found.scaled.data(), s.total()});
        found.capped = found.scaled;
        if (softcap != 0)
            for (auto& score : found.capped) score = softcap * std::tanh(score / softcap);
        for (std::int64_t row = 0; row < s.queries; ++row)
            for (std::int64_t key = 0; key < s.total(); ++key) {
                const std::int64_t at = row * s.total() + key;
                const std::int64_t cell =
                    in[mask].present() ? masked(in[mask], i, h, row, key) : 0;
                const bool boolean = in[mask].present() && in.boolean(mask);
                found.allowed[at] = seen(s, valid, i, row, key) && cell >= 0 &&
                                    (!boolean || in.booleans(mask).data()[cell]);
                found.biased[at] = !found.allowed[at] ? -std::numeric_limits<T>::infinity()
                                   : in[mask].present() && !boolean
                                       ? found.capped[at] + in[mask].data()[cell]
                                       : found.capped[at];
            }
        for (std::int64_t row = 0; row < s.queries; ++row)
            normalise(&found.biased[row * s.total()], &found.allowed[row * s.total()],
                      &found.p[row * s.total()], s.total());
        return found;
    }

    /// The softmax of the scores that are allowed; zeros if none is.
    static void normalise(const T* score, const char* allowed, T* p, std::int64_t count) {
        T largest = 0, sum = 0;
        bool any = false;
        for (std::int64_t k = 0; k < count; ++k)
            if (allowed[k] && (!any || score[k] > largest || std::isnan(score[k])))
                largest = score[k], any = true;
        for (std::int64_t k = 0; k < count; ++k)
            sum += p[k] = allowed[k] ? std::exp(score[k] - largest) : T(0);
        for (std::int64_t k = 0; any && k < count; ++k) p[k] /= sum;
    }

    const std::vector<T>& stage(const Scores<T>& s) const {
        const std::vector<T>* stages[] = {&s.scaled, &s.capped, &s.biased, &s.p};
        return *stages[mode];
    }

public:
    explicit Attention(const Attributes& given)
        : causal(given.integer("is_causal")), q_heads(given.integer("q_num_heads")),
          kv_heads(given.integer("kv_num_heads")), left(given.integer("left_window_size")),
          right(given.integer("right_window_size")), mode(given.integer("qk_matmul_output_mode")),
          scale(given.real("scale")), softcap(given.real("softcap")) {
        require(mode >= 0 && mode < 4, "qk_matmul_output_mode is 0 to 3");
    }

    Shapes shapes(const Shapes& in) const override {
        const Extents s = sizes(in[Q], in[K], in[V], in[past_key]);
        require(in[mask].size() <= 4 && in[past_key].empty() == in[past_value].empty(),
                "the mask broadcasts to the scores, and past keys have past values");
        const Shape y = s.folded ? Shape{s.n, s.queries, s.heads * s.value_width}
                                 : s.shape(s.heads, s.queries, s.value_width);
        return {y, s.shape(s.kv, s.total(), s.width), s.shape(s.kv, s.total(), s.value_width),
                s.shape(s.heads, s.queries, s.total())};
    }

    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        const Extents s = sizes(in);
        const auto &y = out[0], &present_k = out[1], &present_v = out[2];
        std::fill_n(y.data(), y.size(), T(0));
        #pragma omp parallel for collapse(2)
        for (std::int64_t i = 0; i < s.n; ++i)
            for (std::int64_t g = 0; g < s.kv; ++g) {
                if (s.past) {
                    copy(rows(in[past_key], i, g), rows(present_k, i, g), s.past, s.width);
                    copy(rows(in[past_value], i, g), rows(present_v, i, g), s.past, s.value_width);
                }
                copy(head(in[K], s, s.kv, i, g), rows(present_k, i, g, s.past), s.keys, s.width);
                copy(head(in[V], s, s.kv, i, g), rows(present_v, i, g, s.past), s.keys,
                     s.value_width);
                const auto k = rows(present_k, i, g), v = rows(present_v, i, g);
                for (std::int64_t h = g * s.ratio(); h < (g + 1) * s.ratio(); ++h) {
                    const auto found = scores(in, s, {k.data, k.row}, i, h);
                    add_product(s.queries, s.value_width, s.total(),
                                Matrix<const T>{found.p.data(), s.total()},
                                Matrix<const T>{v.data, v.row}, head(y, s, s.heads, i, h));
                    std::copy_n(stage(found).data(), s.stage(), rows(out[3], i, h).data);
                }
            }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>& out,
                  const Outputs<T>& into) override {
        const Extents s = sizes(in);
        for (const auto& dx : {into[Q], into[mask]}) std::fill_n(dx.data(), dx.size(), T(0));
        #pragma omp parallel for collapse(2) if (!into[mask].present())
        for (std::int64_t i = 0; i < s.n; ++i)
            for (std::int64_t g = 0; g < s.kv; ++g) {
                // what flows into keys and values, the past's before the present's
                auto dk = copied(rows(grads[1], i, g), s.total(), s.width, T(1));
                auto dv = copied(rows(grads[2], i, g), s.total(), s.value_width, T(1));
                for (std::int64_t h = g * s.ratio(); h < (g + 1) * s.ratio(); ++h)
                    pull(grads, in, out, into, s, i, h, dk, dv);
                const Matrix<const T> all_k{dk.data(), s.width}, all_v{dv.data(), s.value_width};
                if (s.past) {
                    copy(all_k, rows(into[past_key], i, g), s.past, s.width);
                    copy(all_v, rows(into[past_value], i, g), s.past, s.value_width);
                }
                copy(all_k.at(s.past, 0), head(into[K], s, s.kv, i, g), s.keys, s.width);
                copy(all_v.at(s.past, 0), head(into[V], s, s.kv, i, g), s.keys, s.value_width);
            }
    }

private:
    /// The gradients of a head: of q, of the mask, and what it adds to those of its k and v.
    void pull(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>& out,
              const Outputs<T>& into, const Extents& s, std::int64_t i, std::int64_t h,
              std::vector<T>& dk, std::vector<T>& dv) const {
        const auto k = rows(out[1], i, h / s.ratio()), v = rows(out[2], i, h / s.ratio());
        const auto found = scores(in, s, k, i, h);
        const auto dy = head(grads[0], s, s.heads, i, h);
        const T r = root(s), *dstage = rows(grads[3], i, h).data;
        const Matrix<const T> p{found.p.data(), s.total()};

        std::vector<T> dscores(s.stage());  // of p, and then of each stage before it
        const Matrix<T> d{dscores.data(), s.total()};
        add_product(s.queries, s.total(), s.value_width, dy, v.transposed(), d);
        add_product(s.total(), s.value_width, s.queries, p.transposed(), dy,
                    Matrix<T>{dv.data(), s.value_width});
        if (mode == 3) add(dscores, dstage);
        for (std::int64_t row = 0; row < s.queries; ++row) {
            T along = 0;
            for (std::int64_t key = 0; key < s.total(); ++key) along += p(row, key) * d(row, key);
            for (std::int64_t key = 0; key < s.total(); ++key) {
                d(row, key) = p(row, key) * (d(row, key) - along);
                if (mode == 2 && found.allowed[row * s.total() + key])
                    d(row, key) += dstage[row * s.total() + key];
                if (!into[mask].present()) continue;
                const std::int64_t cell = masked(in[mask], i, h, row, key);
                if (cell >= 0) into[mask].data()[cell] += d(row, key);
            }
        }
        if (mode == 1) add(dscores, dstage);
        for (std::int64_t at = 0; softcap != 0 && at < s.stage(); ++at) {
            const T slope = found.capped[at] / softcap;
            dscores[at] *= 1 - slope * slope;
        }
        if (mode == 0) add(dscores, dstage);

        const auto dq = head(into[Q], s, s.heads, i, h);
        const auto keys = copied(k, s.total(), s.width, r);
        const auto queries = copied(head(in[Q], s, s.heads, i, h), s.queries, s.width, r);
        for (auto& score : dscores) score *= r;
        const Matrix<const T> upstream{dscores.data(), s.total()};
        add_product(s.queries, s.width, s.total(), upstream,
                    Matrix<const T>{keys.data(), s.width}, dq);
        add_product(s.total(), s.width, s.queries, upstream.transposed(),
                    Matrix<const T>{queries.data(), s.width}, Matrix<T>{dk.data(), s.width});
    }

    static void add(std::vector<T>& to, const T* what) {
        for (std::size_t k = 0; k < to.size(); ++k) to[k] += what[k];
    }
};
D5TEST_OPERATOR(Attention)
    .input("q", "*").input("k", "*").input("v", "*").input("attn_mask", "*").optional().mask()
    .input("past_key", "*").optional().input("past_value", "*").optional()
    .input("nonpad_kv_seqlen", "*").optional().integers()
    .output("y").output("present_key").output("present_value").output("qk_matmul_output")
    .attribute("is_causal", 0).attribute("kv_num_heads", 0).attribute("q_num_heads", 0)
    .attribute("left_window_size", -1).attribute("right_window_size", -1)
    .attribute("qk_matmul_output_mode", 0).attribute("scale", -1.0).attribute("softcap", 0.0)
    .attribute("softmax_precision", 0).contiguous();
