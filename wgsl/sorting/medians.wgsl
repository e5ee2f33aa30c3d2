// Library: the index of the median of a sorted row, whose p.keep elements start at
// `first`.
// Supplied: get_sorted, is_missing (NaN), p.keep.

// Of all elements, in descending order up to the median: NaN comes first.
fn median_of_all(first: i32) -> i32 {
  return select(first + p.keep - 1, first, is_missing(get_sorted(first)));
}
// Of the numbers alone, in ascending order: a binary search finds how many there are.
fn median_of_numbers(first: i32) -> i32 {
  var numbers = 0;
  var end = p.keep;
  while (numbers < end) {
    let half = (numbers + end) / 2;
    let missing = is_missing(get_sorted(first + half));
    if (missing) { end = half; } else { numbers = half + 1; }
  }
  return first + max(numbers - 1, 0) / 2;
}
