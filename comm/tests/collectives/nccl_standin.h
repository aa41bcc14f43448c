// Ways of the library that stands in for NCCL (nccl_standin.cpp).
#pragma once

extern "C" {

/// Nothing that the node sends from now on comes.
void nccl_standin_lose_those_of(int node);
/// The node says with all that it sends that it timed out.
void nccl_standin_gives_up(int node);
/// Streams wait from now on for those that receive what they send, as NCCL's do with what is large.
void nccl_standin_sends_wait();
/// Called by a thread whose group of messages was issued, with the number of its node; null:
/// nothing.
void nccl_standin_after_groups(void (*hook)(int node));
/// How often the library's own function was called.
int nccl_standin_calls(const char* function);
/// None of it any more.
void nccl_standin_reset();
}
