"""The Mamba-2 mixer between its two products in Triton: causal convolution, scan in chunks, gated RMSNorm, and their gradients.

A peer to measure against (torch_step.py), not an engine that lockstep judges: it rounds as is usual in PyTorch, not by docs/arithmetic.md.
No kernel uses atomics, so equal inputs give equal bits. Sizes that tiles have are powers of 2; a pack is a whole number of chunks."""
import os

import torch
import triton
import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # On a CPU, for tests.
WIDENS: tl.constexpr = tl.constexpr(INTERPRETED)


def tuned(*keys):
    """Tries launches by time, once for each shape."""
    tries = [(8, 1)] if INTERPRETED else [(4, 1), (8, 1), (8, 2), (8, 3), (16, 1)]
    configs = [triton.Config({}, num_warps=warps, num_stages=stages) for warps, stages in tries]
    return triton.autotune(configs=configs, key=list(keys))


@triton.jit
def product(a, b):
    if WIDENS:  # The interpreter multiplies the codes of bf16.
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    return tl.dot(a, b)


# ---- Convolution of width W over rows of one document, then SiLU. `position`: of a row in its document. ----


@triton.jit
def tap_weight(weight, channel, inside, k, W: tl.constexpr):
    """Of the row `k` back; 0 where the width has no such tap."""
    return tl.load(weight + channel * W + (W - 1 - k), mask=inside & (k < W), other=0.0)[None, :]


@triton.jit
def tap_of(x, stride, row, channel, inside, reads, k, W: tl.constexpr):
    """Of `x` each `row`, where tap `k` reads it."""
    near = (reads & (k < W))[:, None] & inside[None, :]
    return tl.load(x + row[:, None] * stride + channel[None, :], mask=near, other=0.0).to(tl.float32)


