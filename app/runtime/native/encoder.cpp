#include "operators.h"
namespace transduce {
OrtStatus* register_encoder(const OrtApi*, OrtDomain*) { return nullptr; }
OrtStatus* register_vocabulary(const OrtApi*, OrtDomain*) { return nullptr; }
}
