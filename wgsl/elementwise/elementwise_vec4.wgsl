// y[4i .. 4i + 3] = program4(i), four elements per invocation; buffers are padded,
// so the last four may reach beyond the tensor.
// Supplied: program4 (a generated elementwise program), put_y4.
fn invocation(i: i32) {
  put_y4(i, program4(i));
}
