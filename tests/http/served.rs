//! This process, served while it works.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sigprof::http::{Server, serve};

use crate::work::{burn_sixty, burn_twenty_five};

/// Two threads that work, and a server, until it is dropped.
pub struct Served {
    pub server: Server,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    pub fn new() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let functions = [burn_sixty as fn(Duration), burn_twenty_five];
        let threads = functions.map(|burn| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    burn(Duration::from_millis(5));
                }
            })
        });
        Self {
            server: serve("127.0.0.1:0").unwrap(),
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
