//! The allocator called by hand, so that nothing else is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::format::unsampled;
use crate::process;
use crate::random::Random;

static ALLOCATOR: Allocator = Allocator::system();

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn allocate(size: usize) -> *mut u8 {
    // SAFETY: the size is not 0.
    let block = unsafe { ALLOCATOR.alloc(layout(size)) };
    assert!(!block.is_null());
    block
}

fn free(block: *mut u8, size: usize) {
    // SAFETY: allocated with this size, and freed once.
    unsafe { ALLOCATOR.dealloc(block, layout(size)) };
}

/// Totals of the profile: objects and bytes allocated, and in use.
fn totals() -> [i64; 4] {
    let profile = profile().unwrap();
    [0, 1, 2, 3].map(|index| profile.total(index))
}

#[test]
fn where_all_blocks_are_sampled_all_are_counted() {
    set_sample_interval(1);
    let blocks: Vec<_> = (1..=100).map(allocate).collect();
    assert_eq!(totals(), [100, 5050, 100, 5050]);
    for (block, size) in blocks.iter().zip(1..=50) {
        free(*block, size);
    }
    assert_eq!(totals(), [100, 5050, 50, 3775]);
    // Beyond what is sampled now, blocks are still counted as freed.
    set_sample_interval(0);
    for (block, size) in blocks.iter().zip(1..).skip(50) {
        free(*block, size);
    }
    free(allocate(77), 77);
    assert_eq!(totals(), [100, 5050, 0, 0]);
}

#[test]
fn a_block_that_is_reallocated_is_one_of_its_new_size() {
    set_sample_interval(1);
    let block = allocate(100);
    // SAFETY: the block has this layout, and the new size is not 0.
    let moved = unsafe { ALLOCATOR.realloc(block, layout(100), 1 << 20) };
    assert_eq!(totals(), [2, 100 + (1 << 20), 1, 1 << 20]);
    // SAFETY: as above; no memory is that large.
    let refused = unsafe { ALLOCATOR.realloc(moved, layout(1 << 20), isize::MAX as usize - 7) };
    assert!(refused.is_null());
    assert_eq!(totals(), [2, 100 + (1 << 20), 1, 1 << 20]);
    set_sample_interval(0);
    // SAFETY: as above.
    let moved = unsafe { ALLOCATOR.realloc(moved, layout(1 << 20), 10) };
    assert_eq!(totals(), [2, 100 + (1 << 20), 0, 0]);
    free(moved, 10);
}

#[test]
fn what_the_allocator_refuses_is_not_counted() {
    set_sample_interval(1);
    let huge = layout(isize::MAX as usize - 7);
    // SAFETY: the layout's size is not 0.
    unsafe {
        assert!(ALLOCATOR.alloc(huge).is_null());
        assert!(ALLOCATOR.alloc_zeroed(huge).is_null());
    }
    free(allocate(1), 1);
    assert_eq!(totals(), [1, 1, 0, 0]);
}

#[test]
fn blocks_keep_their_layout_and_content() {
    set_sample_interval(1);
    for align in [1, 16, 4096, 1 << 21] {
        let layout = Layout::from_size_align(3 * align, align).unwrap();
        // SAFETY: the layout's size is not 0; the blocks are as long, and freed once.
        unsafe {
            let zeroed = ALLOCATOR.alloc_zeroed(layout);
            assert_eq!(zeroed.addr() % align, 0);
            assert!((0..layout.size()).all(|i| *zeroed.add(i) == 0));
            ptr::write_bytes(zeroed, 7, layout.size());
            let larger = ALLOCATOR.realloc(zeroed, layout, 5 * align);
            assert_eq!(larger.addr() % align, 0);
            assert!((0..layout.size()).all(|i| *larger.add(i) == 7));
            let layout = Layout::from_size_align(5 * align, align).unwrap();
            ALLOCATOR.dealloc(larger, layout);
        }
    }
    assert_eq!(totals()[2..], [0, 0]);
}

