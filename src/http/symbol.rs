//! `symbol`: addresses to symbols, for clients that have no binary at hand.

use std::sync::Arc;
use std::vec;

use bytes::{Bytes, BytesMut};
use hashbrown::HashSet;
use http::StatusCode;

use super::limits::{Limits, Room};
use super::reply::{self, Reply};
use super::worker;
use crate::format::well_known_at;
use crate::symbolize::Symbols;

/// How many bytes of lines are made at a time.
const PIECE: usize = 32 * 1024;
/// The most addresses that a request may have.
const MOST_ADDRESSES: usize = 250_000;

/// Answers with the symbols of the addresses in a body, whose room the answer takes over.
pub(super) async fn answer(
    limits: &Limits,
    symbols: &Arc<Symbols>,
    body: Bytes,
    room: Room,
) -> Reply {
    let symbols = symbols.clone();
    let find = move || {
        let addresses = addresses(&body)?;
        drop(body);
        let mut found = symbols.at(&addresses);
        // They lie behind all code.
        let placeholder = |address| Some((address, Arc::from(well_known_at(address)?)));
        found.extend(addresses.into_iter().filter_map(placeholder));
        Ok(found)
    };
    match worker::run(limits.work().await, find).await {
        Ok(Err((status, sentence))) => reply::error(status, sentence),
        Ok(Ok(symbols)) => {
            let bytes = symbols
                .iter()
                .map(|(address, symbol)| line_bytes(*address, symbol));
            let bytes = bytes.sum();
            let lines = Lines {
                symbols: symbols.into_iter(),
                _room: room,
            };
            reply::text("").map(|_| limits.pieces(bytes, lines))
        }
        Err(error) => reply::failed(&error),
    }
}

/// The addresses of a body, as `0x1000+0x1fff`, each once and in order. They are looked up as they
/// are: a client has moved return addresses back already.
///
/// # Errors
///
/// The status and the sentence of an answer.
fn addresses(body: &[u8]) -> Result<Vec<u64>, (StatusCode, String)> {
    let body = str::from_utf8(body).map_err(|_| wrong_address("a byte that is no text"))?;
    let words = body.split(|c: char| c == '+' || c.is_ascii_whitespace());
    let mut addresses = HashSet::new();
    for word in words.filter(|word| !word.is_empty()) {
        let digits = word.strip_prefix("0x").or(word.strip_prefix("0X"));
        let address = u64::from_str_radix(digits.unwrap_or(word), 16);
        let address =
            address.map_err(|_| wrong_address(&format!("`{:.20}`", word.escape_default())))?;
        addresses.insert(address);
        if addresses.len() > MOST_ADDRESSES {
            let sentence = format!("a request may have at most {MOST_ADDRESSES} addresses");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, sentence));
        }
    }
    let mut addresses: Vec<u64> = addresses.into_iter().collect();
    addresses.sort_unstable();
    Ok(addresses)
}

fn wrong_address(what: &str) -> (StatusCode, String) {
    let sentence = format!(
        "the body must be hexadecimal addresses with + between them, as 0x1000+0x1fff, and has {what}"
    );
    (StatusCode::BAD_REQUEST, sentence)
}

/// A line for each address that has a symbol, made as the client takes them: what a client asks by
/// a few bytes can have a symbol of thousands. Each line is ended, since a reader misses a last one
/// that is not.
struct Lines {
    symbols: vec::IntoIter<(u64, Arc<str>)>,
    _room: Room,
}

impl Iterator for Lines {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        while piece.len() < PIECE
            && let Some((address, symbol)) = self.symbols.next()
        {
            for part in [&*head(address), &*symbol, "\n"] {
                piece.extend_from_slice(part.as_bytes());
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

fn line_bytes(address: u64, symbol: &str) -> u64 {
    (head(address).len() + symbol.len() + 1) as u64
}

/// What stands before the symbol.
fn head(address: u64) -> String {
    format!("{address:#x}\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_with_a_plus_between() {
        assert_eq!(addresses(b"0x1000+0x1fFf"), Ok(vec![0x1000, 0x1fff]));
        assert_eq!(addresses(b"2+1+2"), Ok(vec![1, 2]));
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
            let (status, _) = addresses(wrong).unwrap_err();
            assert_eq!(status, 400, "{wrong:?}");
        }
        let most = (0..MOST_ADDRESSES).map(|address| format!("{address:x}"));
        let most = most.collect::<Vec<_>>().join("+");
        let read = addresses(format!("{most}+{most}").as_bytes()).unwrap();
        assert_eq!(read.len(), MOST_ADDRESSES);
        let (status, _) = addresses(format!("{most}+fffffff").as_bytes()).unwrap_err();
        assert_eq!(status, 413);
    }
}
