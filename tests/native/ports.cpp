// Inputs and outputs that are more than floating-point tensors: optional, integers, a mask, constant.
#include <d5test/operator.h>

using namespace d5test;

// y[i] = sum of x[i, :] where the mask has it, times weights[labels[i]]; picked: the labels, if
// they are asked for.
template <typename T>
class Weighted : public CustomOperator<T> {
    const bool picks;

    T factor(const Inputs<T>& in, int64_t i) const {
        return in[2].present() ? in[2][in.integers(1)[i]] : T(1);
    }
    T share(const Inputs<T>& in, int64_t i, int64_t k) const {
        if (!in[3].present()) return 1;
        return in.boolean(3) ? in.booleans(3)(i, k) : in[3](i, k);
    }

public:
    explicit Weighted(const Attributes& given) : picks(given.integer("picks")) {}

    Shapes shapes(const Shapes& in) const override {
        const Shape each{in[0][0]};
        return picks ? Shapes{each, each} : Shapes{each};
    }
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].shape(0); ++i) {
            T sum = 0;
            for (int64_t k = 0; k < in[0].shape(1); ++k) sum += in[0](i, k) * share(in, i, k);
            out[0][i] = sum * factor(in, i);
            if (out[1].present()) out.integers(1)[i] = in.integers(1)[i];
        }
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>&,
                  const Outputs<T>& into) override {
        for (int64_t i = 0; i < in[0].shape(0); ++i)
            for (int64_t k = 0; k < in[0].shape(1); ++k) {
                const T dy = grads[0][i] * factor(in, i);
                into[0](i, k) = dy * share(in, i, k);
                if (into[3].present()) into[3](i, k) = dy * in[0](i, k);
            }
        if (into[1].present() || into[2].present() || grads[1].present())
            throw std::logic_error("integers and what is constant have no gradient");
    }
};
D5TEST_OPERATOR(Weighted)
    .input("x", "n k").input("labels", "n", "below 2").integers()
    .input("weights", "2", "positive").optional().constant()
    .input("mask", "n k").optional().mask()
    .output("y", "n").output("picked", "n").optional().integers().attribute("picks", 0, {1});

// Wrong on purpose, each in one way.
template <typename T>
class UnwrittenIndices : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i + 1 < in[0].size(); ++i) out.integers(0)[i] = i;
    }
};
D5TEST_OPERATOR(UnwrittenIndices).input("x").output("indices").integers();

template <typename T>
class OverwritesLabels : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = in[0][i];
        const_cast<int64_t&>(in.integers(1)[0]) = 7;
    }
};
D5TEST_OPERATOR(OverwritesLabels).input("x", "n").input("labels", "n").integers().output("y", "n");

template <typename T>
class WritesBehindMask : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = in[0][i];
        const_cast<bool&>(in.booleans(1).data()[in[1].size()]) = false;
    }
};
D5TEST_OPERATOR(WritesBehindMask).input("x", "n").input("mask", "n").mask().output("y", "n");

template <typename T>
class ReadsIntegersAsNumbers : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        require(in[1].data() == nullptr, "integers are no numbers of T");
        in.integers(0);
        out[0][0] = 0;
    }
};
D5TEST_OPERATOR(ReadsIntegersAsNumbers).input("x").input("labels").integers().output("y");
