// The layers of a decoder, with self-attention or with SSRUs.
#pragma once

#include <utility>
#include <vector>

#include "step_state.h"

namespace transduce {

// The two kinds of a decoder layer's first sub-layer. Block: its computation. State: what rows keep between steps.
// NAME: its name in messages. OPERATOR: the name of the operator of such a decoder. STATE: the name of the operator's
// input for the state. NUM_CONSTANTS: the number of the sub-layer's constants.
struct SelfAttention {
    using Block = SelfAttentionBlock;
    using State = CachePlanes;
    static constexpr const char* NAME = "self-attention";
    static constexpr const char *OPERATOR = "DecoderSteps", *STATE = "self_cache";
    static constexpr int NUM_CONSTANTS = BLOCK_CONSTANTS;
};

struct Ssru {
    using Block = SsruBlock;
    using State = RecurrentStates;
    static constexpr const char* NAME = "SSRU";
    static constexpr const char *OPERATOR = "SsruDecoderSteps", *STATE = "self_state";
    static constexpr int NUM_CONSTANTS = SSRU_CONSTANTS;
};

// One decoder layer. First: SelfAttention or Ssru.
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
