//! Threads that come and go: what they say of themselves, and what is said of them to who asks.
#![forbid(unsafe_code)]

use std::time::Instant;

use super::{Account, Change, Threads};
use crate::cpu::arming::{Choice, ThreadClock};
use crate::cpu::births::{Born, Ended, Event};

impl Threads {
    /// Takes note of the threads that have begun or ended by themselves. Waits for one that is
    /// telling.
    pub(in crate::cpu) fn hear(&mut self) {
        let room = std::mem::take(&mut self.events);
        let events = self.recorder.births.take(room);
        self.take_note(events);
    }

    /// As [`hear`](Self::hear), but does not wait, and says whether it heard: among many threads
    /// one that is telling can stand still for longer than lanes have room.
    pub(in crate::cpu) fn try_hear(&mut self) -> bool {
        let room = std::mem::take(&mut self.events);
        let taken = self.recorder.births.try_take(room);
        self.is_deaf = taken.is_err();
        match taken {
            Ok(events) => self.take_note(events),
            Err(room) => self.events = room,
        }
        !self.is_deaf
    }

    fn take_note(&mut self, mut events: Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Born(born) => self.admit(born),
                Event::Ended(ended) => self.bury(&ended),
            }
        }
        self.events = events;
    }

    fn admit(&mut self, born: Born) {
        // Whoever had the id is gone, or it was armed from here meanwhile.
        self.retire(born.tid, None, born.at);
        self.newcomers.remove(&born.tid);
        self.leaving.remove(&born.tid);
        let account = Account::begin(born.cpu_ns, born.cpu_ns);
        let is_outdated = born.armed.clock.as_ref().is_some_and(|clock| {
            // A timer is what there is where an event was refused.
            match self.arming.choice {
                Choice::PerfEvent { .. } => false,
                Choice::ThreadTimer => matches!(clock, ThreadClock::PerfEvent(_)),
                Choice::Nothing => true,
            }
        });
        self.enlist(born.tid, born.serial, born.slot, born.armed, account, None);
        self.note_came(born.tid, born.at);
        if is_outdated {
            self.rearm(born.tid);
        }
    }

    fn bury(&mut self, ended: &Ended) {
        if let Some(thread) = self.known.get_mut(&ended.serial) {
            thread.account.see(ended.cpu_ns);
            let len = ended.name.iter().position(|&b| b == 0);
            let name = &ended.name[..len.unwrap_or(ended.name.len())];
            thread.labels.name = String::from_utf8_lossy(name).into_owned();
        }
        if self
            .live
            .get(&ended.tid)
            .is_some_and(|live| live.serial == ended.serial)
        {
            self.retire(ended.tid, Some(ended.cpu_ns), ended.at);
            self.leaving.insert(ended.tid, ended.cpu_ns);
        }
    }

    /// From now on threads that begin arm themselves.
    pub(in crate::cpu) fn expect_births(&mut self) {
        self.is_hooked = true;
    }

    pub(in crate::cpu) fn is_hooked(&self) -> bool {
        self.is_hooked
    }

    /// From now on [`take_changes`](Self::take_changes) says which threads come and go. Called
    /// before the first scan.
    pub(in crate::cpu) fn note_changes(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// The threads that have come and gone since the last call, as far as they were heard of.
    pub(in crate::cpu) fn take_changes(&mut self) -> Vec<Change> {
        self.changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Says that a thread has come, if it has not gone at once.
    pub(super) fn note_came(&mut self, tid: i32, at: Instant) {
        if let (Some(live), Some(changes)) = (self.live.get_mut(&tid), &mut self.changes) {
            live.since = at;
            changes.push(Change::Came {
                serial: live.serial,
                tid,
                slot: live.slot,
                at,
            });
        }
    }
}
