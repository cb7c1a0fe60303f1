"""The gradients of the division, row by row."""

import triton
import triton.language as tl

from lion.ops.triton.tiles import chunk_of, numbers, put_numbers, rows, there


@triton.jit
def divisors(
    out,  # Rows [B, T, H, V]
    dout,
    den,  # [B, T, H, 1]
    scale,  # [B, T, H, 1]: what dout is multiplied with for the gradient of num
    bias,  # [B, T, H, 1]: the gradient of den
    mask,  # [B, T] or None
    T,
    H,
    chunks,
    V: tl.constexpr,
    BV: tl.constexpr,
    C: tl.constexpr,
    NORM: tl.constexpr,
):
    n, _, batch, h = chunk_of(tl.program_id(0), chunks, H)
    t = n * C + tl.arange(0, C)
    here = there(mask, batch, t, T)
    ACC: tl.constexpr = den.data.dtype.element_ty
    product = tl.zeros([C], dtype=ACC)
    size = tl.zeros([C], dtype=ACC)
    for start in range(0, V, BV):
        column = start + tl.arange(0, BV)
        y = rows(out, batch, h, t, here, column, V).to(ACC)
        dy = rows(dout, batch, h, t, here, column, V).to(ACC)
        product += tl.sum(y * dy, 1)
        size += tl.sum(tl.abs(dy), 1)
    divisor = tl.where(here, numbers(den, batch, h, t, here), 1.0)
    if NORM == "max":
        factor = 1.0 / tl.maximum(tl.abs(divisor), 1.0)
        grad = tl.where(tl.abs(divisor) > 1.0, tl.where(divisor > 0, -product, product) * factor, 0.0)
    else:
        factor = 1.0 / divisor
        grad = -product * factor
    # A row that nobody uses has no gradient, whatever it was divided by.
    factor, grad = tl.where(size == 0.0, 0.0, factor), tl.where(size == 0.0, 0.0, grad)
    put_numbers(scale, batch, h, t, t < T, factor)
    put_numbers(bias, batch, h, t, t < T, grad)
