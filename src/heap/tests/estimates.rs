//! What samples stand for, beside what there was.

use super::{allocate, free, totals};
use crate::format::{Format, unsampled_in_sum};
use crate::heap::{countdown, profile, set_sample_interval, sites};
use crate::process;
use crate::profile::Profile;
use crate::random::Random;

/// Objects and bytes that a profile has of blocks of each size, and how far off the former may be
/// by chance, in standard errors.
fn estimated(sizes: &[(usize, u64)], interval: u64) -> Vec<(f64, f64)> {
    set_sample_interval(interval);
    for &(size, count) in sizes {
        for _ in 0..count {
            free(allocate(size), size);
        }
    }
    let profile = profile().unwrap();
    let of_size = |&(size, count): &(usize, u64)| {
        let samples = profile.samples().filter(|sample| {
            let is_size = |label: &crate::profile::Label| match label.value {
                crate::profile::LabelValue::Num { value, .. } => value as usize == size,
                crate::profile::LabelValue::Str(_) => false,
            };
            sample.labels.iter().any(is_size)
        });
        let objects: i64 = samples.map(|sample| sample.values[0]).sum();
        let chance = -(-(size as f64) / interval as f64).exp_m1();
        let error = (count as f64 * (1.0 - chance) / chance).sqrt();
        (objects as f64, error)
    };
    sizes.iter().map(of_size).collect()
}

#[test]
fn blocks_of_every_size_are_estimated_without_bias() {
    countdown::seed(11);
    let sizes: Vec<(usize, u64)> = [
        (1, 3_000_000),
        (24, 1_000_000),
        (512, 300_000),
        (4096, 100_000),
        (65_536, 20_000),
        (524_288, 3000),
        (4 << 20, 500),
        (64 << 20, 200),
    ]
    .into();
    for (estimate, &(size, count)) in estimated(&sizes, 65_536).into_iter().zip(&sizes) {
        let (objects, error) = estimate;
        let off = (objects - count as f64).abs();
        // A value is a whole number.
        assert!(
            off <= 3.0 * error + 1.0,
            "{size}: {objects} of {count}, ± {error}"
        );
    }
}

#[test]
fn blocks_of_mixed_sizes_are_estimated_without_bias() {
    countdown::seed(12);
    set_sample_interval(10_000);
    let random = Random::of_seed(3);
    let (mut objects, mut bytes, mut variance) = (0_i64, 0_i64, [0.0; 2]);
    for i in 0..2_000_000 {
        // Exponential, with a mean of 300 bytes; some are large.
        let share = (random.nth(2 * i) >> 11) as f64 / (1_u64 << 53) as f64;
        let scale = if random.nth_below(2 * i + 1, 1000) == 0 {
            100.0
        } else {
            1.0
        };
        let size = 1 + (-(1.0 - share).ln() * 300.0 * scale) as usize;
        free(allocate(size), size);
        objects += 1;
        bytes += size as i64;
        let chance = -(-(size as f64) / 10_000.0).exp_m1();
        variance[0] += (1.0 - chance) / chance;
        variance[1] += (1.0 - chance) / chance * (size * size) as f64;
    }
    let [all_objects, all_bytes, ..] = totals();
    let off = [all_objects - objects, all_bytes - bytes].map(|off| off as f64);
    for (off, variance) in off.into_iter().zip(variance) {
        // A value of each size is a whole number: that adds no bias, and 1 in 4 to the variance.
        let error = (variance + 4000.0 / 4.0).sqrt();
        assert!(off.abs() <= 3.0 * error, "{off} ± {error}");
    }
}

/// Allocates and frees a block, some calls deeper.
#[inline(never)]
fn allocate_below(depth: usize, size: usize) {
    match depth {
        0 => free(allocate(size), size),
        _ => allocate_below(depth - 1, size),
    }
    // The call is not the last thing that the function does.
    std::hint::black_box(());
}

#[test]
fn stacks_that_have_one_sample_each_are_estimated_without_bias() {
    countdown::seed(13);
    let (size, interval) = (400 << 10, 512 << 10);
    set_sample_interval(interval);
    let count = 4000_usize;
    for block in 0..count {
        // By stacks and by sizes.
        allocate_below(block % 100, size + block / 100 * 8192);
    }
    let (mut variance, mut bytes) = ([0.0; 2], 0);
    for block in 0..count {
        let size = size + block / 100 * 8192;
        let chance = -(-(size as f64) / interval as f64).exp_m1();
        bytes += size;
        // And what whole numbers add.
        variance[0] += (1.0 - chance) / chance + 0.25;
        variance[1] += (1.0 - chance) / chance * (size * size) as f64;
    }
    let profile = profile().unwrap();
    assert!(
        profile.samples().len() > count / 3,
        "{}",
        profile.samples().len()
    );
    for (index, truth) in [(0, count), (1, bytes)] {
        let (found, error) = (profile.total(index), variance[index].sqrt());
        let off = found as f64 - truth as f64;
        assert!(off.abs() <= 3.0 * error, "{found} of {truth} ± {error}");
    }
    // What has not changed stays the same.
    let samples = |profile: &Profile| -> Vec<_> {
        profile
            .samples()
            .map(|sample| sample.values.to_vec())
            .collect()
    };
    assert_eq!(samples(&profile), samples(&super::profile().unwrap()));
    // As text there is what was sampled, of which readers make the same but for fractions.
    let mut text = Vec::new();
    profile.write(Format::Heap, &mut text).unwrap();
    let (first, _) = std::str::from_utf8(&text)
        .unwrap()
        .split_once('\n')
        .unwrap();
    assert!(first.ends_with(&format!("@ heap_v2/{interval}")), "{first}");
    let again = Profile::read(&text).unwrap();
    for (sample, same) in profile.samples().zip(again.samples()) {
        for (value, fewer) in sample.values.iter().zip(same.values) {
            assert!((0..=1).contains(&(value - fewer)), "{sample:?} {same:?}");
        }
    }
}

