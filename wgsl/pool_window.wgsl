// The window of a pooling output along dimension d (0 depth, 1 height, 2 width).
// Supplied: in_at, out_at, kernel_at, stride_at, pad_at, dilation_at, ADAPTIVE.

// [first, end) before it is cut to the input. Adaptive windows cover
// floor(o * in / out) to ceil((o + 1) * in / out) and never leave the input.
fn window(o: i32, d: i32) -> vec2<i32> {
  if (ADAPTIVE) {
    let extent = in_at(d);
    let count = out_at(d);
    return vec2<i32>(o * extent / count, ((o + 1) * extent + count - 1) / count);
  }
  let first = o * stride_at(d) - pad_at(d);
  return vec2<i32>(first, first + (kernel_at(d) - 1) * dilation_at(d) + 1);
}

// (plane, depth, height, width) of the output at row-major index i.
fn output_position(i: i32) -> vec4<i32> {
  let row = i / out_at(2);
  let w = i - row * out_at(2);
  let slice = row / out_at(1);
  let h = row - slice * out_at(1);
  if (DIMS == 2) { return vec4<i32>(slice, 0, h, w); }
  let plane = slice / out_at(0);
  return vec4<i32>(plane, slice - plane * out_at(0), h, w);
}
