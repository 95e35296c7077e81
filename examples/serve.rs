//! A program that works until it is killed, and answers whoever wants a profile of it.
//!
//!     cargo run --release --features http --example serve -- 127.0.0.1:6060

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::thread;

use flate2::{Compression, write::GzEncoder};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let server = sigprof::http::serve(address.as_deref().unwrap_or("127.0.0.1:6060"))?;
    let address = server.local_addr();
    println!("Working, and serving profiles at http://{address}/pprof/profile. Try:\n");
    println!("  google-pprof --text --seconds=5 {address}");
    println!("  curl http://{address}/pprof/cmdline");

    let program = std::fs::read(std::env::current_exe()?)?;
    thread::scope(|scope| {
        for name in ["compress", "hash"] {
            let work = if name == "compress" { compress } else { hash };
            let thread = thread::Builder::new().name(name.into());
            let program = &program;
            thread.spawn_scoped(scope, move || {
                for piece in program.chunks(64 * 1024).cycle() {
                    work(piece);
                }
            })?;
        }
        Ok(())
    })
}

#[inline(never)]
fn compress(piece: &[u8]) {
    let mut encoder = GzEncoder::new(std::io::sink(), Compression::default());
    // Into a sink, which takes everything.
    let _ = encoder.write_all(piece).and_then(|()| encoder.try_finish());
}

#[inline(never)]
fn hash(piece: &[u8]) {
    let mut hasher = DefaultHasher::new();
    piece.hash(&mut hasher);
    std::hint::black_box(hasher.finish());
}
