//! What is known of the threads: for the audit, the figures and the labels of samples.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::{Account, Threads};
use crate::aggregate::ThreadLabels;
use crate::cpu::arming::Refusal;

impl Threads {
    /// The accounts of the threads that are known, and of all others together.
    pub(in crate::cpu) fn accounts(&self) -> (impl Iterator<Item = (u32, Account)>, Account) {
        let lost: HashMap<u32, u64> = self
            .live
            .values()
            .filter_map(|live| {
                let slot = self.recorder.slots.at(live.slot)?;
                (slot.serial() == live.serial)
                    .then(|| (live.serial, slot.lost.load(Ordering::Relaxed)))
            })
            .collect();
        let accounts = self.known.iter().map(move |(&serial, thread)| {
            let mut account = thread.account;
            account.lost = lost.get(&serial).copied().unwrap_or(account.lost);
            (serial, account)
        });
        (accounts, self.unseen)
    }

    /// Threads that were armed so far.
    pub(in crate::cpu) fn armed(&self) -> u64 {
        self.armed
    }

    /// Threads that were armed with a perf event.
    pub(in crate::cpu) fn armed_by_perf(&self) -> u64 {
        self.armed_by_perf
    }

    /// Threads that have no clock because the system refused every one.
    pub(in crate::cpu) fn refused(&self) -> u64 {
        let refused = self.live.values().filter(|live| live.refusal().is_some());
        refused.count() as u64
    }

    /// What the system refused to how many threads.
    pub(in crate::cpu) fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> {
        self.refusals
            .iter()
            .map(|(&refusal, &threads)| (refusal, threads))
    }

    /// Threads that used CPU time while they blocked the signal.
    pub(in crate::cpu) fn blocking(&self) -> Vec<String> {
        let blocking = self.known.values().filter(|thread| thread.is_blocking);
        let mut names: Vec<String> = blocking
            .map(|thread| format!("{} ({})", thread.labels.name, thread.labels.tid))
            .collect();
        names.sort();
        names
    }

    /// What the samples of a serial number are labelled with.
    pub(in crate::cpu) fn labels(&self, serial: u32) -> Option<ThreadLabels> {
        Some(self.known.get(&serial)?.labels.clone())
    }

    /// Whether a thread of this id was found and is alive.
    pub(in crate::cpu) fn knows(&self, tid: i32) -> bool {
        self.live.contains_key(&tid)
    }

    /// Bytes that the tables take, roughly.
    pub(in crate::cpu) fn size_bytes(&self) -> usize {
        self.live.allocation_size() + self.known.allocation_size()
    }
}
