// Library: the window of a fractional pooling output along dimension d of its plane. It
// starts at int((o + u) * alpha) - int(u * alpha), for the plane's sample u in [0, 1)
// and alpha = (in - kernel) / (out - 1); the last one ends where the input does. Every
// operation is rounded to the samples' type, as torch does.
// Supplied: in_at, out_at, kernel_at, alpha_at (the bits of an f32), sample(plane, d),
// rounded (to the samples' type).
fn window(plane: i32, o: i32, d: i32) -> vec2<i32> {
  var first = in_at(d) - kernel_at(d);
  if (o < out_at(d) - 1) {
    let u = sample(plane, d);
    let alpha = rounded(bitcast<f32>(alpha_at(d)));
    let at = rounded(rounded(rounded(f32(o)) + u) * alpha);
    first = i32(at) - i32(rounded(u * alpha));
  }
  return vec2<i32>(first, first + kernel_at(d));
}
