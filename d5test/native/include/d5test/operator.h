// An operator in one C++ file, for every framework:
//
//     #include <d5test/operator.h>
//
//     template <typename T>
//     class Scale : public d5test::CustomOperator<T> {
//         const T factor;
//     public:
//         Scale(const d5test::Attributes& given) : factor(given.real("factor")) {}
//         void forward(const d5test::Inputs<T>& in, const d5test::Outputs<T>& out) override {
//             for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = factor * in[0][i];
//         }
//     };
//     D5TEST_OPERATOR(Scale).input("x").output("y").attribute("factor", 2.0);
//
// It is compiled for float and for double, with no framework's header. Outputs are row-major and hold
// nothing yet; inputs have the strides that the framework gave them, unless `.contiguous()` is
// registered.
#pragma once

#include "table.h"

namespace d5test {

/// Enter an operator; its declaration is filled by what follows.
template <template <typename> class Op>
Declaration& registered(const char* name, const char* source) {
    using Base = CustomOperator<float>;
    static_assert(std::is_base_of_v<Base, Op<float>>,
                  "an operator is a template class derived from d5test::CustomOperator<T>");
    auto& entry = detail::registry().emplace_back();
    entry.name = name;
    entry.source = source;
    entry.differentiable =
        !std::is_same_v<decltype(&Op<float>::backward), decltype(&Base::backward)>;
    entry.shaped = !std::is_same_v<decltype(&Op<float>::shapes), decltype(&Base::shapes)>;
    entry.for_float = [](const detail::Entry& self, const Attributes& given) {
        return std::unique_ptr<detail::Made>(new detail::Bound<float, Op<float>>(self, given));
    };
    entry.for_double = [](const detail::Entry& self, const Attributes& given) {
        return std::unique_ptr<detail::Made>(new detail::Bound<double, Op<double>>(self, given));
    };
    return entry.declared;
}

}  // namespace d5test

extern "C" __attribute__((visibility("default"), used, weak)) const D5Operator* d5test_operator(
    int32_t index) {
    auto& entries = d5test::detail::registry();
    if (index < 0 || static_cast<std::size_t>(index) >= entries.size()) return nullptr;
    return d5test::detail::shown(entries[index]);
}

/// D5TEST_OPERATOR(Name).input("x").output("y"): in the namespace of the class, once for each.
#define D5TEST_OPERATOR(Name) \
    static ::d5test::Declaration& d5test_declared_##Name = \
        ::d5test::registered<Name>(#Name, __FILE__)
