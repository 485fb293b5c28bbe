// What authors write with integers, masks and what is optional: an embedding, a softmax under a mask,
// a normalisation. The references stand in mixed.py; what is wrong on purpose comes after what is right.
#include <algorithm>
#include <cmath>

#include <d5test/operator.h>

using namespace d5test;

// y[i] = table[indices[i]].
template <typename T>
class Embedding : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        const auto& table = in[0];
        const auto indices = in.integers(1);
        const int64_t d = table.shape(1);
        for (int64_t i = 0; i < indices.size(); ++i)
            for (int64_t k = 0; k < d; ++k) out[0][i * d + k] = table(indices[i], k);
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>&,
                  const Outputs<T>& into) override {
        const auto& table = into[0];
        const auto indices = in.integers(1);
        const int64_t d = table.shape(1);
        for (int64_t i = 0; i < table.size(); ++i) table[i] = 0;
        for (int64_t i = 0; i < indices.size(); ++i)
            for (int64_t k = 0; k < d; ++k) added(table(indices[i], k), grads[0][i * d + k]);
    }
    virtual void added(T& slope, T dy) const { slope += dy; }
};
D5TEST_OPERATOR(Embedding)
    .input("table", "5 d").input("indices", "...", "below 5").integers().output("y", "... d").unread();

// An index that comes twice keeps the last gradient alone.
template <typename T>
class LastOfEach : public Embedding<T> {
    void added(T& slope, T dy) const override { slope = dy; }
};
D5TEST_OPERATOR(LastOfEach)
    .input("table", "5 d").input("indices", "...", "below 5").integers().output("y", "... d").unread();

// y = e^(s - m) / sum of e^(s - m) over what the mask keeps; s = x, or x + mask where it is of numbers.
template <typename T>
class MaskedSoftmax : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        const auto &x = in[0], &y = out[0];
        const int64_t count = x.rank() ? x.shape(-1) : 1;
        for (int64_t first = 0; first < x.size(); first += count) {
            T m = -INFINITY, sum = 0;
            for (int64_t i = first; i < first + count; ++i)
                if (score(in, i) > m || std::isnan(score(in, i))) m = score(in, i);
            for (int64_t i = first; i < first + count; ++i)
                sum += y[i] = keeps(in, i) ? std::exp(score(in, i) - m) : T(0);
            for (int64_t i = first; i < first + count; ++i) y[i] /= sum;
        }
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>& outputs,
                  const Outputs<T>& into) override {
        const auto &dy = grads[0], &y = outputs[0];
        const int64_t count = y.rank() ? y.shape(-1) : 1;
        for (int64_t first = 0; first < y.size(); first += count) {
            T sum = 0;
            for (int64_t i = first; i < first + count; ++i) sum += dy[i] * y[i];
            for (int64_t i = first; i < first + count; ++i) {
                into[0][i] = y[i] * (dy[i] - sum);
                if (into[1].present()) into[1][i] = into[0][i];
            }
        }
        require(into[1].present() == (in[1].present() && !in.boolean(1)),
                "a mask has a gradient if it is of numbers");
    }
    virtual bool keeps(const Inputs<T>& in, int64_t i) const {
        return !in[1].present() || !in.boolean(1) || in.booleans(1)[i];
    }

private:
    static T score(const Inputs<T>& in, int64_t i) {
        return in[1].present() && !in.boolean(1) ? in[0][i] + in[1][i] : in[0][i];
    }
};
D5TEST_OPERATOR(MaskedSoftmax).input("x", "n k").input("mask", "n k").optional().mask()
    .output("y", "n k");

template <typename T>
class IgnoresMask : public MaskedSoftmax<T> {
    bool keeps(const Inputs<T>&, int64_t) const override { return true; }
};
D5TEST_OPERATOR(IgnoresMask).input("x", "n k").input("mask", "n k").optional().mask()
    .output("y", "n k");

// y = (x - mean) / sqrt(var + 1/8) scale + bias, by row; and each row's mean and the place of its
// largest element, if `tells` asks for them.
template <typename T>
class Normalised : public CustomOperator<T> {
    const int64_t tells;

    struct Row {
        Row(const Tensor<const T>& x, int64_t i) : k(x.shape(1)) {
            for (int64_t j = 0; j < k; ++j) mean += x(i, j) / T(k);
            for (int64_t j = 0; j < k; ++j) var += (x(i, j) - mean) * (x(i, j) - mean) / T(k);
            deviation = std::sqrt(var + T(0.125));
        }
        const int64_t k;
        T mean = 0, var = 0, deviation = 0;
    };

public:
    explicit Normalised(const Attributes& given) : tells(given.integer("tells")) {}

    Shapes shapes(const Shapes& in) const override {
        require(in[1] == Shape{in[0][1]} && (in[2].empty() || in[2] == in[1]), "one for each column");
        const Shape each{in[0][0]};
        return tells ? Shapes{in[0], each, each} : Shapes{in[0]};
    }
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        const auto &x = in[0], &scale = in[1], &bias = in[2];
        for (int64_t i = 0; i < x.shape(0); ++i) {
            const Row row(x, i);
            int64_t largest = 0;
            for (int64_t j = 0; j < row.k; ++j) {
                out[0](i, j) = (x(i, j) - row.mean) / row.deviation * scale[j];
                if (bias.present()) out[0](i, j) += bias[j];
                if (x(i, j) > x(i, largest)) largest = j;
            }
            if (out[1].present()) out[1][i] = row.mean;
            if (out[2].present()) out.integers(2)[i] = largest;
        }
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>& out,
                  const Outputs<T>& into) override {
        const auto &dy = grads[0], &x = in[0], &scale = in[1];
        require(!out[0].present(), "y is kept by nobody");
        for (int64_t i = 0; i < out[1].size(); ++i)
            require(out[1][i] == Row(x, i).mean, "what is read keeps its place");
        require(!grads[2].present(), "integers have no gradient");
        for (int64_t k = 1; k < 3; ++k)
            for (int64_t j = 0; j < into[k].size(); ++j) into[k][j] = 0;
        for (int64_t i = 0; i < x.shape(0); ++i) {
            const Row row(x, i);
            T along = 0, flat = 0;
            for (int64_t j = 0; j < row.k; ++j) {
                const T normal = (x(i, j) - row.mean) / row.deviation, dz = dy(i, j) * scale[j];
                along += dz * normal / T(row.k);
                flat += dz / T(row.k);
                into[1][j] += dy(i, j) * normal;
                if (into[2].present()) into[2][j] += of_bias(dy(i, j));
            }
            for (int64_t j = 0; j < row.k; ++j) {
                const T normal = (x(i, j) - row.mean) / row.deviation;
                into[0](i, j) = (dy(i, j) * scale[j] - flat - normal * along) / row.deviation;
                if (grads[1].present()) into[0](i, j) += grads[1][i] / T(row.k);
            }
        }
    }
    virtual T of_bias(T dy) const { return dy; }
};
D5TEST_OPERATOR(Normalised)
    .input("x", "n k").input("scale", "k").input("bias", "k").optional()
    .output("y", "n k").unread().output("mean", "n").optional()
    .output("largest", "n").optional().integers().attribute("tells", 0, {1});

template <typename T>
class ForgetsBias : public Normalised<T> {
    using Normalised<T>::Normalised;
    T of_bias(T) const override { return 0; }
};
D5TEST_OPERATOR(ForgetsBias)
    .input("x", "n k").input("scale", "k").input("bias", "k").optional()
    .output("y", "n k").unread().output("mean", "n").optional()
    .output("largest", "n").optional().integers().attribute("tells", 0, {1});
