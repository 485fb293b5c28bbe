// What an operator says of itself: its inputs, outputs and attributes, by name.
#pragma once

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tensor.h"

namespace d5test {

/// An attribute's value: an integer, a real, a text, or a list of integers or of reals.
class Value {
public:
    Value(int value) : Value(static_cast<std::int64_t>(value)) {}
    Value(std::int64_t value) : kind_(D5_INTEGER), integers_{value} {}
    Value(double value) : kind_(D5_REAL), reals_{value} {}
    Value(const char* text) : kind_(D5_TEXT), text_(text) {}
    Value(std::vector<std::int64_t> values) : kind_(D5_INTEGERS), integers_(std::move(values)) {}
    Value(std::vector<double> values) : kind_(D5_REALS), reals_(std::move(values)) {}
    explicit Value(const D5Attribute& given)
        : kind_(given.kind), integers_(list(given.integers, given.count)),
          reals_(list(given.reals, given.count)), text_(given.text ? given.text : "") {}

    int kind() const { return kind_; }
    const std::vector<std::int64_t>& integers() const { return integers_; }
    const std::vector<double>& reals() const { return reals_; }
    const std::string& text() const { return text_; }

    D5Attribute shown(const char* name) const {
        const bool whole = kind_ == D5_INTEGER || kind_ == D5_INTEGERS;
        const auto count = static_cast<std::int32_t>(whole ? integers_.size() : reals_.size());
        return {name, kind_, count, integers_.data(), reals_.data(), text_.c_str()};
    }

private:
    template <typename Number>
    static std::vector<Number> list(const Number* first, std::int32_t count) {
        return first ? std::vector<Number>(first, first + count) : std::vector<Number>();
    }

    std::int32_t kind_;
    std::vector<std::int64_t> integers_;
    std::vector<double> reals_;
    std::string text_;
};

/// The attributes that an operator is made with, by the names that it declared.
class Attributes {
public:
    void set(const std::string& name, const Value& value) {
        const auto found = values_.find(name);
        if (found == values_.end()) throw Unsupported("there is no attribute " + name);
        const bool same = found->second.kind() == value.kind();
        if (same) {
            found->second = value;
        } else if (found->second.kind() == D5_REAL && value.kind() == D5_INTEGER) {
            found->second = Value(static_cast<double>(value.integers()[0]));
        } else {
            throw Unsupported("attribute " + name + " is of another type");
        }
    }
    void declare(const std::string& name, const Value& value) { values_.emplace(name, value); }

    std::int64_t integer(const std::string& name) const { return at(name, D5_INTEGER).integers()[0]; }
    double real(const std::string& name) const { return at(name, D5_REAL).reals()[0]; }
    const std::string& text(const std::string& name) const { return at(name, D5_TEXT).text(); }
    const std::vector<std::int64_t>& integers(const std::string& name) const {
        return at(name, D5_INTEGERS).integers();
    }
    const std::vector<double>& reals(const std::string& name) const {
        return at(name, D5_REALS).reals();
    }

private:
    const Value& at(const std::string& name, int kind) const {
        const auto found = values_.find(name);
        if (found == values_.end())
            throw std::logic_error("attribute \"" + name + "\" is read and not registered");
        if (found->second.kind() != kind)
            throw std::logic_error("attribute \"" + name + "\" is registered as another type");
        return found->second;
    }

    std::map<std::string, Value> values_;
};

/// A tensor that goes in or out. `dims` names its axes: "m k"; "..." stands for any leading ones, the
/// same in every tensor; "*" alone for any axes at all.
struct Port {
    Port(const char* name, const char* dims, const char* values)
        : name(name), dims(dims), values(values) {
        std::istringstream stream(dims);
        for (std::string word; stream >> word;) axes.push_back(word);
        open = !axes.empty() && axes[0] == "...";
    }
    /// The size that an axis has by its name, or -1.
    static std::int64_t number(const std::string& axis) {
        const bool digits = axis.find_first_not_of("0123456789") == std::string::npos;
        return digits ? std::stoll(axis) : -1;
    }

    std::string name, dims, values;
    std::vector<std::string> axes;
    bool open;
    std::int32_t flags = 0;
};

/// The sizes that names of axes stand for, found in the inputs and put into the outputs.
class Sizes {
public:
    /// `shape` has to live as long as this.
    void match(const Port& port, const std::int64_t* shape, std::size_t rank) {
        if (port.dims == "*") return;
        const std::size_t named = port.axes.size() - port.open;
        bool fits = port.open ? rank >= named : rank == named;
        const std::int64_t* at = shape;
        for (auto axis = port.axes.begin(); fits && axis != port.axes.end(); ++axis) {
            const std::size_t count = *axis == "..." ? rank - named : 1;
            fits = binds(*axis, at, count);
            at += count;
        }
        if (!fits) refuse(port, Shape(shape, shape + rank));
    }

