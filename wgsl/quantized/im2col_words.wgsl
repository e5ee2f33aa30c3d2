// im2col of quantized values, as codes of four channels in a word:
//   y[group, tap, four, pixel] = x[image, channels of four, where tap is for pixel]
// Outside of x is its zero point; channels beyond the last are multiplied by weights of
// 0.
// One invocation: one pixel and tap of one group, all its channels.
// Supplied: get_x, put_y, p.padded (pixels of all images, in fours), p.pixels (of all
// images), p.channels and p.fours (per group), p.zero; kernel_at, size_at, out_at,
// stride_at, padding_at, dilation_at (y, x), x_at (offset and strides of image,
// channel, y, x).
fn invocation(t: i32) {
  let tap = t / p.padded;
  let pixel = t - tap * p.padded;
  let line = tap / kernel_at(1);
  let group = line / kernel_at(0);
  let row = min(pixel, p.pixels - 1) / out_at(1);
  let image = row / out_at(0);
  let y = (row - image * out_at(0)) * stride_at(0) - padding_at(0) +
          (line - group * kernel_at(0)) * dilation_at(0);
  let x = (min(pixel, p.pixels - 1) - row * out_at(1)) * stride_at(1) - padding_at(1) +
          (tap - line * kernel_at(1)) * dilation_at(1);
  let inside = y >= 0 && y < size_at(0) && x >= 0 && x < size_at(1);
  let plane = x_at(0) + image * x_at(1) + clamp(y, 0, size_at(0) - 1) * x_at(3) +
              clamp(x, 0, size_at(1) - 1) * x_at(4);
  for (var four = 0; four < p.fours; four++) {
    var codes = vec4<i32>(p.zero);
    if (inside) {
      for (var j = 0; j < 4; j++) {
        let channel = group * p.channels + min(four * 4 + j, p.channels - 1);
        codes[j] = get_x(plane + channel * x_at(2));
      }
    }
    put_y((tap * p.fours + four) * p.padded + pixel, bitcast<i32>(pack4xI8(codes)));
  }
}
