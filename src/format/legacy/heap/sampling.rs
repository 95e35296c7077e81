//! What sampled objects and bytes stand for, and which ones stand for given values.

/// What sampled objects and their bytes stand for. Each byte allocated begins a sample with
/// probability 1 / `period`, so that an object of a size is sampled with probability
/// 1 - exp(-size / `period`).
///
/// Source: google/pprof, `scaleHeapSample` in `profile/legacy_profile.go`.
pub(crate) fn unsampled([objects, bytes]: [i64; 2], period: i64) -> [i64; 2] {
    if objects == 0 || bytes == 0 {
        return [0, 0];
    }
    if period <= 1 {
        return [objects, bytes];
    }
    let size = bytes as f64 / objects as f64;
    let scale = 1.0 / (1.0 - (-size / period as f64).exp());
    [
        (objects as f64 * scale) as i64,
        (bytes as f64 * scale) as i64,
    ]
}

/// Sampled objects and bytes that stand for exactly these values, if there are any. Where there are
/// several, they are of this size if any is.
pub(super) fn sampled(values: [i64; 2], period: i64, size: Option<i64>) -> Option<[i64; 2]> {
    if values == [0, 0] {
        return Some(values);
    }
    let [objects, bytes] = values;
    if objects <= 0 || bytes <= 0 {
        return None;
    }
    let share = 1.0 - (-(bytes as f64) / objects as f64 / period as f64).exp();
    let nearest = (objects as f64 * share).round() as i64;
    let mut any = None;
    // The fractions that `unsampled` cuts off move the number of objects by 2 at most.
    for distance in [0, -1, 1, -2, 2, -3, 3] {
        let objects = nearest.saturating_add(distance);
        let guess = (bytes as f64 * share) as i64;
        if !(1..=values[0]).contains(&objects) {
            continue;
        }
        // The one is as sharp as samples are few, the other as objects are small.
        let by_bytes = first_bytes(objects, bytes, period, guess);
        let by_size = (objects as f64 * (bytes as f64 / values[0] as f64)).round() as i64;
        let near = |bytes: i64| bytes.saturating_sub(2)..=bytes.saturating_add(2);
        for sampled in near(by_bytes).chain(near(by_size)) {
            let found = [objects, sampled];
            if unsampled(found, period) != values {
                continue;
            }
            if size.is_none_or(|size| sampled / objects == size) {
                return Some(found);
            }
            any = any.or(Some(found));
        }
    }
    any
}

/// The fewest bytes of that many sampled objects that stand for at least `bytes`, searched around a
/// guess.
fn first_bytes(objects: i64, bytes: i64, period: i64, guess: i64) -> i64 {
    let stand_for = |sampled| unsampled([objects, sampled], period)[1];
    // A sampled byte more stands for half a byte more at least.
    let error = bytes.abs_diff(stand_for(guess)).min(i64::MAX as u64) as i64;
    let radius = error.saturating_mul(2).saturating_add(4);
    let (mut low, mut high) = (
        guess.saturating_sub(radius).max(1),
        guess.saturating_add(radius),
    );
    while low < high {
        let middle = low + (high - low) / 2;
        match stand_for(middle) < bytes {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}
