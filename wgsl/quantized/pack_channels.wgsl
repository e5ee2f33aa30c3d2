// Quantized values as codes of four channels in a word: y[image, group, four, pixel].
// Channels beyond a group's last are the last again: their weights are 0.
// One invocation: one word.
// Supplied: get_x, put_y; p: pixels (of an image), wide (pixels of a row), channels and
// fours (per group), groups; x_at (offset and strides of image, channel, y, x).
fn invocation(t: i32) {
  // Unsigned, because that takes half the instructions of a signed division.
  let of_four = u32(t) / u32(p.pixels);
  let pixel = u32(t) - of_four * u32(p.pixels);
  let of_group = of_four / u32(p.fours);
  let four = i32(of_four - of_group * u32(p.fours));
  let image = of_group / u32(p.groups);
  let group = i32(of_group - image * u32(p.groups));
  let y = pixel / u32(p.wide);
  let x = pixel - y * u32(p.wide);
  let at = x_at(0) + i32(image) * x_at(1) + i32(y) * x_at(3) + i32(x) * x_at(4);
  let own = min(four * 4 + vec4<i32>(0, 1, 2, 3), vec4<i32>(p.channels - 1));
  let from_ = at + (group * p.channels + own) * x_at(2);
  let codes = vec4<i32>(get_x(from_.x), get_x(from_.y), get_x(from_.z), get_x(from_.w));
  put_y(t, bitcast<i32>(pack4xI8(codes)));
}
