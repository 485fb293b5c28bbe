// Operators that are wrong on purpose, each in one way: y = 3 x, and what goes wrong with it.
#include <cstdlib>
#include <stdexcept>

#include <d5test/operator.h>

using namespace d5test;

template <typename T>
class Right : public CustomOperator<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = 3 * in[0][i];
    }
    void backward(const Inputs<T>& grads, const Inputs<T>&, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        for (int64_t i = 0; i < grads[0].size(); ++i) input_grads[0][i] = 3 * grads[0][i];
    }
};
D5TEST_OPERATOR(Right).input("x").output("y");

template <typename T>
class WritesBehind : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i <= in[0].size(); ++i) out[0].data()[i] = 3;
        Right<T>::forward(in, out);
    }
    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        Right<T>::backward(grads, inputs, outputs, input_grads);
    }
};
D5TEST_OPERATOR(WritesBehind).input("x").output("y");

template <typename T>
class WritesBefore : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        Right<T>::forward(in, out);
        out[0].data()[-2] = 1;
    }
};
D5TEST_OPERATOR(WritesBefore).input("x").output("y");

template <typename T>
class Unwritten : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i + 1 < in[0].size(); ++i) out[0][i] = 3 * in[0][i];
    }
};
D5TEST_OPERATOR(Unwritten).input("x").output("y");

template <typename T>
class UnwrittenGradient : public Right<T> {
public:
    void backward(const Inputs<T>& grads, const Inputs<T>&, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        for (int64_t i = 1; i < grads[0].size(); ++i) input_grads[0][i] = 3 * grads[0][i];
    }
};
D5TEST_OPERATOR(UnwrittenGradient).input("x").output("y");

template <typename T>
class WrongGradient : public Right<T> {
public:
    void backward(const Inputs<T>& grads, const Inputs<T>&, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        for (int64_t i = 0; i < grads[0].size(); ++i)
            input_grads[0][i] = (i == 1 ? T(3.001) : T(3)) * grads[0][i];
    }
};
D5TEST_OPERATOR(WrongGradient).input("x").output("y");

template <typename T>
class IgnoresStrides : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = 3 * in[0].data()[i];
    }
};
D5TEST_OPERATOR(IgnoresStrides).input("x").output("y");

// The same code, which says that it reads row-major inputs only, is right.
template <typename T>
class ReadsRows : public IgnoresStrides<T> {};
D5TEST_OPERATOR(ReadsRows).input("x").output("y").contiguous();

template <typename T>
class Leaks : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        static volatile double* kept = nullptr;
        kept = static_cast<double*>(std::malloc(100 * sizeof(double)));
        kept[0] = 1;
        Right<T>::forward(in, out);
    }
};
D5TEST_OPERATOR(Leaks).input("x").output("y");

// Memory that is asked for once, or given back, is none.
template <typename T>
class KeepsWorkspace : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        static std::vector<T> workspace;
        workspace.resize(std::max<std::size_t>(workspace.size(), in[0].size()));
        std::vector<T> passing(in[0].size() + 1000);
        Right<T>::forward(in, out);
    }
};
D5TEST_OPERATOR(KeepsWorkspace).input("x").output("y");

template <typename T>
class OverwritesInput : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        Right<T>::forward(in, out);
        if (in[0].size()) const_cast<T&>(in[0][0]) += 1;
    }
};
D5TEST_OPERATOR(OverwritesInput).input("x").output("y");

template <typename T>
class Aborts : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        if (in[0].size() > 3) std::abort();
        Right<T>::forward(in, out);
    }
};
D5TEST_OPERATOR(Aborts).input("x").output("y");

template <typename T>
class Throws : public Right<T> {
public:
    void forward(const Inputs<T>&, const Outputs<T>&) override {
        throw std::runtime_error("the moon is wrong");
    }
};
D5TEST_OPERATOR(Throws).input("x").output("y");

template <typename T>
class ReadsUnread : public Right<T> {
public:
    void backward(const Inputs<T>& grads, const Inputs<T>& in, const Inputs<T>& out,
                  const Outputs<T>& into) override {
        Right<T>::backward(grads, in, out, into);
        if (into[0].size() > 0) into[0][0] = 2 * in[0][0] * grads[0][0] + 0 * out[0][0];
    }
};
D5TEST_OPERATOR(ReadsUnread).input("x").output("y").unread();

// Wrong inside its own memory, where no guard zone is: found by --native-sanitize.
template <typename T>
class OverrunsItself : public Right<T> {
public:
    void forward(const Inputs<T>& in, const Outputs<T>& out) override {
        std::vector<T> own(in[0].size());
        T* beyond = own.data() + own.size();
        *static_cast<volatile T*>(beyond) = 1;
        Right<T>::forward(in, out);
    }
};
D5TEST_OPERATOR(OverrunsItself).input("x").output("y");
