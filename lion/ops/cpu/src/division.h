// How a token's sums become its output, and the gradient of that.
#pragma once

#include "memory.h"

namespace lion {
namespace {

// Of one head. num and den are kept times exp(-log_scale), the scale of the gates that reach the token.
template <class T>
class Division {
 public:
  Division(const Problem& p, Int b, Int h) : p_(p), b_(b), h_(h) {}

  bool with_den() const { return has_den(p_); }

  // The output is num times this.
  T factor(T den, T log_scale) const {
    switch (p_.norm) {
      case SUM:
        return 1 / den;
      case MAX:
        return 1 / std::fmax(std::fabs(den), std::exp(-log_scale));
      case NONE:
        return p_.log_gain.data ? std::exp(log_scale) : T(1);
      default:
        return 1;
    }
  }

  // The sums of token t are complete; what remains to be done to num.
  T complete(Int t, T den, T log_scale) const {
    if (with_den()) *at<T>(p_.den, b_, t, h_) = den;
    if (p_.norm == RAW && p_.log_gain.data) *at<T>(p_.log_scale, b_, t, h_) = log_scale;
    return factor(den, log_scale);
  }

  // What the gradient of the output is multiplied by to be that of num.
  T num_factor(Int t, T log_scale) const {
    return factor(p_.norm == SUM || p_.norm == MAX ? *at<T>(p_.den, b_, t, h_) : T(1), log_scale);
  }

  // The gradient of den. dout [V] is the output's; out_row [V] is scratch.
  T den_grad(Int t, T log_scale, const T* dout, T* out_row) const {
    if (p_.norm == NONE) return 0;
    if (p_.norm == RAW) return *at<T>(p_.dden, b_, t, h_);
    gather<T>(rows_of<T>(p_.out, p_, b_, h_, p_.wide_out), &t, 1, p_.V, nullptr, out_row, 0);
    T den = *at<T>(p_.den, b_, t, h_), grad = -dot(dout, out_row, p_.V) * factor(den, log_scale);
    if (p_.norm == SUM) return grad;
    return std::fabs(den) > std::exp(-log_scale) ? std::copysign(T(1), den) * grad : T(0);
  }

 private:
  const Problem& p_;
  Int b_, h_;
};

}  // namespace
}  // namespace lion
