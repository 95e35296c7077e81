//! gperftools' CPU file, as its documentation has it: read by code that shares nothing with ours.

use std::path::Path;

/// A file of this machine's words.
pub struct Legacy {
    pub period_us: u64,
    /// Counts and addresses.
    pub records: Vec<(u64, Vec<u64>)>,
    /// The bytes before the text.
    pub bytes: u64,
    pub text: String,
}

impl Legacy {
    /// Reads a file.
    ///
    /// # Panics
    ///
    /// If the file is not whole, or not what the documentation says.
    pub fn read(file: &Path) -> Self {
        let file = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let slot = |i: usize| u64::from_ne_bytes(file[i * 8..][..8].try_into().unwrap());
        assert_eq!([0, 1, 2, 4].map(slot), [0, 3, 0, 0]);
        let (mut at, mut records) = (5, Vec::new());
        loop {
            let (count, depth) = (slot(at), slot(at + 1) as usize);
            let pcs: Vec<u64> = (0..depth).map(|i| slot(at + 2 + i)).collect();
            at += 2 + depth;
            if count == 0 {
                assert_eq!(pcs, [0]);
                break;
            }
            assert!(depth > 0 && !pcs.contains(&0));
            records.push((count, pcs));
        }
        let text = String::from_utf8(file[at * 8..].to_vec()).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        Self {
            period_us: slot(3),
            records,
            bytes: at as u64 * 8,
            text,
        }
    }

    /// The sum of counts.
    pub fn counted(&self) -> u64 {
        self.records.iter().map(|(count, _)| count).sum()
    }
}
