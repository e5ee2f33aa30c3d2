// Library: Keys' cubic convolution with parameter a. cubic_weights: of the four taps
// around a point that is `t` past the second of them.
fn cubic_weights(t: f32, a: f32) -> vec4<f32> {
  let u = 1.0 - t;
  return vec4<f32>(
    cubic_outer(t + 1.0, a), cubic_inner(t, a), cubic_inner(u, a), cubic_outer(u + 1.0, a));
}
fn cubic_inner(x: f32, a: f32) -> f32 {
  return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
}
fn cubic_outer(x: f32, a: f32) -> f32 {
  return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
}
