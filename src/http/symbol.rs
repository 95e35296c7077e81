//! `symbol`: addresses to symbols, for clients that have no binary at hand.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::limits::Limits;
use super::reply::{self, Reply};
use super::worker;
use crate::symbolize::Symbols;

/// Answers `GET` with whether there are symbols, and `POST` with those of the addresses in the
/// body.
pub(super) async fn answer(
    limits: &Limits,
    symbols: &Arc<Symbols>,
    method: &Method,
    body: Bytes,
) -> Reply {
    if method != Method::POST {
        // How many there are is nothing that a client looks at, as long as it is not 0.
        return reply::text("num_symbols: 1\n");
    }
    let addresses = match addresses(&body) {
        Ok(addresses) => addresses,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    drop(body);
    let symbols = symbols.clone();
    let lines = move || lines(&symbols, &addresses);
    match worker::run(limits.work().await, lines).await {
        Ok(lines) => reply::text(lines),
        Err(error) => reply::error(reply::status_of(&error), error),
    }
}

/// The addresses of a body, as `0x1000+0x1fff`. They are looked up as they are: a client has moved
/// return addresses back already.
fn addresses(body: &[u8]) -> Result<Vec<u64>, String> {
    let body = str::from_utf8(body).map_err(|_| wrong_address("a byte that is no text"))?;
    let words = body.split(|c: char| c == '+' || c.is_ascii_whitespace());
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            let digits = word.strip_prefix("0x").or(word.strip_prefix("0X"));
            let address = u64::from_str_radix(digits.unwrap_or(word), 16);
            address.map_err(|_| wrong_address(&format!("`{:.20}`", word.escape_default())))
        })
        .collect()
}

fn wrong_address(what: &str) -> String {
    format!(
        "the body must be hexadecimal addresses with + between them, as 0x1000+0x1fff, and has {what}"
    )
}

/// A line for each address that has a symbol, each ended, since a reader misses a last line that is
/// not.
fn lines(symbols: &Symbols, addresses: &[u64]) -> String {
    let symbols = symbols.at(addresses);
    let mut lines = String::new();
    for address in addresses {
        if let Some(symbol) = symbols.get(address) {
            // Into a string, which takes everything.
            let _ = writeln!(lines, "{address:#x}\t{symbol}");
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_with_a_plus_between() {
        assert_eq!(addresses(b"0x1000+0x1fFf"), Ok(vec![0x1000, 0x1fff]));
        assert_eq!(addresses(b"0x000000000000002a\n"), Ok(vec![0x2a]));
        assert_eq!(addresses(b"2a+"), Ok(vec![0x2a]));
        assert_eq!(addresses(b""), Ok(vec![]));
        for wrong in [
            &b"0x1000,0x2000"[..],
            b"0x",
            b"0x11112222333344445",
            b"\xff",
            b"-1",
        ] {
            assert!(addresses(wrong).is_err(), "{wrong:?}");
        }
    }
}
