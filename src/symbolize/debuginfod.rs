//! The cache of debuginfod's clients: debug files that GDB and others have fetched from a server.
//! What is in the cache is read; nothing is fetched, since that takes time, and tells a server what
//! runs here.
//!
//! Source: `debuginfod_find_debuginfo(3)`, "CACHE", of elfutils.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::sys::brief_file;
use crate::sys::process::has_elevated_rights;

/// Where the debug file of a build is, if it was fetched.
pub(super) fn cached(build_id: &str) -> Option<PathBuf> {
    // Whoever started such a process may not say which files it reads.
    if build_id.is_empty() || has_elevated_rights() {
        return None;
    }
    // As the process was started: other threads may change the environment now.
    let environment = brief_file::read("/proc/self/environ").ok()?;
    Some(directory(&environment)?.join(build_id).join("debuginfo"))
}

/// Where the cache is, by an environment of `NAME=value` with a zero byte behind each.
fn directory(environment: &[u8]) -> Option<PathBuf> {
    let variable = |name: &str| {
        let mut variables = environment.split(|&byte| byte == 0);
        let value = variables.find_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            (!value.is_empty()).then_some(value)
        })?;
        Some(Path::new(OsStr::from_bytes(value)))
    };
    if let Some(path) = variable("DEBUGINFOD_CACHE_PATH") {
        return Some(path.to_owned());
    }
    let home = variable("HOME");
    let of_old_clients = home.map(|home| home.join(".debuginfod_client_cache"));
    if let Some(path) = of_old_clients.filter(|path| path.exists()) {
        return Some(path);
    }
    let of_user = variable("XDG_CACHE_HOME").map(Path::to_owned);
    let caches = of_user.or_else(|| Some(home?.join(".cache")))?;
    Some(caches.join("debuginfod_client"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_debuginfod_has_it() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let directory = |variables: &[&str]| {
            let home = format!("HOME={}", home.display());
            directory(&[&[&*home], variables].concat().join("\0").into_bytes())
        };
        assert_eq!(directory(&[]), Some(home.join(".cache/debuginfod_client")));
        let with_caches = ["XDG_CACHE_HOME=/caches", "DEBUGINFOD_CACHE_PATH="];
        let of_caches = Some("/caches/debuginfod_client".into());
        assert_eq!(directory(&with_caches), of_caches);
        let of_old_clients = home.join(".debuginfod_client_cache");
        std::fs::create_dir(&of_old_clients).unwrap();
        assert_eq!(directory(&with_caches), Some(of_old_clients));
        let with_path = ["XDG_CACHE_HOME=/caches", "DEBUGINFOD_CACHE_PATH=/cache"];
        assert_eq!(directory(&with_path), Some("/cache".into()));
        assert_eq!(super::directory(b"HOMES=/home\0"), None);
    }
}