@triton.jit
def conv_forward_kernel(x, stride, weight, bias, position, y, rows, channels, turns, W: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    channel = tl.program_id(1) * C + tl.arange(0, C)
    inside = channel < channels
    w0, w1 = tap_weight(weight, channel, inside, 0, W), tap_weight(weight, channel, inside, 1, W)
    w2, w3 = tap_weight(weight, channel, inside, 2, W), tap_weight(weight, channel, inside, 3, W)
    start = tl.load(bias + channel, mask=inside, other=0.0)[None, :].to(tl.float32)
    for turn in range(turns):
        row = (tl.program_id(0) * turns + turn) * R + tl.arange(0, R)
        here = tl.load(position + row, mask=row < rows, other=-1)
        x0 = tap_of(x, stride, row, channel, inside, here >= 0, 0, W)
        x1 = tap_of(x, stride, row - 1, channel, inside, here >= 1, 1, W)
        x2 = tap_of(x, stride, row - 2, channel, inside, here >= 2, 2, W)
        x3 = tap_of(x, stride, row - 3, channel, inside, here >= 3, 3, W)
        total = start + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
        where = (row < rows)[:, None] & inside[None, :]
        tl.store(y + row[:, None] * channels + channel[None, :], (total * tl.sigmoid(total)).to(tl.bfloat16), mask=where)


@triton.jit
def conv_slope_kernel(x, stride, weight, bias, position, dy, dz, sums, rows, channels, turns,
                      W: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """dz = dy * silu'(sum), and for each block of rows the sums over them of the gradients of weight and bias."""
    channel = tl.program_id(1) * C + tl.arange(0, C)
    inside = channel < channels
    w0, w1 = tap_weight(weight, channel, inside, 0, W), tap_weight(weight, channel, inside, 1, W)
    w2, w3 = tap_weight(weight, channel, inside, 2, W), tap_weight(weight, channel, inside, 3, W)
    start = tl.load(bias + channel, mask=inside, other=0.0)[None, :].to(tl.float32)
    of_bias = tl.zeros([R, C], tl.float32)  # Summed over rows once, at the end.
    g0, g1 = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    g2, g3 = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    for turn in range(turns):
        row = (tl.program_id(0) * turns + turn) * R + tl.arange(0, R)
        here = tl.load(position + row, mask=row < rows, other=-1)
        where = (row < rows)[:, None] & inside[None, :]
        slope = tl.load(dy + row[:, None] * channels + channel[None, :], mask=where, other=0.0).to(tl.float32)
        x0 = tap_of(x, stride, row, channel, inside, here >= 0, 0, W)
        x1 = tap_of(x, stride, row - 1, channel, inside, here >= 1, 1, W)
        x2 = tap_of(x, stride, row - 2, channel, inside, here >= 2, 2, W)
        x3 = tap_of(x, stride, row - 3, channel, inside, here >= 3, 3, W)
        total = start + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
        gate = tl.sigmoid(total)
        slope *= gate * (1 + total * (1 - gate))
        tl.store(dz + row[:, None] * channels + channel[None, :], slope.to(tl.bfloat16), mask=where)
        of_bias += slope
        g0 += slope * x0
        g1 += slope * x1
        g2 += slope * x2
        g3 += slope * x3
    place = sums + tl.program_id(0) * (W + 1) * channels + channel  # The W taps, then the bias.
    tl.store(place + W * channels, tl.sum(of_bias, 0), mask=inside)
    tl.store(place + (W - 1) * channels, tl.sum(g0, 0), mask=inside)
    if W > 1:
        tl.store(place + (W - 2) * channels, tl.sum(g1, 0), mask=inside)
    if W > 2:
        tl.store(place + (W - 3) * channels, tl.sum(g2, 0), mask=inside)
    if W > 3:
        tl.store(place + (W - 4) * channels, tl.sum(g3, 0), mask=inside)


@triton.jit
def later_reads(position, row, rows, k):
    """Whether the row `k` behind each row reads it."""
    return tl.load(position + row + k, mask=row + k < rows, other=-1) >= k


@triton.jit
def conv_input_kernel(dz, weight, position, dx, stride, rows, channels, turns, W: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    channel = tl.program_id(1) * C + tl.arange(0, C)
    inside = channel < channels
    w0, w1 = tap_weight(weight, channel, inside, 0, W), tap_weight(weight, channel, inside, 1, W)
    w2, w3 = tap_weight(weight, channel, inside, 2, W), tap_weight(weight, channel, inside, 3, W)
    for turn in range(turns):
        row = (tl.program_id(0) * turns + turn) * R + tl.arange(0, R)
        z0 = tap_of(dz, channels, row, channel, inside, later_reads(position, row, rows, 0), 0, W)
        z1 = tap_of(dz, channels, row + 1, channel, inside, later_reads(position, row, rows, 1), 1, W)
        z2 = tap_of(dz, channels, row + 2, channel, inside, later_reads(position, row, rows, 2), 2, W)
        z3 = tap_of(dz, channels, row + 3, channel, inside, later_reads(position, row, rows, 3), 3, W)
        total = w0 * z0 + w1 * z1 + w2 * z2 + w3 * z3
        where = (row < rows)[:, None] & inside[None, :]
        tl.store(dx + row[:, None] * stride + channel[None, :], total.to(tl.bfloat16), mask=where)


CONV_ROWS, CONV_CHANNELS, CONV_TURNS = 16, 64, 16  # A program's tile, and how many of them it walks.


def conv_grid(rows, channels):
    return triton.cdiv(rows, CONV_ROWS * CONV_TURNS), triton.cdiv(channels, CONV_CHANNELS)


def conv_forward(x, weight, bias, position):
    rows, channels = x.shape
    assert weight.shape[1] <= 4
    y = torch.empty(rows, channels, dtype=torch.bfloat16, device=x.device)
    conv_forward_kernel[conv_grid(rows, channels)](x, x.stride(0), weight, bias, position, y, rows, channels, CONV_TURNS,
                                                   weight.shape[1], CONV_ROWS, CONV_CHANNELS, num_warps=4)
    return y


def conv_backward(x, weight, bias, position, dy, dx):
    """Writes dx; returns the gradients of weight and bias."""
    rows, channels = x.shape
    width, grid = weight.shape[1], conv_grid(rows, channels)
    assert width <= 4
    dz = torch.empty_like(dy)
    sums = torch.empty(grid[0], width + 1, channels, dtype=torch.float32, device=x.device)
    conv_slope_kernel[grid](x, x.stride(0), weight, bias, position, dy, dz, sums, rows, channels, CONV_TURNS,
                            width, CONV_ROWS, CONV_CHANNELS, num_warps=4)
    conv_input_kernel[grid](dz, weight, position, dx, dx.stride(0), rows, channels, CONV_TURNS,
                            width, CONV_ROWS, CONV_CHANNELS, num_warps=4)
    total = sums.sum(0)
    return total[:width].t(), total[width]


# ---- Scan. S' = exp(dt A) S + dt x B', y = S C + D x, per head, from 0 at each document's first row. ----
# x, B, C are columns of `xbc`; dt and the sums `cs` of dt A within a chunk are [heads, rows]; states are [chunks, heads, P, N] in bf16.


@triton.jit
def scan_prepare_kernel(raw, stride, bias, a_log, dt, cs, rows, heads, Q: tl.constexpr, H: tl.constexpr):
    row, head = tl.program_id(0) * Q + tl.arange(0, Q), tl.program_id(1) * H + tl.arange(0, H)
    where = (head < heads)[None, :] & (row < rows)[:, None]
    x = tl.load(raw + row[:, None] * stride + head[None, :], mask=where, other=0.0).to(tl.float32)
    x += tl.load(bias + head, mask=head < heads, other=0.0)[None, :]
    step = tl.maximum(x, 0.0) + tl.log(1 + tl.exp(-tl.abs(x)))
    rate = -tl.exp(tl.load(a_log + head, mask=head < heads, other=0.0))
    place = head[None, :] * rows + row[:, None]
    tl.store(dt + place, step, mask=where)
    tl.store(cs + place, tl.cumsum(step * rate[None, :], 0), mask=where)


@triton.jit
def chunk_documents(document, chunk, Q: tl.constexpr):
    """Of each row, of the last one, and of the row before the chunk (-2: there is none)."""
    own = tl.load(document + chunk * Q + tl.arange(0, Q))
    last = tl.load(document + chunk * Q + Q - 1)
    before = tl.load(document + chunk * Q - 1, mask=chunk > 0, other=-2)
    return own, last, before


@triton.jit
def decay_of(cs, own, Q: tl.constexpr):
    """[i, j]: what is left at row i of what row j added."""
    row = tl.arange(0, Q)
    reaches = (row[:, None] >= row[None, :]) & (own[:, None] == own[None, :])
    return tl.exp(tl.where(reaches, cs[:, None] - cs[None, :], float("-inf")))


@tuned("rows", "Q", "N")
@triton.jit
def scan_cb_kernel(xbc, stride, b_column, c_column, cb, rows, groups, Q: tl.constexpr, N: tl.constexpr):
    chunk, group = tl.program_id(0), tl.program_id(1)
    row, n = chunk * Q + tl.arange(0, Q), tl.arange(0, N)
    b = tl.load(xbc + row[None, :] * stride + b_column + group * N + n[:, None])
    c = tl.load(xbc + row[:, None] * stride + c_column + group * N + n[None, :])
    place = cb + (chunk * groups + group) * Q * Q + tl.arange(0, Q)[:, None] * Q + tl.arange(0, Q)[None, :]
    tl.store(place, product(c, b).to(tl.bfloat16))


@tuned("rows", "BACKWARD", "Q", "P", "N")
@triton.jit
def scan_states_kernel(left, left_stride, right, right_stride, right_column, dt, cs, document, states, rows, heads, per_group,
                       BACKWARD: tl.constexpr, Q: tl.constexpr, P: tl.constexpr, N: tl.constexpr):
    """What a chunk alone adds to the state behind it, from x and B; or to the gradient of the one before it, from dy and C."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    row, p, n = chunk * Q + tl.arange(0, Q), tl.arange(0, P), tl.arange(0, N)
    own, last, before = chunk_documents(document, chunk, Q)
    sums = tl.load(cs + head * rows + row)
    if BACKWARD:
        scale = tl.where(own == before, tl.exp(sums), 0.0)
    else:
        end = tl.load(cs + head * rows + chunk * Q + Q - 1)
        scale = tl.where(own == last, tl.exp(tl.minimum(end - sums, 0.0)), 0.0) * tl.load(dt + head * rows + row)
    a = tl.load(left + row[None, :] * left_stride + head * P + p[:, None]).to(tl.float32) * scale[None, :]
    b = tl.load(right + row[:, None] * right_stride + right_column + head // per_group * N + n[None, :])
    place = states + ((chunk * heads + head) * P + p)[:, None] * N + n[None, :]
    tl.store(place, product(a.to(tl.bfloat16), b).to(tl.bfloat16))


@triton.jit
def pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, i, BACKWARD: tl.constexpr, Q: tl.constexpr):
    """Of the `i`-th chunk on the way: its own contribution, and what it leaves of the state."""
    chunk, there = chunks - 1 - i if BACKWARD else i, i < chunks
    place = states + (chunk * heads + head) * size + e
    end = chunk * Q + Q - 1
    own = tl.load(place, mask=there & (e < size), other=0.0)
    last = tl.load(document + end, mask=there, other=-1)
    before = tl.load(document + chunk * Q - 1, mask=there & (chunk > 0), other=-2)
    left = tl.load(cs + head * rows + end, mask=there, other=0.0)
    return own, tl.where(last == before, tl.exp(left), 0.0)


@triton.jit
def pass_store(states, state, head, e, heads, chunks, size, i, BACKWARD: tl.constexpr):
    chunk = chunks - 1 - i if BACKWARD else i
    tl.store(states + (chunk * heads + head) * size + e, state.to(tl.bfloat16), mask=(i < chunks) & (e < size))


@triton.jit
def scan_pass_kernel(states, cs, document, rows, heads, chunks, size, BACKWARD: tl.constexpr, Q: tl.constexpr, BLOCK: tl.constexpr):
    """In place: a chunk's own contribution becomes the state before the chunk, or the gradient of the state behind it. Four chunks
    are on their way from memory while the four before them are passed."""
    head, e = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros([BLOCK], tl.float32)
    a0, f0 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, 0, BACKWARD, Q)
    a1, f1 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, 1, BACKWARD, Q)
    a2, f2 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, 2, BACKWARD, Q)
    a3, f3 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, 3, BACKWARD, Q)
    for i in range(0, chunks, 4):
        b0, h0 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, i + 4, BACKWARD, Q)
        b1, h1 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, i + 5, BACKWARD, Q)
        b2, h2 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, i + 6, BACKWARD, Q)
        b3, h3 = pass_inputs(states, cs, document, head, e, rows, heads, chunks, size, i + 7, BACKWARD, Q)
        pass_store(states, state, head, e, heads, chunks, size, i, BACKWARD)
        state = a0.to(tl.float32) + f0 * state
        pass_store(states, state, head, e, heads, chunks, size, i + 1, BACKWARD)
        state = a1.to(tl.float32) + f1 * state
        pass_store(states, state, head, e, heads, chunks, size, i + 2, BACKWARD)
        state = a2.to(tl.float32) + f2 * state
        pass_store(states, state, head, e, heads, chunks, size, i + 3, BACKWARD)
        state = a3.to(tl.float32) + f3 * state
        a0, f0, a1, f1, a2, f2, a3, f3 = b0, h0, b1, h1, b2, h2, b3, h3


@tuned("rows", "Q", "P", "N")
@triton.jit
def scan_output_kernel(xbc, stride, c_column, cb, states, dt, cs, d, document, y, rows, heads, groups, per_group,
                       Q: tl.constexpr, P: tl.constexpr, N: tl.constexpr):
    chunk, head = tl.program_id(0), tl.program_id(1)
    row, p, n, local = chunk * Q + tl.arange(0, Q), tl.arange(0, P), tl.arange(0, N), tl.arange(0, Q)
    own, last, before = chunk_documents(document, chunk, Q)
    sums = tl.load(cs + head * rows + row)
    c = tl.load(xbc + row[:, None] * stride + c_column + head // per_group * N + n[None, :])
    state = tl.load(states + ((chunk * heads + head) * P + p)[None, :] * N + n[:, None])
    total = product(c, state) * tl.where(own == before, tl.exp(sums), 0.0)[:, None]
    x = tl.load(xbc + row[:, None] * stride + head * P + p[None, :]).to(tl.float32)
    mix = tl.load(cb + (chunk * groups + head // per_group) * Q * Q + local[:, None] * Q + local[None, :]).to(tl.float32)
    mix *= decay_of(sums, own, Q)
    total += product(mix.to(tl.bfloat16), (x * tl.load(dt + head * rows + row)[:, None]).to(tl.bfloat16))
    total += tl.load(d + head) * x
    tl.store(y + row[:, None] * heads * P + head * P + p[None, :], total.to(tl.bfloat16))


@tuned("rows", "Q", "P", "N")
@triton.jit
def scan_inputs_kernel(xbc, stride, b_column, c_column, cb, states, dstates, dt, cs, raw, raw_stride, bias, a_log, d, document, dy,
                       dxbc, draw, draw_stride, sums_of_chunk, rows, heads, groups, per_group,
                       Q: tl.constexpr, P: tl.constexpr, N: tl.constexpr):
    """Gradients of x and dt; of dt_bias, A_log and D summed over the chunk. What two rows exchange is added to the gradient of one
    row's sum of dt A and subtracted from the other's: equal numbers, since little is left of them."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    row, p, n, local = chunk * Q + tl.arange(0, Q), tl.arange(0, P), tl.arange(0, N), tl.arange(0, Q)
    own, last, before = chunk_documents(document, chunk, Q)
    sums, step = tl.load(cs + head * rows + row), tl.load(dt + head * rows + row)
    end = tl.load(cs + head * rows + chunk * Q + Q - 1)
    group = head // per_group
    slope = tl.load(dy + row[:, None] * heads * P + head * P + p[None, :])
    x = tl.load(xbc + row[:, None] * stride + head * P + p[None, :])
    added = (x.to(tl.float32) * step[:, None]).to(tl.bfloat16)
    mix = tl.load(cb + (chunk * groups + group) * Q * Q + local[:, None] * Q + local[None, :]).to(tl.float32) * decay_of(sums, own, Q)
    exchanged = product(slope, tl.trans(added)) * mix
    of_sum = tl.sum(exchanged, 1) - tl.sum(exchanged, 0)
    dadded = product(tl.trans(mix.to(tl.bfloat16)), slope)
    slope, x = slope.to(tl.float32), x.to(tl.float32)
    state_place = ((chunk * heads + head) * P + p)[None, :] * N + n[:, None]
    state, dstate = tl.load(states + state_place), tl.load(dstates + state_place)
    c = tl.load(xbc + row[:, None] * stride + c_column + group * N + n[None, :])
    of_sum += tl.where(own == before, tl.exp(sums), 0.0) * tl.sum(product(c, state) * slope, 1)
    b = tl.load(xbc + row[:, None] * stride + b_column + group * N + n[None, :])
    through = product(b, dstate) * tl.where(own == last, tl.exp(tl.minimum(end - sums, 0.0)), 0.0)[:, None]
    kept = step * tl.sum(x * through, 1)
    passed = tl.sum(tl.sum(dstate.to(tl.float32) * state.to(tl.float32), 1), 0)
    at_end = tl.sum(kept, 0) + tl.where(last == before, tl.exp(end), 0.0) * passed
    of_sum += tl.where(local == Q - 1, at_end, 0.0) - kept
    dadded += through
    dx = tl.load(d + head) * slope + dadded * step[:, None]
    tl.store(dxbc + row[:, None] * stride + head * P + p[None, :], dx.to(tl.bfloat16))
    rate = -tl.exp(tl.load(a_log + head))
    later = tl.cumsum(of_sum, 0, reverse=True)
    opened = tl.load(raw + row * raw_stride + head).to(tl.float32) + tl.load(bias + head)
    draw_here = (tl.sum(x * dadded, 1) + rate * later) * tl.sigmoid(opened)
    tl.store(draw + row * draw_stride + head, draw_here.to(tl.bfloat16))
    place = sums_of_chunk + chunk * 3 * heads + head
    tl.store(place, tl.sum(draw_here, 0))
    tl.store(place + heads, tl.sum(step * later, 0) * rate)
    tl.store(place + 2 * heads, tl.sum(tl.sum(slope * x, 1), 0))


@tuned("rows", "OF_C", "Q", "P", "N")
@triton.jit
def scan_groups_kernel(xbc, stride, own_column, other_column, states, dt, cs, document, dy, dxbc, rows, heads, per_group,
                       OF_C: tl.constexpr, Q: tl.constexpr, P: tl.constexpr, N: tl.constexpr):
    """The gradient of C, or of B: a group's, over its heads. `states`: before each chunk, or their gradients behind it."""
    chunk, group = tl.program_id(0), tl.program_id(1)
    row, p, n = chunk * Q + tl.arange(0, Q), tl.arange(0, P), tl.arange(0, N)
    own, last, before = chunk_documents(document, chunk, Q)
    mix, total = tl.zeros([Q, Q], tl.float32), tl.zeros([Q, N], tl.float32)
    for k in range(per_group):
        head = group * per_group + k
        sums, step = tl.load(cs + head * rows + row), tl.load(dt + head * rows + row)
        state = tl.load(states + ((chunk * heads + head) * P + p)[:, None] * N + n[None, :])
        slope = tl.load(dy + row[:, None] * heads * P + head * P + p[None, :])
        x = tl.load(xbc + row[:, None] * stride + head * P + p[None, :]).to(tl.float32)
        added = (x * step[:, None]).to(tl.bfloat16)
        decay = decay_of(sums, own, Q)
        if OF_C:
            mix += product(slope, tl.trans(added)) * decay
            factor = slope.to(tl.float32) * tl.where(own == before, tl.exp(sums), 0.0)[:, None]
        else:
            mix += product(added, tl.trans(slope)) * tl.trans(decay)
            end = tl.load(cs + head * rows + chunk * Q + Q - 1)
            factor = x * (tl.where(own == last, tl.exp(tl.minimum(end - sums, 0.0)), 0.0) * step)[:, None]
        total += product(factor.to(tl.bfloat16), state)
    other = tl.load(xbc + row[:, None] * stride + other_column + group * N + n[None, :])
    total += product(mix.to(tl.bfloat16), other)
    tl.store(dxbc + row[:, None] * stride + own_column + group * N + n[None, :], total.to(tl.bfloat16))


class Scan:
    """The scan of one layer's shape over packs of `rows` rows."""

    def __init__(self, rows, heads, head_dim, groups, state, chunk):
        self.rows, self.heads, self.p, self.groups, self.n, self.q = rows, heads, head_dim, groups, state, chunk
        self.chunks, self.per_group = rows // chunk, heads // groups
        self.b, self.c = heads * head_dim, heads * head_dim + groups * state

    def empty(self, *shape, dtype=torch.bfloat16, like):
        return torch.empty(*shape, dtype=dtype, device=like.device)

    def forward(self, xbc, raw, bias, a_log, d, document):
        """Returns y and what the backward pass needs."""
        dt, cs = (self.empty(self.heads, self.rows, dtype=torch.float32, like=xbc) for _ in range(2))
        scan_prepare_kernel[self.chunks, triton.cdiv(self.heads, 16)](raw, raw.stride(0), bias, a_log, dt, cs, self.rows, self.heads,
                                                                      self.q, 16)
        cb = self.empty(self.chunks, self.groups, self.q, self.q, like=xbc)
        scan_cb_kernel[self.chunks, self.groups](xbc, xbc.stride(0), self.b, self.c, cb, self.rows, self.groups, self.q, self.n)
        states = self.states(xbc, xbc, self.b, dt, cs, document, backward=False)
        y = self.empty(self.rows, self.heads * self.p, like=xbc)
        scan_output_kernel[self.chunks, self.heads](xbc, xbc.stride(0), self.c, cb, states, dt, cs, d, document, y, self.rows, self.heads,
                                                    self.groups, self.per_group, self.q, self.p, self.n)
        return y, (dt, cs, cb, states)

    def states(self, left, right, column, dt, cs, document, backward):
        states = self.empty(self.chunks, self.heads, self.p, self.n, like=left)
        scan_states_kernel[self.chunks, self.heads](left, left.stride(0), right, right.stride(0), column, dt, cs, document, states,
                                                    self.rows, self.heads, self.per_group, backward, self.q, self.p, self.n)
        size = self.p * self.n
        block = min(256, size)
        scan_pass_kernel[self.heads, size // block](states, cs, document, self.rows, self.heads, self.chunks, size, backward, self.q, block,
                                              num_warps=1)
        return states

    def backward(self, saved, xbc, raw, bias, a_log, d, document, dy, dxbc, draw):
        """Writes dxbc and draw; returns the gradients of dt_bias, A_log and D, [3, heads]."""
        dt, cs, cb, states = saved
        dstates = self.states(dy, xbc, self.c, dt, cs, document, backward=True)
        sums = self.empty(self.chunks, 3, self.heads, dtype=torch.float32, like=xbc)
        scan_inputs_kernel[self.chunks, self.heads](xbc, xbc.stride(0), self.b, self.c, cb, states, dstates, dt, cs, raw, raw.stride(0),
                                                    bias, a_log, d, document, dy, dxbc, draw, draw.stride(0), sums, self.rows, self.heads,
                                                    self.groups, self.per_group, self.q, self.p, self.n)
        for of_c, own, other, of_state in ((True, self.c, self.b, states), (False, self.b, self.c, dstates)):
            scan_groups_kernel[self.chunks, self.groups](xbc, xbc.stride(0), own, other, of_state, dt, cs, document, dy, dxbc, self.rows,
                                                         self.heads, self.per_group, of_c, self.q, self.p, self.n)
        return sums.sum(0)


# ---- Gated RMSNorm: out = norm by group of y silu(z), times gain. ----


@triton.jit
def gated_forward_kernel(y, z, z_stride, gain, out, rstd, eps, size, G: tl.constexpr, E: tl.constexpr):
    row, group, e = tl.program_id(0), tl.arange(0, G), tl.arange(0, E)
    inside = (e < size)[None, :] & (group >= 0)[:, None]
    place = group[:, None] * size + e[None, :]
    gate = tl.load(z + row * z_stride + place, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(y + row * G * size + place, mask=inside, other=0.0).to(tl.float32) * gate * tl.sigmoid(gate)
    scale = tl.rsqrt(tl.sum(u * u, 1) / size + eps)
    result = u * scale[:, None] * tl.load(gain + place, mask=inside, other=0.0)
    tl.store(out + row * G * size + place, result.to(tl.bfloat16), mask=inside)
    tl.store(rstd + row * G + group, scale)


@triton.jit
def gated_backward_kernel(y, z, z_stride, gain, rstd, dout, dy, dz, dz_stride, sums, rows, size, turns,
                          G: tl.constexpr, E: tl.constexpr):
    group, e = tl.arange(0, G), tl.arange(0, E)
    inside = (e < size)[None, :] & (group >= 0)[:, None]
    place = group[:, None] * size + e[None, :]
    gains = tl.load(gain + place, mask=inside, other=0.0)
    kept = tl.zeros([G, E], tl.float32)
    for turn in range(turns):
        row = tl.program_id(0) * turns + turn
        where = inside & (row < rows)
        gate = tl.load(z + row * z_stride + place, mask=where, other=0.0).to(tl.float32)
        own = tl.load(y + row * G * size + place, mask=where, other=0.0).to(tl.float32)
        slope = tl.load(dout + row * G * size + place, mask=where, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row * G + group, mask=(group >= 0) & (row < rows), other=0.0)[:, None]
        s = tl.sigmoid(gate)
        normed = own * gate * s * scale
        v = slope * gains
        du = scale * (v - normed * (tl.sum(normed * v, 1) / size)[:, None])
        kept += slope * normed
        tl.store(dy + row * G * size + place, (du * gate * s).to(tl.bfloat16), mask=where)
        tl.store(dz + row * dz_stride + place, (du * own * s * (1 + gate * (1 - s))).to(tl.bfloat16), mask=where)
    tl.store(sums + tl.program_id(0) * G * size + place, kept, mask=inside)


def gated_forward(y, z, gain, groups, eps):
    rows, width = y.shape
    out = torch.empty_like(y)
    rstd = torch.empty(rows, groups, dtype=torch.float32, device=y.device)
    size = width // groups
    gated_forward_kernel[(rows,)](y, z, z.stride(0), gain, out, rstd, eps, size, groups, triton.next_power_of_2(size), num_warps=8)
    return out, rstd


def gated_backward(y, z, gain, rstd, dout, dz):
    """Writes dz; returns the gradients of y and gain."""
    rows, width = y.shape
    groups, turns = rstd.shape[1], 16
    size, blocks = width // groups, triton.cdiv(rows, turns)
    dy = torch.empty_like(y)
    sums = torch.empty(blocks, width, dtype=torch.float32, device=y.device)
    gated_backward_kernel[(blocks,)](y, z, z.stride(0), gain, rstd, dout, dy, dz, dz.stride(0), sums, rows, size, turns, groups,
                                     triton.next_power_of_2(size), num_warps=16 if width >= 4096 else 8)
    return dy, sums.sum(0)