    Shape shape(const Port& port) const {
        Shape found;
        for (const auto& axis : port.axes) {
            if (const auto* one = known(axis)) {
                found.insert(found.end(), one->sides, one->sides + one->count);
            } else if (const auto number = Port::number(axis); number >= 0) {
                found.push_back(number);
            } else {
                throw std::logic_error("no input has the axis \"" + axis + "\" of output " +
                                       port.name + ": override shapes()");
            }
        }
        return found;
    }

private:
    struct Named {
        const std::string* axis;
        const std::int64_t* sides;  // in the shape of an input, which lives as long
        std::size_t count;
    };

    const Named* known(const std::string& axis) const {
        for (const auto& one : named_)
            if (*one.axis == axis) return &one;
        return nullptr;
    }
    [[noreturn]] static void refuse(const Port& port, const Shape& shape) {
        throw Unsupported("input " + port.name + " has shape " + written(shape) + ", not \"" +
                          port.dims + "\" as the inputs before it have it");
    }
    bool binds(const std::string& axis, const std::int64_t* sides, std::size_t count) {
        if (const auto number = Port::number(axis); number >= 0) return *sides == number;
        if (const auto* before = known(axis))
            return std::equal(sides, sides + count, before->sides, before->sides + before->count);
        named_.push_back({&axis, sides, count});
        return true;
    }

    std::vector<Named> named_;
};

class DeclaredInput;
class DeclaredOutput;

/// An operator's declaration, filled by calls in a row after the registration macro.
class Declaration {
public:
    using Values = std::initializer_list<Value>;

    /// An input; the next in order. `values` names a regime of d5test.values: "positive".
    DeclaredInput input(const char* name, const char* dims = "...", const char* values = "");
    /// An output; the next in order.
    DeclaredOutput output(const char* name, const char* dims = "...");
    /// An attribute with its default, and other values that are to be tried.
    Declaration& attribute(const char* name, const Value& value, Values others = {}) {
        attributes.push_back({name, value, others});
        return *this;
    }
    /// The operator reads row-major inputs only: others are copied before it is called.
    Declaration& contiguous() {
        needs_contiguous = true;
        return *this;
    }

    struct Choice {
        std::string name;
        Value value;
        std::vector<Value> others;
    };

    std::deque<Port> inputs, outputs;  // deques: what is pointed at stays where it is
    std::deque<Choice> attributes;
    bool needs_contiguous = false;
};

/// A declaration whose input or output was just named: more is said of that, or it goes on.
template <typename Self>
class DeclaredPort {
public:
    DeclaredPort(Declaration& all, Port& port) : all_(all), port_(port) {}

    DeclaredInput input(const char* name, const char* dims = "...", const char* values = "") const;
    DeclaredOutput output(const char* name, const char* dims = "...") const;
    Declaration& attribute(const char* name, const Value& value,
                           Declaration::Values others = {}) const {
        return all_.attribute(name, value, others);
    }
    Declaration& contiguous() const { return all_.contiguous(); }
    operator Declaration&() const { return all_; }

    /// An input may be left out; an output is there only if `shapes` returns a shape for it (what is
    /// absent comes last).
    Self optional() const { return marked(D5_PORT_OPTIONAL); }
    /// It is of int64, whatever the operator's type is.
    Self integers() const { return marked(D5_PORT_INTEGERS | D5_PORT_CONSTANT); }

protected:
    Self marked(std::int32_t flag) const {
        port_.flags |= flag;
        return {all_, port_};
    }

private:
    Declaration& all_;
    Port& port_;
};

class DeclaredInput : public DeclaredPort<DeclaredInput> {
public:
    using DeclaredPort::DeclaredPort;

    /// It is of booleans, or of the operator's type; see `Inputs::boolean`.
    DeclaredInput mask() const { return marked(D5_PORT_MASK); }
    /// It has no gradient.
    DeclaredInput constant() const { return marked(D5_PORT_CONSTANT); }
};

class DeclaredOutput : public DeclaredPort<DeclaredOutput> {
public:
    using DeclaredPort::DeclaredPort;

    /// `backward` does not read it, and finds it absent: frameworks need not keep it until then.
    DeclaredOutput unread() const { return marked(D5_PORT_UNREAD); }
};

inline DeclaredInput Declaration::input(const char* name, const char* dims, const char* values) {
    return {*this, inputs.emplace_back(name, dims, values)};
}
inline DeclaredOutput Declaration::output(const char* name, const char* dims) {
    return {*this, outputs.emplace_back(name, dims, "")};
}
template <typename Self>
DeclaredInput DeclaredPort<Self>::input(const char* name, const char* dims,
                                        const char* values) const {
    return all_.input(name, dims, values);
}
template <typename Self>
DeclaredOutput DeclaredPort<Self>::output(const char* name, const char* dims) const {
    return all_.output(name, dims);
}

}  // namespace d5test
