//! Shared libraries that are opened, called and closed.

use std::ffi::CString;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::compile::{as_c_string, function, library};
use crate::judge::Expected;
use crate::work::burn;
use crate::{Storm, Weather};

pub const OPENING: Storm = Storm {
    name: "opening",
    run: opening,
    expected: Expected {
        roots: &["opening"],
        calls: &[("spin", "open_and_call"), ("called_back", "call_back")],
        // The flusher sees the library some ten milliseconds after it was opened at the earliest.
        // Until then its code is known to nobody, or is taken for that of a library that lay there
        // before.
        most_truncated: 0.7,
        most_wrong: 0.4,
        // By the rules of that library a stack can lead anywhere.
        most_unreadable: 1.0,
    },
};

pub const KEEPING: Storm = Storm {
    name: "keeping",
    run: keeping,
    expected: Expected {
        roots: &["keeping"],
        calls: &[("spin", "open_and_call"), ("called_back", "call_back")],
        // As above.
        most_truncated: 0.7,
        most_wrong: 0.4,
        most_unreadable: 1.0,
    },
};

/// What each library has.
const FUNCTIONS: &str = "unsigned spin(unsigned n) { unsigned x = 1; for (unsigned i = 0; i < n; i++) x = x * 31 + i; return x; }
unsigned call_back(unsigned (*f)(void)) { volatile unsigned r = f(); return r + 1; }
";

/// The same, with exceptions, constructors and destructors.
const WITH_EXCEPTIONS: &str = r#"
#include <string>
#include <vector>
static std::vector<std::string> words{"at", "the", "start"};
extern "C" unsigned spin(unsigned n) { unsigned x = 1; for (unsigned i = 0; i < n; i++) x = x * 31 + i; return x; }
extern "C" unsigned call_back(unsigned (*f)(void)) {
    std::string name = "call_back of " + words[0];
    unsigned r = f();
    try {
        throw r;
    } catch (unsigned caught) {
        return caught + (name.empty() ? 0 : 1);
    }
}
"#;

/// For the C++ thread: throws through frames that have something to destroy.
const THROWING: &str = r#"
#include <string>
static unsigned __attribute__((noinline)) descend(unsigned depth, std::string name) {
    if (depth == 0)
        throw name;
    unsigned below = descend(depth - 1, name + '.');
    return below + name.size();
}
extern "C" unsigned throw_and_catch(unsigned depth) {
    try {
        return descend(depth, "name");
    } catch (const std::string &name) {
        return name.size();
    }
}
"#;

/// Libraries of glibc's own, and what they need; they are wherever glibc is.
const OF_THE_SYSTEM: [&str; 4] = [
    "libresolv.so.2",
    "libanl.so.1",
    "libBrokenLocale.so.1",
    "libthread_db.so.1",
];

/// Libraries that were made for the storm.
pub struct Libraries {
    small_and_large: Vec<CString>,
    /// Of a library that stays.
    pub throw_and_catch: extern "C" fn(libc::c_uint) -> libc::c_uint,
}

impl Libraries {
    pub fn compile(directory: &Path) -> Self {
        let many: String = (0..1000)
            .map(|i| {
                format!(
                    "unsigned many_{i}(unsigned n, unsigned (*f)(unsigned)) {{ unsigned r = f(n) + {i}; return f(r) ^ n; }}\n"
                )
            })
            .collect();
        let large = format!("{FUNCTIONS}{many}");
        let made = [
            library(directory, "small.c", FUNCTIONS, &[]),
            library(
                directory,
                "framed.c",
                FUNCTIONS,
                &["-fno-omit-frame-pointer"],
            ),
            library(directory, "large.c", &large, &["-O0"]),
            library(directory, "exceptions.cc", WITH_EXCEPTIONS, &["-O2"]),
        ];
        let throwing = library(directory, "throwing.cc", THROWING, &[]);
        // SAFETY: the library has the function, of this type, and lets no exception out.
        let throw_and_catch = unsafe {
            let library = libc::dlopen(as_c_string(&throwing).as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            std::mem::transmute::<*mut libc::c_void, extern "C" fn(libc::c_uint) -> libc::c_uint>(
                function(library, c"throw_and_catch"),
            )
        };
        Self {
            small_and_large: made.iter().map(|path| as_c_string(path)).collect(),
            throw_and_catch,
        }
    }
}

#[inline(never)]
extern "C" fn called_back() -> libc::c_uint {
    burn(Duration::from_micros(50));
    7
}

/// Opens a library, calls it at least once, and until a time has come, and closes it.
#[inline(never)]
fn open_and_call(path: &CString, until: Instant) {
    // SAFETY: the library's functions have these types; it is closed after use.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        assert!(!library.is_null());
        let spin = std::mem::transmute::<
            *mut libc::c_void,
            extern "C" fn(libc::c_uint) -> libc::c_uint,
        >(function(library, c"spin"));
        let call_back = std::mem::transmute::<
            *mut libc::c_void,
            extern "C" fn(extern "C" fn() -> libc::c_uint) -> libc::c_uint,
        >(function(library, c"call_back"));
        loop {
            std::hint::black_box(spin(20_000));
            assert_eq!(call_back(called_back), 8);
            if Instant::now() >= until {
                break;
            }
        }
        assert_eq!(libc::dlclose(library), 0);
    }
}

/// Libraries are closed as soon as they were called: most are gone before the flusher hears of
/// them.
#[inline(never)]
fn opening(weather: &Weather) -> u64 {
    let mut turns = 0;
    let mut libraries = weather.libraries.small_and_large.iter().cycle();
    while weather.lasts() {
        if let Some(library) = libraries.next() {
            open_and_call(library, Instant::now());
        }
        turns += 1;
    }
    turns
}

/// Libraries are kept for some ten milliseconds, and the system's are loaded beside them.
#[inline(never)]
fn keeping(weather: &Weather) -> u64 {
    let mut turns = 0_u64;
    let mut libraries = weather.libraries.small_and_large.iter().cycle();
    let of_the_system = OF_THE_SYSTEM.map(|name| CString::new(name).unwrap());
    while weather.lasts() {
        let name = &of_the_system[turns as usize % of_the_system.len()];
        // SAFETY: libraries of the C library's, whose constructors do nothing that matters here.
        let of_the_system = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if let Some(library) = libraries.next() {
            let kept = Duration::from_millis(turns * 7 % 60);
            open_and_call(library, Instant::now() + kept);
        }
        if !of_the_system.is_null() {
            // SAFETY: opened above, and not used.
            assert_eq!(unsafe { libc::dlclose(of_the_system) }, 0);
        }
        turns += 1;
    }
    turns
}