#[test]
fn a_block_that_was_never_seen_can_be_freed() {
    set_sample_interval(1);
    let kept = allocate(64);
    // SAFETY: the sizes are not 0, and blocks of one allocator go back to it.
    unsafe {
        for _ in 0..100 {
            // Some on the page of one that is sampled.
            let foreign = System.alloc(layout(64));
            ALLOCATOR.dealloc(foreign, layout(64));
        }
    }
    assert_eq!(totals(), [1, 64, 1, 64]);
    free(kept, 64);
}

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
        // Fractions of objects are cut off where the values are made.
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
        // And less than an object of each size, which is cut off.
        assert!(
            off.abs() <= 3.0 * variance.sqrt() + 4000.0,
            "{off} ± {}",
            variance.sqrt()
        );
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
    sites::each(|_, site| {
        let blocks = site.allocated;
        let counts = [blocks.objects as i64, blocks.bytes as i64];
        let class = &mut estimates[site.class.ilog2() as usize];
        for (total, value) in class.iter_mut().zip(unsampled(counts, site.mean as i64)) {
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
                // In steps, for few sites: what each stands for is cut off to whole numbers.
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
                    far += usize::from(off.abs() > 3.0 * variance.sqrt() + 64.0);
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
                    off.abs() <= 5.0 * variance.sqrt() + 64.0,
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

#[test]
fn no_sample_is_left_when_everything_is_freed_by_others() {
    set_sample_interval(65_536);
    let blocks_each = 500_000;
    let (send, receive) = std::sync::mpsc::channel::<(usize, usize)>();
    let receive = &std::sync::Mutex::new(receive);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let send = send.clone();
            scope.spawn(move || {
                let random = Random::of_seed(thread);
                for i in 0..blocks_each {
                    let size = 1 + random.nth_below(i, 2000) as usize;
                    send.send((allocate(size).expose_provenance(), size))
                        .unwrap();
                }
            });
        }
        drop(send);
        for _ in 0..4 {
            scope.spawn(move || {
                loop {
                    let next = receive.lock().unwrap().recv();
                    let Ok((block, size)) = next else { break };
                    free(ptr::with_exposed_provenance_mut(block), size);
                }
            });
        }
    });
    let [objects, _, in_use, bytes_in_use] = totals();
    assert!(objects > 1_500_000, "{objects}");
    assert_eq!([in_use, bytes_in_use], [0, 0]);
}

/// Works a little with the allocator, in a child that has no profile, and ends.
fn works_without_a_profile() -> ! {
    // SAFETY: it ends this process alone, and within a time.
    unsafe { libc::alarm(60) };
    (1..1000).for_each(|size| free(allocate(size), size));
    let is_refused = profile().is_err_and(|error| error.to_string().contains("forked"));
    // SAFETY: as above.
    unsafe { libc::_exit(i32::from(!is_refused)) }
}

fn ends_well(child: libc::pid_t) -> bool {
    let mut status = -1;
    // SAFETY: the place for the status outlives the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    ended == child && status == 0
}

#[test]
fn a_child_of_a_handler_that_interrupted_an_allocation_has_no_profile() {
    /// Children to be made, as they are made.
    static CHILDREN: [AtomicI32; 20] = [const { AtomicI32::new(0) }; 20];
    static MADE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn forks(_signal: libc::c_int) {
        let made = MADE.load(Ordering::Relaxed);
        // Only where the profile is at work, which allocates nothing once its tables are made: the
        // C library's own locks are not those that are tested.
        if countdown::is_inside() && made < CHILDREN.len() {
            // SAFETY: the child works with what a forked child may, and ends.
            match unsafe { libc::fork() } {
                0 => works_without_a_profile(),
                child => CHILDREN[made].store(child, Ordering::Relaxed),
            }
            MADE.store(made + 1, Ordering::Relaxed);
        }
    }
    set_sample_interval(1);
    (0..1000).for_each(|_| free(allocate(100), 100));
    // SAFETY: a handler of its kind for a signal that nobody else uses here.
    unsafe { libc::signal(libc::SIGUSR1, forks as extern "C" fn(libc::c_int) as usize) };
    // SAFETY: it has no preconditions.
    let this = unsafe { libc::pthread_self() };
    let (mut pairs, is_done) = (1000, || MADE.load(Ordering::Relaxed) == CHILDREN.len());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                // SAFETY: the thread is the one that waits for this one.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        while !is_done() {
            free(allocate(100), 100);
            pairs += 1;
        }
    });
    for child in &CHILDREN {
        assert!(ends_well(child.load(Ordering::Relaxed)));
    }
    assert_eq!(totals(), [pairs, 100 * pairs, 0, 0]);
}

#[test]
fn a_child_that_the_c_library_has_not_forked_has_no_profile() {
    set_sample_interval(1);
    let block = allocate(100);
    // SAFETY: as `fork`, without the C library.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => {
            free(block, 100);
            works_without_a_profile()
        }
        child => assert!(ends_well(child as libc::pid_t)),
    }
    assert_eq!(totals(), [1, 100, 1, 100]);
    free(block, 100);
}

#[test]
fn memory_that_runs_out_is_counted_as_far_as_it_went() {
    set_sample_interval(1);
    const SIZE: usize = 1 << 20;
    let mut blocks = Vec::with_capacity(1000);
    let limit = |bytes: u64| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit outlives the call.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        assert_eq!(set, 0);
    };
    let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
    limit((pages << 12) + (64 << 20));
    while blocks.len() < 1000 {
        // SAFETY: the size is not 0.
        let block = unsafe { ALLOCATOR.alloc(layout(SIZE)) };
        if block.is_null() {
            break;
        }
        blocks.push(block);
    }
    limit(libc::RLIM_INFINITY);
    let count = blocks.len() as i64;
    assert!((1..1000).contains(&count));
    let [objects, _, in_use, _] = totals();
    // Where there is no memory for a sample, it is left out.
    assert_eq!(objects, in_use);
    assert!((1..=count).contains(&objects), "{objects} of {count}");
    blocks.into_iter().for_each(|block| free(block, SIZE));
    assert_eq!(totals()[2..], [0, 0]);
}
