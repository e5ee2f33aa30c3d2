// im2col of quantized values on GPUs, as codes of four channels in a word:
//   y[image, group, tap, four, pixel] = x[image, channels of four, where tap is for pixel]
// Outside of x is its zero point; channels beyond a group's last are the last again, and
// are multiplied by weights of 0. With a single tap this only packs.
// One invocation: one word.
// Supplied: get_x, put_y; p: pixels (outputs of an image), channels and fours (per
// group), groups, taps, zero; kernel_wide, out_wide, size_at, stride_at, padding_at,
// dilation_at (y, x), x_at (offset and strides of image, channel, y, x), y_at (strides
// of image, group, tap, four).
fn invocation(t: i32) {
  // Unsigned, because that takes half the instructions of a signed division.
  let of_four = u32(t) / u32(p.pixels);
  let pixel = u32(t) - of_four * u32(p.pixels);
  let of_tap = of_four / u32(p.fours);
  let four = i32(of_four - of_tap * u32(p.fours));
  let of_group = of_tap / u32(p.taps);
  let tap = of_tap - of_group * u32(p.taps);
  let image = i32(of_group / u32(p.groups));
  let group = i32(of_group) - image * p.groups;
  let row = pixel / u32(p.out_wide);
  let line = tap / u32(p.kernel_wide);
  let y = i32(row) * stride_at(0) - padding_at(0) + i32(line) * dilation_at(0);
  let x = i32(pixel - row * u32(p.out_wide)) * stride_at(1) - padding_at(1) +
          i32(tap - line * u32(p.kernel_wide)) * dilation_at(1);
  let inside = y >= 0 && y < size_at(0) && x >= 0 && x < size_at(1);
  let at = x_at(0) + image * x_at(1) + clamp(y, 0, size_at(0) - 1) * x_at(3) +
           clamp(x, 0, size_at(1) - 1) * x_at(4);
  let own = min(four * 4 + vec4<i32>(0, 1, 2, 3), vec4<i32>(p.channels - 1));
  let places = at + (group * p.channels + own) * x_at(2);
  let codes = vec4<i32>(get_x(places.x), get_x(places.y), get_x(places.z), get_x(places.w));
  put_y(image * y_at(0) + group * y_at(1) + i32(tap) * y_at(2) + four * y_at(3) +
          i32(pixel),
        bitcast<i32>(pack4xI8(select(vec4<i32>(p.zero), codes, inside))));
}