/// Sizes of blocks, and how they are sampled.
struct Mix {
    name: &'static str,
    /// The size that belongs to a number which is evenly spread from 0 to 1.
    size: fn(f64) -> usize,
    interval: u64,
}

const MIXES: [Mix; 3] = [
    Mix {
        name: "uniform",
        size: |share| (share * 8192.0) as usize,
        interval: 65_536,
    },
    Mix {
        name: "exponential",
        size: |share| (-(1.0 - share).ln() * 600.0) as usize,
        interval: 8192,
    },
    Mix {
        name: "mixed",
        size: |share| match share {
            ..0.9 => 24,
            ..0.9995 => ((share - 0.9) / 0.0995 * 16_384.0) as usize,
            _ => ((share - 0.9995) / 0.0005 * (64 << 20) as f64) as usize,
        },
        interval: 512,
    },
];

/// Objects and bytes.
type Totals = [f64; 2];

/// What was allocated of each class of sizes, each twice as large as the one before, by the
/// samples of all runs so far.
fn estimates() -> [Totals; 64] {
    let mut estimates = [[0.0; 2]; 64];
    sites::each(|id, _, site| {
        let blocks = site.allocated;
        let share = Random::of_seed(5).share(id.index() as u64);
        let counts = [blocks.objects as i64, blocks.bytes as i64];
        let class = &mut estimates[site.class.ilog2() as usize];
        for (total, value) in
            class
                .iter_mut()
                .zip(unsampled_in_sum(counts, site.mean as i64, share))
        {
            *total += value as f64;
        }
    });
    estimates
}

/// The truth and the variance of its estimates, of objects and of bytes in each class.
#[derive(Clone, Copy, Default)]
struct Expected {
    truth: f64,
    variance: f64,
}

/// A run may be more than three standard errors off now and then; all of them together must not.
#[test]
fn estimates_of_many_runs_have_no_bias() {
    const RUNS: u64 = 200;
    let is_soak = process::soak() > 1.0;
    let blocks_of_run = (5_000.0 * process::soak()) as u64;
    for Mix {
        name,
        size,
        interval,
    } in MIXES
    {
        set_sample_interval(interval);
        let mut expected = [[Expected::default(); 2]; 64];
        let begin = estimates();
        let (mut last, mut far, mut all) = (begin, 0, 0);
        for run in 0..RUNS {
            // Fresh numbers in a soak.
            let random = if is_soak {
                Random::new()
            } else {
                Random::of_seed(run)
            };
            countdown::seed(random.nth(0));
            let mut of_run = [[Expected::default(); 2]; 64];
            for i in 1..=blocks_of_run {
                let share = (random.nth(i) >> 11) as f64 / (1_u64 << 53) as f64;
                // In steps, for few sites: what each stands for becomes whole numbers.
                let size = (size(share) | 15) + 1;
                free(allocate(size), size);
                let chance = -(-(size as f64) / interval as f64).exp_m1();
                let of_class = &mut of_run[size.ilog2() as usize];
                for (expected, value) in of_class.iter_mut().zip([1.0, size as f64]) {
                    expected.truth += value;
                    expected.variance += (1.0 - chance) / chance * value * value;
                }
            }
            let now = estimates();
            for (class, index) in (0..64).flat_map(|class| [(class, 0), (class, 1)]) {
                let Expected { truth, variance } = of_run[class][index];
                let off = now[class][index] - last[class][index] - truth;
                // Where the run has some 50 samples: fewer are not spread as a normal distribution.
                if truth * truth > 50.0 * variance {
                    all += 1;
                    far += usize::from(off.abs() > 3.0 * variance.sqrt() + 24.0);
                }
                expected[class][index].truth += truth;
                expected[class][index].variance += variance;
            }
            last = now;
        }
        // 27 of 10,000 in a normal distribution; more of what is spread as small numbers are.
        assert!(far * 100 <= all, "{name}: {far} of {all}");
        for index in [0, 1] {
            let mut sum = [0.0; 3];
            for class in 0..64 {
                let Expected { truth, variance } = expected[class][index];
                let off = last[class][index] - begin[class][index] - truth;
                assert!(
                    off.abs() <= 5.0 * variance.sqrt() + 24.0,
                    "{name}, 2^{class}: {off} of {truth}, ± {}",
                    variance.sqrt()
                );
                for (sum, value) in sum.iter_mut().zip([off, truth, variance]) {
                    *sum += value;
                }
            }
            let [off, truth, variance] = sum;
            let (bias, error) = (off / truth, variance.sqrt() / truth);
            process::figure!("{name}: {:+.3} %, ± {:.3} %", 100.0 * bias, 100.0 * error);
            assert!(bias.abs() <= 0.01, "{name}: {off} of {truth}");
        }
    }
}
