//! What sampled objects and bytes stand for, and which ones stand for given values.

/// What sampled objects and their bytes stand for. Each byte allocated begins a sample with
/// probability 1 / `period`, so that an object of a size is sampled with probability
/// 1 - exp(-size / `period`).
///
/// Source: google/pprof, `scaleHeapSample` in `profile/legacy_profile.go`.
pub(crate) fn unsampled(sampled: [i64; 2], period: i64) -> [i64; 2] {
    scaled(sampled, period, |value| value as i64)
}

/// As [`unsampled`], but what lies between two whole numbers becomes one of them: the higher one
/// where its fraction is more than `share`, which is above 0 and at most 1. With shares that are
/// evenly spread, sums have no bias; what [`unsampled`] cuts off is up to half of the objects where
/// each stack has one sample.
#[cfg(feature = "heap")]
pub(crate) fn unsampled_in_sum(sampled: [i64; 2], period: i64, share: f64) -> [i64; 2] {
    scaled(sampled, period, |value| {
        value as i64 + i64::from(value.fract() > share)
    })
}

fn scaled([objects, bytes]: [i64; 2], period: i64, whole: impl Fn(f64) -> i64) -> [i64; 2] {
    if objects == 0 || bytes == 0 {
        return [0, 0];
    }
    if period <= 1 {
        return [objects, bytes];
    }
    let size = bytes as f64 / objects as f64;
    let scale = 1.0 / (1.0 - (-size / period as f64).exp());
    [whole(objects as f64 * scale), whole(bytes as f64 * scale)]
}

/// Sampled objects and bytes that stand for exactly these values, if there are any. Where there are
/// several, they are of this size if any is; of a known size, they may stand for less by a fraction
/// that the values were rounded up by.
pub(super) fn sampled(values: [i64; 2], period: i64, size: Option<i64>) -> Option<[i64; 2]> {
    let is_of_size = |&[objects, bytes]: &[i64; 2]| Some(bytes / objects.max(1)) == size;
    let exact = search(values, period, size, 0);
    if size.is_none() || exact.as_ref().is_some_and(is_of_size) {
        return exact;
    }
    let near = search(values, period, size, 1);
    near.filter(is_of_size).or(exact)
}

/// Sampled objects and bytes that stand for these values, or for less than these by what was
/// `added` at most. Where there are several, they are of this size if any is.
fn search(values: [i64; 2], period: i64, size: Option<i64>, added: i64) -> Option<[i64; 2]> {
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
    // The fractions that were cut off or added move the number of objects by 2 at most.
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
            let stand_for = unsampled(found, period);
            let is_right = |i: usize| (0..=added).contains(&(values[i] - stand_for[i]));
            if !is_right(0) || !is_right(1) {
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
