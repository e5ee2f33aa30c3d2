// The adjoint of im2col: each pixel of y is the sum of the elements of x that im2col
// would copy it to. One pixel per invocation, over all taps.
// Supplied: get_x, put_y, T, size_at (h, w), kernel_at, blocks_at (counts), stride_at,
// padding_at, dilation_at.
fn invocation(i: i32) {
  let row = i / size_at(1);
  let x = i - row * size_at(1);
  let plane = row / size_at(0);
  let y = row - plane * size_at(0);
  var sum = T(0);
  for (var ky = 0; ky < kernel_at(0); ky += 1) {
    let sy = y + padding_at(0) - ky * dilation_at(0);
    let oy = sy / stride_at(0);
    if (sy < 0 || oy >= blocks_at(0) || oy * stride_at(0) != sy) { continue; }
    for (var kx = 0; kx < kernel_at(1); kx += 1) {
      let sx = x + padding_at(1) - kx * dilation_at(1);
      let ox = sx / stride_at(1);
      if (sx < 0 || ox >= blocks_at(1) || ox * stride_at(1) != sx) { continue; }
      let k = (plane * kernel_at(0) + ky) * kernel_at(1) + kx;
      sum += get_x((k * blocks_at(0) + oy) * blocks_at(1) + ox);
    }
  }
  put_y(i, sum);
}
