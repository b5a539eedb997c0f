//! Medians of paired samples. The machine drifts, so only what was measured side by side is compared: each pair gives one
//! ratio, and the interval says how far the median of the ratios can be trusted.

/// The middle value; 0 of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The median of `values` with its 95 % interval by bootstrap (10,000 draws of a fixed seed, so that a report can be
/// computed again from its samples).
pub(crate) fn interval(values: &[f64]) -> (f64, f64, f64) {
    const DRAWS: usize = 10_000;
    if values.is_empty() {
        return (0.0, 0.0, 0.0);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values[(state % values.len() as u64) as usize]
    };
    let mut medians: Vec<f64> = (0..DRAWS)
        .map(|_| median(&(0..values.len()).map(|_| draw()).collect::<Vec<_>>()))
        .collect();
    medians.sort_by(f64::total_cmp);
    (
        median(values),
        medians[DRAWS * 25 / 1000],
        medians[DRAWS * 975 / 1000],
    )
}
