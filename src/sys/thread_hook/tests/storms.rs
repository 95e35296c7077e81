//! Everything at once.

use std::time::{Duration, Instant};

use super::libraries::{Library, build};
use super::work::StopOnDrop;
use super::*;

const STORM: Duration = Duration::from_secs(1);

/// Runs `f` again and again until the storm is over, and tells how often.
fn for_a_while(mut f: impl FnMut()) -> u32 {
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < STORM {
        f();
        rounds += 1;
    }
    rounds
}

extern "C" fn add_one(argument: *mut libc::c_void) -> *mut libc::c_void {
    ptr::without_provenance_mut(argument.addr() + 1)
}

#[test]
fn threads_begin_while_the_hook_comes_and_goes() {
    succeed("storms::child_in_a_storm_of_threads");
}

#[test]
#[ignore = "a child process"]
fn child_in_a_storm_of_threads() {
    let before = Words::now().values;
    let is_over = AtomicBool::new(false);
    let installed = std::thread::scope(|scope| {
        let is_over = StopOnDrop(&is_over);
        for i in [1, 2] {
            let is_over = is_over.0;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(run(add_one, i * 100), i * 100 + 1);
                }
            });
        }
        let mut is_held = false;
        for_a_while(|| {
            let hook = install();
            let (begun, _) = seen();
            is_held = !is_held;
            // Every other time until a thread has begun with it, which in a moment alone may never
            // happen.
            while is_held && seen().0 == begun {
                std::thread::yield_now();
            }
            drop(hook);
        })
    });
    println!("{installed} times installed, {:?} began and ended", seen());
    assert_eq!(seen().0, seen().1);
    assert!(seen().0 > 0);
    assert_eq!(before, Words::now().values);
}

#[test]
fn libraries_come_and_go_while_the_hook_does() {
    succeed("storms::child_in_a_storm_of_libraries");
}

#[test]
#[ignore = "a child process"]
fn child_in_a_storm_of_libraries() {
    let directory = tempfile::tempdir().unwrap();
    let options: [&[&str]; 3] = [
        &["-Wl,-z,lazy,-z,norelro"],
        &["-Wl,-z,lazy,-z,relro"],
        &["-Wl,-z,now,-z,relro"],
    ];
    let paths = options.map(|options| build(directory.path(), super::libraries::SOURCE, options));
    let before = Words::now().values;
    std::thread::scope(|scope| {
        let paths = paths.iter().flatten();
        let opening = scope.spawn(move || {
            for_a_while(|| {
                for path in paths.clone() {
                    let library = Library::open(path);
                    for _ in 0..20 {
                        assert_eq!(library.run(), 42);
                    }
                }
            })
        });
        let installed = for_a_while(|| {
            let mut hook = install();
            for _ in 0..3 {
                refresh(&mut hook);
            }
        });
        println!("{installed} times installed");
        println!("{} times opened", opening.join().unwrap());
    });
    println!("{:?} began and ended", seen());
    assert_eq!(seen().0, seen().1);
    assert_eq!(before, Words::now().values);
}
