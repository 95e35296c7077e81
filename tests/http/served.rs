//! This process, served while it works.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sigprof::http::{Options, Server};

use crate::work::{burn_sixty, burn_twenty_five};

/// Two threads that work half of the time, and a server, until it is dropped.
pub struct Served {
    pub server: Server,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    pub fn new() -> Self {
        Self::with(Options::new())
    }

    pub fn with(options: Options) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let functions = [burn_sixty as fn(Duration), burn_twenty_five];
        let threads = functions.map(|burn| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    burn(Duration::from_millis(5));
                    // The rest is left to who asks for profiles, and to other tests.
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        });
        Self {
            server: options.serve("127.0.0.1:0").unwrap(),
            is_over,
            threads: threads.into(),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Whether the profiler's thread is there, under its name. The thread sets that itself, a moment
/// after a recording has begun, and is listed a moment longer than it runs: to be waited for.
pub fn is_recording() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.flatten().any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "sigprof")
    })
}

/// Waits for a state, as long as the test may take.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
