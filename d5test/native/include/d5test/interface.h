/* What a compiled operator shows to the world: a table of C functions over tensors in the layout of
 * DLPack (https://dmlc.github.io/dlpack, version 1). No framework, no C++ type and no allocation
 * crosses it, so that one library serves every framework.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { D5_ABI = 2 };
enum { D5_MOST_DIMENSIONS = 16, D5_MOST_TENSORS = 16 };
enum { D5_OK = 0, D5_RAISED = 1, D5_UNSUPPORTED = 2, D5_FAULT = 3 };
enum { D5_CPU = 1, D5_CUDA = 2 };                       /* DLDeviceType */
enum { D5_BACKWARD = 1, D5_CONTIGUOUS = 2, D5_SHAPED = 4 }; /* it has a gradient, reads row-major
                                                              inputs only, overrides shapes() */
enum { D5_PORT_OPTIONAL = 1, D5_PORT_INTEGERS = 2, D5_PORT_MASK = 4, D5_PORT_CONSTANT = 8,
       D5_PORT_UNREAD = 16 };                           /* of a tensor that goes in or out: it may be
                                                           absent, is of int64, is of booleans or of
                                                           the operator's type, has no gradient, is
                                                           absent among the outputs of `backward` */
enum { D5_INTEGER = 0, D5_REAL = 1, D5_TEXT = 2, D5_INTEGERS = 3, D5_REALS = 4 };

typedef struct { int32_t type, id; } D5Device;          /* DLDevice */
typedef struct { uint8_t code, bits; uint16_t lanes; } D5Type; /* DLDataType */
enum { D5_INT = 0, D5_FLOAT = 2, D5_BOOL = 6 };         /* its codes: DLDataTypeCode */

typedef struct {                                        /* DLTensor; strides in elements; absent if
                                                           ndim is negative */
    void* data;
    D5Device device;
    int32_t ndim;
    D5Type dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
} D5Tensor;

typedef struct {                                        /* a scalar is a list of one */
    const char* name;
    int32_t kind, count;
    const int64_t* integers;
    const double* reals;
    const char* text;
} D5Attribute;

typedef struct {                                        /* an attribute's default, and others to try */
    D5Attribute value;
    int32_t count;
    const D5Attribute* others;
} D5Choice;

typedef struct { const char *name, *dims, *values; int32_t flags; } D5Port;

typedef struct { char* text; size_t size; } D5Message;  /* where an error is said */

/* An operator. `create` makes it with its attributes set, for tensors of `bits` bits an element; with
 * `guarded`, its buffers lie between guard zones and its outputs are poisoned. `infer` fills `ndim`
 * and `shape` (D5_MOST_DIMENSIONS of room) of the outputs, `ndim` -1 of those that are absent. Any thread may call an operator, several
 * at once too. `stream` is CUDA's, or null. Each returns a status, and says in the message why.
 */
typedef struct D5Operator {
    uint32_t abi;
    const char *name, *source;                          /* its file, as it was compiled */
    int32_t input_count, output_count, attribute_count, flags, device;
    const D5Port *inputs, *outputs;
    const D5Choice* attributes;
    int32_t (*create)(const struct D5Operator*, const D5Attribute*, int32_t count, int32_t bits,
                      int32_t guarded, void** made, D5Message);
    void (*destroy)(void*);
    int32_t (*infer)(void*, const D5Tensor* inputs, D5Tensor* outputs, D5Message);
    int32_t (*forward)(void*, const D5Tensor* inputs, const D5Tensor* outputs, void* stream,
                       D5Message);
    int32_t (*backward)(void*, const D5Tensor* grads, const D5Tensor* inputs,
                        const D5Tensor* outputs, const D5Tensor* input_grads, void* stream,
                        D5Message);
} D5Operator;

/* The one symbol of a library: the operators that its source registers. */
typedef const D5Operator* (*D5Operators)(int32_t index);

#ifdef __cplusplus
}
#endif
