//! The page that lists what can be had.

use std::fmt::Write as _;

use http::HeaderMap;
use http::header::HOST;

use super::reply::{self, Reply};

/// A path below this page, and what it answers.
type Listed = (&'static str, &'static str);

const ENDPOINTS: [Listed; 9] = [
    (
        "profile?seconds=30",
        "the CPU time of the next 30 seconds, as profile.proto in gzip",
    ),
    (
        "profile?seconds=5&debug=1",
        "the functions that took most of the next 5 seconds, as text",
    ),
    (
        "profile?seconds=30&format=folded",
        "the CPU time of the next 30 seconds, as collapsed stacks for flame graphs",
    ),
    (
        "goroutine",
        "the threads that live now, as profile.proto in gzip",
    ),
    ("goroutine?debug=1", "the same as text"),
    ("threadcreate", "the same by its other name"),
    ("cmdline", "the program and its arguments"),
    (
        "symbol",
        "symbols of addresses, for clients without the binary",
    ),
    (
        "../../pprof/profile?seconds=30",
        "the CPU time of the next 30 seconds, as gperftools' CPU profile",
    ),
];

/// Those of the heap, where the program's allocator is sigprof's.
const OF_HEAP: [Listed; 9] = [
    (
        "heap",
        "the memory in use and all that was allocated, as profile.proto in gzip",
    ),
    (
        "heap?debug=1",
        "the functions whose memory is in use, as text",
    ),
    (
        "allocs?seconds=30",
        "what is allocated in the next 30 seconds, as profile.proto in gzip",
    ),
    (
        "allocs?debug=1",
        "the functions that allocated the most, as text",
    ),
    (
        "peak",
        "the memory that was in use when it was the most, as profile.proto in gzip",
    ),
    (
        "growth",
        "the allocations that made it more than it had ever been, as profile.proto in gzip",
    ),
    ("../../pprof/growth", "the same as gperftools' text"),
    (
        "lifetimes",
        "how long the memory lived that is freed, as profile.proto in gzip",
    ),
    (
        "../../pprof/heap",
        "the memory in use and all that was allocated, as gperftools' text",
    ),
];

/// Those of locks, where the program watches them.
const OF_LOCKS: [Listed; 5] = [
    (
        "block",
        "who has waited for locks, as profile.proto in gzip",
    ),
    (
        "block?debug=1",
        "the functions that waited longest, as text",
    ),
    (
        "mutex",
        "who has kept others waiting, as profile.proto in gzip",
    ),
    (
        "mutex?seconds=30",
        "who keeps others waiting in the next 30 seconds, as profile.proto in gzip",
    ),
    (
        "../../pprof/contention",
        "who has waited for locks, as gperftools' text",
    ),
];

/// The page, which the client finds at `path`.
pub(super) fn answer(headers: &HeaderMap, path: &str, has_token: bool) -> Reply {
    reply::html(page(headers, path, has_token))
}

fn page(headers: &HeaderMap, path: &str, has_token: bool) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let title = format!("{} ({})", escaped(&program), std::process::id());
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = escaped(host.unwrap_or("host:port"));
    let user = match has_token {
        true => "any:TOKEN@",
        false => "",
    };
    let path = escaped(path);
    let above = path.strip_suffix("/debug/pprof/").unwrap_or_default();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}: profiles</title>\n\
         <style>body {{ font-family: sans-serif; margin: 2em }} td {{ padding: 0.2em 2em 0.2em 0 }}</style></head>\n\
         <body>\n<h1>{title}</h1>\n<table>\n"
    );
    #[cfg(feature = "heap")]
    let has_heap = crate::heap::is_installed();
    #[cfg(not(feature = "heap"))]
    let has_heap = false;
    let of_heap = OF_HEAP.iter().filter(|_| has_heap);
    #[cfg(feature = "contention")]
    let has_locks = crate::contention::was_watched();
    #[cfg(not(feature = "contention"))]
    let has_locks = false;
    let of_locks = OF_LOCKS.iter().filter(|_| has_locks);
    for (path, what) in ENDPOINTS.iter().chain(of_heap).chain(of_locks) {
        let path = escaped(path);
        let name = path.trim_start_matches("../..");
        // Into a string, which takes everything.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{path}\">{name}</a></td><td>{what}</td></tr>"
        );
    }
    let _ = write!(
        page,
        "</table>\n<p>From a shell:</p>\n\
         <pre>go tool pprof -http=: 'http://{user}{host}{path}profile?seconds=30'\n\
         google-pprof --text 'http://{user}{host}{above}'</pre>\n</body>\n</html>\n"
    );
    page
}

/// Text for HTML, inside elements and attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sends_is_no_markup() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "<script>\"&".parse().unwrap());
        let page = page(&headers, "/<b>/debug/pprof/", false);
        assert!(!page.contains("<script>") && !page.contains("<b>"));
        assert!(page.contains("http://&lt;script&gt;&quot;&amp;/&lt;b&gt;/debug/pprof/"));
    }
}
