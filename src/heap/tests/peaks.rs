//! The peak, and what led there.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::sites::Blocks;
use super::*;
use crate::process;

/// Bytes in use at the peak, and by which the use has grown.
fn peak_and_growth() -> [i64; 2] {
    [peak().unwrap().total(1), growth().unwrap().total(1)]
}

#[test]
fn the_peak_has_what_was_in_use_when_it_was_the_most() {
    set_sample_interval(1);
    let first = allocate(1000);
    let second = allocate(500);
    free(first, 1000);
    assert_eq!(peak_and_growth(), [1500, 1500]);
    // As much as before is no new peak, and one byte more is.
    let third = allocate(1000);
    assert_eq!(peak().unwrap().total(0), 2);
    let sizes = |profile: &Profile| {
        let mut values: Vec<_> = profile.samples().map(|s| s.values.to_vec()).collect();
        values.sort();
        values
    };
    let fourth = allocate(1);
    let fifth = allocate(2000);
    free(fifth, 2000);
    free(third, 1000);
    free(second, 500);
    free(fourth, 1);
    let peak_now = peak().unwrap();
    assert_eq!(
        sizes(&peak_now),
        [[1, 1], [1, 500], [1, 1000], [1, 2000]].map(Vec::from)
    );
    let growth_now = growth().unwrap();
    assert_eq!(
        sizes(&growth_now),
        [[1, 1], [1, 500], [1, 1000], [1, 2000]].map(Vec::from)
    );
    assert_eq!(totals()[2..], [0, 0]);
    assert_eq!(peak_and_growth(), [3501, 3501]);
}

#[test]
fn who_reads_the_peak_reads_one_while_others_come() {
    set_sample_interval(1);
    const BLOCKS: usize = 2000;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let grower = scope.spawn(|| {
            // Sites that take turns: at each moment blocks of one size alone are in use, more of
            // them each time. A peak that is read in parts has blocks of several.
            let mut round = 1;
            while !is_over.load(Ordering::Relaxed) {
                let size = 1 + round % BLOCKS;
                let count = 1 + round / 4;
                let blocks: Vec<_> = (0..count).map(|_| allocate(size)).collect();
                blocks.into_iter().for_each(|block| free(block, size));
                round += 1;
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut last, mut seen) = (0, 0);
                    while seen < 40 {
                        let mut at_peak = Vec::new();
                        let reader = peak::Reader::new();
                        sites::each(|_, _, site| {
                            let blocks = reader.at_peak(&site.kept, site.in_use());
                            if blocks.objects > 0 {
                                at_peak.push(blocks);
                            }
                        });
                        drop(reader);
                        // Of one size: not all of the same stack, where one was cut short.
                        let size = |blocks: &Blocks| blocks.bytes / blocks.objects;
                        let is_one = at_peak.windows(2).all(|two| size(&two[0]) == size(&two[1]));
                        assert!(is_one, "{at_peak:?}");
                        let bytes = at_peak.iter().map(|blocks| blocks.bytes).sum();
                        assert!(bytes >= last, "{bytes} after {last}");
                        seen += u32::from(bytes > last);
                        last = bytes;
                    }
                })
            })
            .collect();
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        grower.join().unwrap();
        read.into_iter().for_each(|read| read.unwrap());
    });
    let [peak, growth] = peak_and_growth();
    assert_eq!(peak, growth);
}

#[test]
fn the_peak_is_estimated_as_what_is_in_use_is() {
    const INTERVAL: u64 = 8192;
    set_sample_interval(INTERVAL);
    for seed in 1..=5 {
        countdown::seed(seed);
        let random = Random::of_seed(seed);
        let mut draws = (0..).map(|i| random.nth(i));
        let mut blocks: Vec<(*mut u8, usize)> = Vec::new();
        let (mut bytes, mut variance) = (0.0, 0.0);
        let (mut most, mut error_at_most) = (0.0, 0.0);
        // Higher each time, so that each run has a peak of its own.
        let height = 8000 * seed as usize;
        for target in [height / 2, 100, height, 1000, height / 3 * 2, 0] {
            while blocks.len() != target {
                let is_growing = blocks.len() < target;
                let is_against = draws.next().unwrap() % 4 == 0 && !blocks.is_empty();
                let draw = draws.next().unwrap();
                if is_growing != is_against {
                    let share = (draw >> 11) as f64 / (1_u64 << 53) as f64;
                    let size = 16 + (-(1.0 - share).ln() * 600.0) as usize / 16 * 16;
                    blocks.push((allocate(size), size));
                    let chance = -(-(size as f64) / INTERVAL as f64).exp_m1();
                    bytes += size as f64;
                    variance += (1.0 - chance) / chance * (size * size) as f64;
                } else {
                    let place = draw as usize % blocks.len();
                    let (block, size) = blocks.swap_remove(place);
                    free(block, size);
                    let chance = -(-(size as f64) / INTERVAL as f64).exp_m1();
                    bytes -= size as f64;
                    variance -= (1.0 - chance) / chance * (size * size) as f64;
                }
                if bytes > most {
                    (most, error_at_most) = (bytes, variance.sqrt());
                }
            }
        }
        let [peak, growth] = peak_and_growth().map(|bytes| bytes as f64);
        process::figure!("{peak} of {most} bytes, ± {error_at_most}");
        assert!(
            (peak - most).abs() <= 3.0 * error_at_most,
            "{peak} of {most}, ± {error_at_most}"
        );
        // One is of the mean of each class of sizes, and cuts off fractions of bytes.
        assert!((growth - peak).abs() <= 0.001 * peak, "{growth}, {peak}");
    }
}
