//! The pprof endpoints: a running process answers `go tool pprof`, `google-pprof` and their like.
//!
//! [`serve`] listens on a thread of its own; a program that serves HTTP anyway mounts [`router`] or
//! [`Endpoints`].
//!
//! ```no_run
//! # fn main() -> sigprof::Result<()> {
//! let _server = sigprof::http::serve("127.0.0.1:6060")?;
//! // … the program's work …
//! # Ok(())
//! # }
//! ```
//!
//! # Endpoints
//!
//! | path | answer |
//! |---|---|
//! | `/debug/pprof/` | a page that lists what there is |
//! | `/debug/pprof/profile?seconds=30` | the CPU time of the next seconds, from 1 to 300, as profile.proto with names, in gzip; with `debug=1` the functions that cost the most, as text |
//! | `/debug/pprof/goroutine`, `/debug/pprof/threadcreate` | a sample for each thread that lives now; with `debug=1` as text |
//! | `/debug/pprof/heap`, `/debug/pprof/allocs` | where the program's allocator is a `sigprof::heap::Allocator` (feature `heap`): all that was allocated and what is in use, of which viewers show the latter or the former; with `seconds=30` what is allocated in the next seconds, and what is in use at their end; with `debug=1` the functions that have or took the most, as text |
//! | `/debug/pprof/peak`, `/debug/pprof/growth` | there, too: what was in use when it was the most; and the allocations that made it more than it had ever been, with `seconds=30` those in the next seconds |
//! | `/debug/pprof/lifetimes` | there, too: how long the memory lived that is freed, and what of it was temporary |
//! | `/pprof/heap`, `/pprof/growth` | `heap` and `growth` as gperftools' text |
//! | `/debug/pprof/block`, `/debug/pprof/mutex` | where the program watches its locks (`sigprof::contention::watch_process`, feature `contention`): who has waited for locks, and who has kept others waiting; with `seconds=30` in the next seconds; with `debug=1` as text; with `idle=1` also those for condition variables and of parked threads |
//! | `/debug/pprof/contention`, `/pprof/contention` | `block` by gperftools' name, and as its text |
//! | `/debug/pprof/allocs`, `/debug/pprof/block`, `/debug/pprof/mutex` where there is no such thing | profiles without samples, for scrapers that ask for them unless they are told not to |
//! | `/pprof/profile?seconds=30` | the CPU time of the next seconds as gperftools' CPU profile |
//! | `…/symbol` | `GET`: whether symbols can be had. `POST` of `0x1000+0x1fff+…`: a line `0x1000`, tab, symbol for each address that has one |
//! | `…/cmdline` | the program and its arguments: a line each, or after `/debug` with NULs between |
//!
//! `profile` also takes `hz`, how often to sample, from 1 to 10,000 times in a second of CPU time
//! (100 unless the request says otherwise), and `wall=1` for elapsed time instead of CPU time.
//! `goroutine`, `threadcreate` and profiles without samples accept `seconds`, which scrapers add to
//! all that they ask for; it changes nothing there, but one out of its range is refused.
//!
//! Every profile takes `format`, what the answer is sent as, whichever path it is asked for by:
//!
//! | `format` | |
//! |---|---|
//! | `proto` | profile.proto with names, in gzip |
//! | `legacy` | gperftools' CPU profile, or its text of a heap or of contention, where the path is of one of these |
//! | `folded` | collapsed stacks, for flame graphs |
//! | `gmon` | gprof's profile data, of `profile` and of the main executable alone |
//! | `top` | the functions that cost the most, as `pprof -top` prints them |
//!
//! Requests for profiles that overlap share one recording, and a recording that the program itself
//! runs is shared, too. Each request gets what happened within its own time, at its own rate or,
//! where the program's recording has a lower one, at that; the profile's period says which. One
//! kind of time is recorded at once: whoever asks for the other meanwhile gets status 503 and a
//! sentence. Where the program itself starts a recording of the other kind, windows that are open
//! miss what happens until it ends: CPU time that they miss is in their profiles, as `[unsampled]`.
//!
//! The head of a profile's answer is sent when its time begins, since clients do not wait for a
//! head much longer than for the time; the body follows when the profile has its names.
//!
//! Nothing is recorded, and no time taken, while nobody asks. What a profile took of the
//! allocator's memory goes back to the system, unless the process has more than 192 MiB: there the
//! allocator keeps what is freed, for the program's own use.
//!
//! # Who is answered
//!
//! [`serve`] listens on loopback addresses alone, and answers requests that were sent to an address
//! or to `localhost`. [`Options`] has a token for clients to show, other names, and other
//! addresses. Where the name that a request was sent to is checked, requests of another site's
//! pages are refused as well, as far as the browser says whose they are. An application that mounts
//! the endpoints is asked by whoever can reach it: keep them from strangers, or set a
//! [token](Options::token).
//!
//! # What is taken at once
//!
//! | | at most | else |
//! |---|---|---|
//! | windows that are open | 8, or [`Options::max_windows`] | 503, with `Retry-After` |
//! | a request's body | 4 MiB, within 10 s | 413, 408 |
//! | addresses in a request | 250,000 | 413 |
//! | bodies of requests until they are answered, and lists of threads until they are taken | 16 MiB together | 503, with `Retry-After` |
//! | a client that takes its answer | its window counts as open, its room as taken | for 60 s, where others wait; then the connection is closed |
//! | profiles, symbols and threads that are looked up | 2 requests | they wait |
//! | symbols that are kept for the next request | 4 MiB, for 10 min | they are looked up again |
//!
//! And where [`serve`] has the connections:
//!
//! | | at most | else |
//! |---|---|---|
//! | a request's line and headers | 16 KiB, within 10 s | 431, the connection is closed |
//! | a client that reads nothing | 30 s | the connection is closed |
//! | a client that has closed its end (`shutdown`, `nc -N`), and waits | 1 s | it counts as gone |
//! | connections | 256 | they wait; meanwhile none is kept for a client's next request |
//!
//! What is no request, or has too long a line or too many headers, is answered by hyper, by a status
//! without a sentence.
//!
//! An application that mounts the endpoints sets limits of this kind itself. In one, as behind a
//! proxy, a client that has gone is seen to have gone when the server sees it: hyper does not where
//! the client had sent more than one request. Such a window goes on for the time that it was asked
//! for.
//!
//! When a [`Server`] has ended, no window is open any more.
#![forbid(unsafe_code)]

mod absent;
mod admission;
mod body;
mod cmdline;
mod connection;
#[cfg(feature = "contention")]
mod contention;
#[cfg(any(feature = "contention", feature = "heap"))]
mod cumulative;
mod endpoints;
mod family;
mod form;
#[cfg(feature = "heap")]
mod heap;
mod index;
mod limits;
mod options;
mod outgoing;
mod peer;
mod profile;
mod query;
mod reply;
mod router;
mod routes;
mod server;
mod symbol;
mod threads;
mod window;
mod worker;

pub use body::Body;
pub use endpoints::{Answer, Endpoints};
pub use options::Options;
pub use router::router;
pub use server::{Server, serve};
