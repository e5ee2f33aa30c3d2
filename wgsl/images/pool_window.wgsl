// Library: the window of a pooling output along dimension d (0 depth, 1 height, 2
// width), the same in every plane.
// Supplied: in_at, out_at, kernel_at, stride_at, pad_at, dilation_at, ADAPTIVE.

// [first, end) before it is cut to the input. Adaptive windows cover
// floor(o * in / out) to ceil((o + 1) * in / out) and never leave the input.
fn window(plane: i32, o: i32, d: i32) -> vec2<i32> {
  if (ADAPTIVE) {
    let extent = in_at(d);
    let count = out_at(d);
    return vec2<i32>(o * extent / count, ((o + 1) * extent + count - 1) / count);
  }
  let first = o * stride_at(d) - pad_at(d);
  return vec2<i32>(first, first + (kernel_at(d) - 1) * dilation_at(d) + 1);
}
