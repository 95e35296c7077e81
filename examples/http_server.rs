//! An application of axum's that answers whoever wants a profile of it, beside its own clients.
//!
//!     cargo run --release --features http --example http_server -- 127.0.0.1:8080

use std::error::Error;
use std::io::Write;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use flate2::{Compression, write::GzEncoder};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("Compressing and sorting what is sent to it. Have it work:\n");
    println!("  while curl -s --data-binary @Cargo.lock http://{address}/compress; do :; done");
    println!("\nand see what it does meanwhile:\n");
    println!("  go tool pprof -top 'http://{address}/debug/pprof/profile?seconds=5'");
    println!("  google-pprof --text --seconds=5 {address}");
    println!("\nhttp://{address}/debug/pprof/ lists what else there is.");
    axum::serve(listener, application()).await?;
    Ok(())
}

/// The application's own routes, and the profiler's. Whoever can reach the one can ask for the
/// other: where that is anyone, `sigprof::http::Options` has a token.
pub fn application() -> Router {
    Router::new()
        .route("/compress", post(|body| work(compress, body)))
        .route("/sort", post(|body| work(sort, body)))
        .merge(sigprof::http::router())
}

/// Has one of the runtime's threads for work that takes time do it.
async fn work(work: fn(&[u8]) -> u64, body: Bytes) -> String {
    match spawn_blocking(move || work(&body)).await {
        Ok(answer) => format!("{answer}\n"),
        Err(error) => format!("{error}\n"),
    }
}

/// How many bytes are left of these.
#[inline(never)]
pub fn compress(bytes: &[u8]) -> u64 {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    compressed.map_or(0, |compressed| compressed.len() as u64)
}

/// How many different lines these bytes have.
#[inline(never)]
pub fn sort(bytes: &[u8]) -> u64 {
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines.dedup();
    lines.len() as u64
}
