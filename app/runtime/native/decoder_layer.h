// The layers of a decoder, with self-attention or with SSRUs.
#pragma once

#include <utility>
#include <vector>

#include "step_state.h"

namespace transduce {

// The first sub-layer of a decoder's layers, with what its rows keep between steps. NUM_CONSTANTS: the sub-layer's
// constants.
struct SelfAttention {
    using Block = SelfAttentionBlock;
    using State = CachePlanes;
    static constexpr const char *OPERATOR = "DecoderSteps", *STATE = "self_cache";
    static constexpr int NUM_CONSTANTS = BLOCK_CONSTANTS;
};

struct Ssru {
    using Block = SsruBlock;
    using State = RecurrentStates;
    static constexpr const char *OPERATOR = "SsruDecoderSteps", *STATE = "self_state";
    static constexpr int NUM_CONSTANTS = SSRU_CONSTANTS;
};

template <class First>
struct Layer {
    static constexpr int NUM_CONSTANTS = First::NUM_CONSTANTS + 2 * BLOCK_CONSTANTS;
    typename First::Block first;
    CrossAttentionBlock cross_attention;
    FeedForwardBlock feed_forward;

    Layer(const NodeInfo& info, int index, std::vector<int64_t> aligned)
        : first(info, index),
          cross_attention(info, index + First::NUM_CONSTANTS, std::move(aligned)),
          feed_forward(info, index + First::NUM_CONSTANTS + BLOCK_CONSTANTS) {}
};

}  // namespace transduce
